import { useMutation, useQuery } from "@connectrpc/connect-query";
import { Button, Radio, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconEyeOff, IconKey, IconRefresh } from "@tabler/icons-react";
import { useState } from "react";
import {
  type Webhook,
  type WebhookSecret,
  WebhookService,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { Section } from "../../../parts/layout/section.tsx";
import { Failure } from "../../../parts/status/failure.tsx";
import { Loading } from "../../../parts/status/loading.tsx";
import { Secret } from "../../../parts/text/secret.tsx";
import { Time } from "../../../parts/text/time.tsx";
import { useEndpoint } from "../endpoint/use-endpoint.ts";
import type { WebhookDialogProps } from "./webhook-dialog-props.ts";
import { WebhookInWords } from "./webhook-in-words.tsx";

/** The secrets that a webhook's deliveries are signed with: asked for when somebody wants to see them, not before. */
export function SigningSecret({ webhook }: { webhook: Webhook }) {
  const [shown, show] = useDisclosure();
  const [rotating, rotate] = useDisclosure();
  return (
    <Section
      title="Signing secret"
      description="Signs each delivery (Standard Webhooks). Keep it secret: anyone who has it can forge deliveries."
      actions={
        <>
          <Button
            variant="default"
            leftSection={shown ? <IconEyeOff size={16} /> : <IconKey size={16} />}
            onClick={show.toggle}
          >
            {shown ? "Hide" : "Reveal secret"}
          </Button>
          <Button variant="default" leftSection={<IconRefresh size={16} />} onClick={rotate.open}>
            Rotate
          </Button>
        </>
      }
    >
      {shown && <Secrets webhookId={webhook.id} />}
      <Rotate webhook={webhook} opened={rotating} onClose={rotate.close} onRotated={show.open} />
    </Section>
  );
}

function Secrets({ webhookId }: { webhookId: bigint }) {
  const { data, error, refetch } = useQuery(
    WebhookService.method.getWebhookSecret,
    { webhookId },
    // Removed from memory as soon as it is hidden. The audit log records each read: none follows when somebody comes back to
    // the window, or the network returns.
    { gcTime: 0, staleTime: Number.POSITIVE_INFINITY },
  );
  if (!data) return error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading lines={2} />;
  return (
    <Stack gap="md">
      {data.secrets.map((each, index) => (
        <OneSecret key={each.secret} secret={each} place={index} />
      ))}
    </Stack>
  );
}

/** @param place 0 for the newest */
function OneSecret({ secret: { secret, expires }, place }: { secret: WebhookSecret; place: number }) {
  return (
    <div>
      <Secret
        value={secret}
        revealed
        label={place === 0 ? "Signing secret" : place === 1 ? "Old secret" : `Old secret ${place}`}
      />
      {expires && (
        <Text size="xs" c="dimmed" mt={4}>
          Signs beside the newest until <Time value={expires} />
        </Text>
      )}
    </div>
  );
}

interface RotateProps extends WebhookDialogProps {
  onRotated: () => void;
}

function Rotate({ webhook, opened, onClose, onRotated }: RotateProps) {
  const { isKnown } = useEndpoint(webhook);
  const rotate = useMutation(WebhookService.method.rotateWebhookSecret, { gcTime: 0 });
  const readAnew = useReadAnew();
  const [revokeOldSecrets, setRevokeOldSecrets] = useState(false);

  function close() {
    setRevokeOldSecrets(false);
    onClose();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title="Rotate the signing secret?"
      confirm="Rotate secret"
      // Not before all event types that the secret signs are named.
      ready={isKnown}
      onConfirm={async () => {
        await rotate.mutateAsync({ webhookId: webhook.id, revokeOldSecrets });
        // What came back is not kept: the secrets are read anew by who shows them.
        rotate.reset();
        await Promise.all([readAnew(WebhookService), readAnew(WebhookService.method.getWebhookSecret)]);
        onRotated();
        notifications.show({
          color: "green",
          title: "The new secret is active",
          message: revokeOldSecrets
            ? "Configure it at the endpoint now: until then the endpoint refuses deliveries, which are retried."
            : "Configure it at the endpoint within 24 hours.",
        });
      }}
    >
      <WebhookInWords webhook={webhook} />
      <Text size="sm">A new secret signs deliveries immediately. At most five secrets sign at once.</Text>
      <Radio.Group
        label="How long does the old secret keep signing?"
        value={revokeOldSecrets ? "revoke" : "keep"}
        onChange={(value) => setRevokeOldSecrets(value === "revoke")}
      >
        <Stack gap="sm" mt="xs">
          <Radio
            value="keep"
            label="For 24 hours"
            description="Both secrets sign for 24 hours, so that the endpoint accepts deliveries until it has the new one."
          />
          <Radio
            value="revoke"
            label="Revoke immediately"
            description="All old secrets stop signing now. Use this if the secret leaked. The endpoint refuses deliveries until it has the new secret; they are retried."
          />
        </Stack>
      </Radio.Group>
      <Text size="sm">
        If the secret leaked, change the endpoint at once: until it rejects the old secret, anyone who has
        that secret can forge deliveries.
      </Text>
    </ConfirmDialog>
  );
}
