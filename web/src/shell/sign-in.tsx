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
import { useDocumentTitle } from "@mantine/hooks";
import { IconClockOff, IconHourglass, IconLockOpen } from "@tabler/icons-react";
import { type FormEvent, useState } from "react";
import { Navigate, useLocation } from "react-router";
import { PAGE_PATHS } from "../../../src/contract/page-paths.ts";
import { failureInWords, failureReason, retryAfterSeconds } from "../api/failure.ts";
import { useSessionAccess } from "../api/session.tsx";
import { BASE_PATH } from "../base-path.ts";
import { Failure } from "../parts/failure.tsx";
import { Dimmed } from "../parts/inline.tsx";
import { useSave } from "../parts/save.ts";
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
  const { busy, failure, save } = useSave();
  /** The error of the field. */
  const [error, setError] = useState<string>();
  const wrongKey = failureReason(failure) === "API_KEY_UNKNOWN";
  const tooMany = failureReason(failure) === "RATE_LIMITED";

  async function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const apiKey = String(new FormData(event.currentTarget).get("api-key")).trim();
    setError(apiKey === "" ? "Enter an API key" : undefined);
    if (apiKey === "") return;
    await save(() =>
      signIn(apiKey).catch((refused: unknown) => {
        if (failureReason(refused) === "API_KEY_UNKNOWN") setError("This key is unknown or revoked");
        throw refused;
      }),
    );
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
          <form onSubmit={(event) => void submit(event)} noValidate>
            <Stack>
              <PasswordInput
                label="API key"
                error={error}
                aria-invalid={error !== undefined}
                onChange={() => setError(undefined)}
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
              <Button type="submit" loading={busy} fullWidth>
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
