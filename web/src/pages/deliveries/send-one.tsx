import { skipToken, useMutation, useQuery } from "@connectrpc/connect-query";
import { Button, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { IconRefresh } from "@tabler/icons-react";
import { useState } from "react";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason } from "../../api/failure.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { notifyFailure } from "../../parts/failure.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { ATTEMPTS_A_ROUND, heldBackBy } from "./delivery/results.tsx";
import { isFinal } from "./delivery-list.tsx";
import { SendFilteredDialog } from "./send-filtered.tsx";

/**
 * Sends a delivery again that has come to an end, where its webhook is still there. No question precedes it: the delivery
 * keeps its id, by which endpoints skip repeats.
 */
export function SendAgain({ delivery }: { delivery: Delivery }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const readAnew = useReadAnew();
  const { mutateAsync: sendAgain } = useMutation(DeliveryService.method.sendAgain);
  const [isSending, setSending] = useState(false);
  // Success takes the button away.
  useFocusBack(isSending);
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
    setSending(true);
    try {
      await sendAgain({ deliveryId: delivery.id });
      const { data } = await webhook.refetch();
      const held = data?.webhook && heldBackBy(data.webhook);
      notifications.show({
        color: "green",
        title: held ? `It waits ${held}` : "It will be sent with the next dispatch",
        message: `Up to ${ATTEMPTS_A_ROUND} more attempts under the same id, numbered from ${delivery.attemptCount + 1}.`,
      });
      await readAnew(DeliveryService);
    } catch (error) {
      notifyFailure("The delivery is not sent again", error);
    } finally {
      setSending(false);
    }
  }

  return (
    <>
      {delivery.state === DeliveryState.FAILED && <ReplaySince delivery={delivery} />}
      <Button leftSection={<IconRefresh size={16} />} loading={isSending} onClick={() => void run()}>
        Send again
      </Button>
    </>
  );
}

const FAILED = [DeliveryState.FAILED];

/** Replays the webhook's failed deliveries from a failed one on, once that is confirmed. */
function ReplaySince({ delivery: { webhookId, created } }: { delivery: Delivery }) {
  const [opened, { open, close }] = useDisclosure();
  return (
    <>
      <Button variant="default" onClick={open}>
        Replay failed since this one…
      </Button>
      <SendFilteredDialog
        opened={opened}
        onClose={close}
        filter={{ webhookId, states: FAILED, ...(created ? { from: created } : {}) }}
      />
    </>
  );
}
