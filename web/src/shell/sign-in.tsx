import {
  Alert,
  Anchor,
  Button,
  Center,
  Code,
  Group,
  Paper,
  PasswordInput,
  Stack,
  Title,
} from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDocumentTitle } from "@mantine/hooks";
import { IconClockOff, IconHourglass, IconLockOpen } from "@tabler/icons-react";
import { useState } from "react";
import { Navigate, useLocation } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { failureInWords, failureReason, retryAfterSeconds } from "../api/failure.ts";
import { useSessionAccess } from "../api/session.tsx";
import { BASE_PATH } from "../base-path.ts";
import { Failure } from "../parts/failure.tsx";
import { Dimmed } from "../parts/inline.tsx";
import { useNow } from "../parts/time.tsx";
import { Brand, ColourSchemeSwitch } from "./brand.tsx";
import { type SignInState, Waiting } from "./gate.tsx";

/** The sign-in page, which takes an API key. */
export default function SignInPage() {
  const { state } = useSessionAccess();
  const { from, ended } = (useLocation().state ?? {}) as SignInState;
  if (state.is === "in") return <Navigate to={from ?? PAGE_PATHS.overview} replace />;
  if (state.is === "unknown") return <Waiting />;
  return <SignInForm ended={ended ?? false} />;
}

function SignInForm({ ended }: { ended: boolean }) {
  useDocumentTitle("Sign in · Webhook service");
  const { signIn } = useSessionAccess();
  const [failure, setFailure] = useState<unknown>();
  const form = useForm({
    mode: "uncontrolled",
    initialValues: { apiKey: "" },
    validate: { apiKey: (value) => (value.trim() === "" ? "Enter an API key" : null) },
  });
  const wrongKey = failureReason(failure) === "API_KEY_UNKNOWN";
  const tooMany = failureReason(failure) === "RATE_LIMITED";

  async function submit({ apiKey }: { apiKey: string }) {
    setFailure(undefined);
    await signIn(apiKey.trim()).catch((error: unknown) => {
      setFailure(error);
      if (failureReason(error) === "API_KEY_UNKNOWN")
        form.setFieldError("apiKey", "This key is unknown or revoked");
    });
  }

  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p={{ base: "lg", sm: "xl" }} w="100%" maw={440} shadow="sm">
        <Stack gap="lg">
          <Stack gap="xs">
            <Group justify="space-between">
              <Brand />
              <ColourSchemeSwitch />
            </Group>
            <Title order={1} size="h3">
              Sign in
            </Title>
          </Stack>
          {ended && failure === undefined && (
            <Alert color="yellow" icon={<IconClockOff />} title="Your session has ended" role="status">
              Sign in again to continue.
            </Alert>
          )}
          {!window.isSecureContext && (
            <Alert
              color="orange"
              icon={<IconLockOpen />}
              title="This connection is not encrypted"
              role="note"
            >
              Anyone on the network path can read your API key and take over your session. Open this page with
              https:// or on the machine that the service runs on.
            </Alert>
          )}
          {tooMany ? (
            <TooManyTries error={failure} />
          ) : (
            failure !== undefined && !wrongKey && <Failure error={failure} />
          )}
          <form onSubmit={form.onSubmit(submit)} noValidate>
            <Stack>
              <PasswordInput
                key={form.key("apiKey")}
                {...form.getInputProps("apiKey")}
                label="API key"
                aria-invalid={form.errors.apiKey !== undefined}
                description={
                  <>
                    One with the permission <Code>Manage_Api_Keys</Code> or{" "}
                    <Code>Read_Administrative_Data</Code>
                  </>
                }
                name="api-key"
                autoComplete="off"
                autoCapitalize="off"
                spellCheck={false}
                data-1p-ignore
                data-autofocus
                autoFocus
                visibilityToggleButtonProps={{ "aria-label": "Show or hide the key" }}
              />
              <Button type="submit" loading={form.submitting} fullWidth>
                Sign in
              </Button>
            </Stack>
          </form>
          <Dimmed component="div">
            The first administrator’s key is in the file <Code>.data/admin-key</Code> where the service runs,
            or in its setting <Code>ADMIN_KEY</Code>. <Code>npm run admin-key</Code> creates another one.{" "}
            <Anchor href={`${BASE_PATH}/docs`} inherit underline="always">
              API documentation
            </Anchor>
          </Dimmed>
        </Stack>
      </Paper>
    </Center>
  );
}

/** Says which limit refused the sign-in, and counts the wait down that the error names. */
function TooManyTries({ error }: { error: unknown }) {
  const { title, text } = failureInWords(error);
  const wait = retryAfterSeconds(error) ?? 0;
  const [until] = useState(() => Date.now() + wait * 1_000);
  const left = Math.ceil((until - useNow(1_000)) / 1_000);
  return (
    <Alert color="yellow" icon={<IconHourglass />} title={title} role="alert">
      {text.replace(`in ${wait} s`, left > 0 ? `in ${left} s` : "now")}
    </Alert>
  );
}
