import { Alert, Button, Code, Container, Stack, Text } from "@mantine/core";
import { useRouteError } from "react-router";

/** Stands where a page could not be shown: by our fault, or since the service serves a newer one by now. */
export function Crash() {
  const error = useRouteError();
  return (
    <Container size="sm" py="xl">
      <Alert color="red" title="This page crashed" role="alert">
        <Stack align="flex-start" gap="sm">
          <Text size="sm">
            Reload the page: the service may have been updated since you opened it. If that does not help,
            send this message to the operator of the service.
          </Text>
          <Code block>{error instanceof Error ? error.message : String(error)}</Code>
          <Button variant="default" size="xs" onClick={() => window.location.reload()}>
            Reload the page
          </Button>
        </Stack>
      </Alert>
    </Container>
  );
}
