import { skipToken, useMutation, useQuery } from "@connectrpc/connect-query";
import { Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconRefresh } from "@tabler/icons-react";
import { type Delivery, DeliveryService } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason } from "../../../api/failure.ts";
import { useMay } from "../../../api/session.tsx";
import { useReadAnew } from "../../../api/use-read-anew.ts";
import { ConfirmDialog } from "../../../parts/dialogs/confirm-dialog.tsx";
import { useFocusBack } from "../../../parts/dialogs/use-focus-back.ts";
import { heldBackBy } from "../delivery/next-attempt.tsx";
import { ATTEMPTS_A_ROUND } from "../delivery/rounds.ts";
import { isFinal } from "../list/selection.ts";

/** Sends a delivery again that has come to an end, where its webhook is still there. */
export function SendAgain({ delivery }: { delivery: Delivery }) {
  const [opened, { open, close }] = useDisclosure();
  const mayWrite = useMay("Write_Administrative_Data");
  const readAnew = useReadAnew();
  const { mutateAsync: sendAgain } = useMutation(DeliveryService.method.sendAgain);
  // What was asked for takes the button away.
  useFocusBack(opened);
  const possible = mayWrite && isFinal(delivery);
  const webhook = useQuery(
    WebhookService.method.getWebhook,
    possible ? { webhookId: delivery.webhookId } : skipToken,
  );
  if (!possible) return null;
  if (failureReason(webhook.error) === "WEBHOOK_NOT_FOUND") {
    return (
      <Text size="sm" c="dimmed">
        The webhook was deleted, so this delivery cannot be sent again.
      </Text>
    );
  }

  async function run() {
    await sendAgain({ deliveryId: delivery.id });
    const { data } = await webhook.refetch();
    const held = data?.webhook && heldBackBy(data.webhook);
    const message = held ? `It waits ${held}` : "It will be sent with the next dispatch";
    notifications.show({ color: "green", message });
    await readAnew(DeliveryService);
  }

  const first = delivery.attemptCount + 1;
  return (
    <>
      <Button leftSection={<IconRefresh size={16} />} onClick={open}>
        Send again…
      </Button>
      <ConfirmDialog
        opened={opened}
        onClose={close}
        title="Send this delivery again?"
        confirm="Send again"
        onConfirm={run}
      >
        <Text size="sm" style={{ overflowWrap: "anywhere" }}>
          Delivery {delivery.id} to {delivery.url} starts a new round with the next dispatch: up to{" "}
          {ATTEMPTS_A_ROUND} more attempts, numbered from {first}, as before until one arrives.
        </Text>
        <Text size="sm" c="dimmed">
          The id stays the same: an endpoint that stores the X-Service-Webhook-Id of processed deliveries
          skips the repeat.
        </Text>
      </ConfirmDialog>
    </>
  );
}
