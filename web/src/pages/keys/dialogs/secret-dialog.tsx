import { Alert, Button, Code, Group, Modal, Stack, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Secret } from "../../../parts/text/secret.tsx";

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
