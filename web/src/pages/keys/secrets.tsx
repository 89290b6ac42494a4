import { useMutation } from "@connectrpc/connect-query";
import { Alert, Button, Code, Group, Modal, Radio, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { type ReactNode, useState } from "react";
import { type ApiKey, ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { ConfirmDialog } from "../../parts/dialogs.tsx";
import { Secret } from "../../parts/text/copy.tsx";

const DAY = 86_400;
/** The choices for the grace period of the old secret, in seconds. */
const GRACES = [
  { seconds: DAY, label: "For a day", meaning: "Time to give the new secret to whatever uses the key." },
  { seconds: 7 * DAY, label: "For a week", meaning: "The maximum." },
  {
    seconds: 0,
    label: "Revoke immediately",
    meaning: "All previous secrets stop working now. Use this if the secret leaked.",
  },
] as const;

/** Asks how a key gets another secret. */
export interface RotateKeyProps {
  opened: boolean;
  onClose: () => void;
  /** The key; the one before while the dialog is closed. */
  apiKey: ApiKey | undefined;
  isOwn: boolean;
  /** Rotates the key by calling `rotate`, which answers the new secret. */
  onRotate: (rotate: () => Promise<string>) => Promise<void>;
}

/** Gives a key another secret, and asks for how long the old one still works. */
export function RotateKey({ opened, onClose, apiKey, isOwn, onRotate }: RotateKeyProps) {
  const rotate = useMutation(ApiKeyService.method.rotateApiKey, { gcTime: 0 });
  const [seconds, setSeconds] = useState<number>(DAY);

  function close() {
    setSeconds(DAY);
    onClose();
  }

  async function run(): Promise<string> {
    const gracePeriod = { seconds: BigInt(seconds) };
    const { secret } = await rotate.mutateAsync({ apiKeyId: apiKey?.id ?? "", gracePeriod });
    return secret;
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title={`Rotate the secret of “${apiKey?.name}”?`}
      confirm="Rotate secret"
      onConfirm={() => onRotate(run)}
    >
      <Text size="sm">
        The key gets a new secret, shown once. Its permissions and webhooks stay the same.
        {isOwn && " You are signed in with this key: you stay signed in here, and nowhere else."}
      </Text>
      <Radio.Group
        label="How long does the old secret stay valid?"
        value={String(seconds)}
        onChange={(value) => setSeconds(Number(value))}
      >
        <Stack gap="sm" mt="xs">
          {GRACES.map((grace) => (
            <Radio
              key={grace.seconds}
              value={String(grace.seconds)}
              label={grace.label}
              description={grace.meaning}
            />
          ))}
        </Stack>
      </Radio.Group>
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
          <Text size="sm" c="dimmed" component="div">
            Send it in the header <Code>X-Service-Key</Code>.
          </Text>
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
