import { callUnaryMethod, useTransport } from "@connectrpc/connect-query";
import { Alert, Button, Code, Group, Modal, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { type ApiKey, ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { ConfirmDialog, type DialogProps, RadioChoice, useDialogState } from "../../parts/dialogs.tsx";
import { Dimmed } from "../../parts/inline.tsx";
import { Secret } from "../../parts/text/copy.tsx";

/** The choices for the grace period of the old secret, in seconds. */
const GRACES = [
  {
    value: "86400",
    label: "For a day",
    description: "Time to give the new secret to whatever uses the key.",
  },
  { value: "604800", label: "For a week", description: "The maximum." },
  {
    value: "0",
    label: "Revoke immediately",
    description: "All previous secrets stop working now. Use this if the secret leaked.",
  },
] as const;

/** Asks how a key gets another secret. */
export interface RotateKeyProps extends DialogProps {
  /** The key; the one before while the dialog is closed. */
  apiKey: ApiKey | undefined;
  isOwn: boolean;
  /** Rotates the key by calling `rotate`, which answers the new secret. */
  onRotate: (rotate: () => Promise<string>) => Promise<void>;
}

/** Gives a key another secret, and asks for how long the old one still works. */
export function RotateKey({ opened, onClose, apiKey, isOwn, onRotate }: RotateKeyProps) {
  const transport = useTransport();
  const [seconds, setSeconds] = useDialogState<(typeof GRACES)[number]["value"]>(opened, GRACES[0].value);

  async function run(): Promise<string> {
    const asked = { apiKeyId: apiKey?.id ?? "", gracePeriod: { seconds: BigInt(seconds) } };
    // Nothing keeps the secret but what shows it.
    return (await callUnaryMethod(transport, ApiKeyService.method.rotateApiKey, asked)).secret;
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={onClose}
      title={`Rotate the secret of “${apiKey?.name}”?`}
      confirm="Rotate secret"
      onConfirm={() => onRotate(run)}
    >
      <Text size="sm">
        The key gets a new secret, shown once. Its permissions and webhooks stay the same.
        {isOwn && " You are signed in with this key: you stay signed in here, and nowhere else."}
      </Text>
      <RadioChoice
        label="How long does the old secret stay valid?"
        options={GRACES}
        value={seconds}
        onChange={setSeconds}
      />
    </ConfirmDialog>
  );
}

/** A secret that the service tells only now. */
export interface NewSecret {
  title: string;
  secret: string;
  /** A note about the secret. */
  note?: ReactNode;
}

/** Shows a secret once. Only its button closes it: what is lost here is lost. */
export function SecretDialog({ shown, onClose }: { shown: NewSecret | undefined; onClose: () => void }) {
  return (
    <Modal
      opened={shown !== undefined}
      onClose={onClose}
      title={shown?.title}
      closeOnClickOutside={false}
      closeOnEscape={false}
      withCloseButton={false}
      // The secret goes with the dialog, at once.
      transitionProps={{ duration: 0 }}
    >
      {shown && (
        <Stack>
          <Alert color="yellow" icon={<IconAlertTriangle />} title="Copy it now">
            It is shown only once: the service stores its hash. If you lose it, rotate the key.
          </Alert>
          <Secret value={shown.secret} label="Secret" />
          <Dimmed component="div">
            Send it in the header <Code>X-Service-Key</Code>.
          </Dimmed>
          {shown.note && (
            <Text size="sm" component="div">
              {shown.note}
            </Text>
          )}
          <Group justify="flex-end">
            <Button onClick={onClose}>I have copied it</Button>
          </Group>
        </Stack>
      )}
    </Modal>
  );
}
