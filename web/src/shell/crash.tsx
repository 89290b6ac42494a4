import { Alert, Button, Code, Container, Stack, Text } from "@mantine/core";
import { useRouteError } from "react-router";

/** The browsers' errors for a part of the page that could not be loaded: in Chromium and Firefox, and in Safari. */
const NOT_LOADED = /dynamically imported module|Importing a module script failed/;

/** Stands where a page could not be shown: by our fault, or since the service is away or serves a newer one by now. */
export function Crash() {
  const error = useRouteError();
  const message = error instanceof Error ? error.message : String(error);
  const isLoaded = !NOT_LOADED.test(message);
  return (
    <Container size="sm" py="xl">
      <Alert color="red" title={isLoaded ? "This page crashed" : "This page was not loaded"} role="alert">
        <Stack align="flex-start" gap="sm">
          <Text size="sm">
            {isLoaded
              ? "Reload the page. If that does not help, send this message to the operator of the service."
              : "The service does not answer, or was updated since you opened the page. Check that it runs and that you are connected to it, then reload the page."}
          </Text>
          <Code block>{message}</Code>
          <Button variant="default" size="xs" onClick={() => window.location.reload()}>
            Reload the page
          </Button>
        </Stack>
      </Alert>
    </Container>
  );
}
