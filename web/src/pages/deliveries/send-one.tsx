import { callUnaryMethod, skipToken, useQuery, useTransport } from "@connectrpc/connect-query";
import { Button } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failureReason } from "../../api/failure.ts";
import { useReadAnew } from "../../api/queries.ts";
import { useMay } from "../../api/session.tsx";
import { DialogButton } from "../../parts/dialogs.tsx";
import { useFocusBack } from "../../parts/focus.ts";
import { Dimmed } from "../../parts/inline.tsx";
import { notifyDone, useAct } from "../../parts/save.ts";
import { ATTEMPTS_A_ROUND, heldBackBy } from "./delivery/results.tsx";
import { isFinal } from "./delivery-list.tsx";
import { SendFilteredDialog } from "./send-filtered.tsx";

/**
 * Sends a delivery again that has come to an end, where its webhook is still there. No question precedes it: the delivery
 * keeps its id, by which endpoints skip repeats.
 */
export function SendAgain({ delivery }: { delivery: Delivery }) {
  const mayWrite = useMay("Write_Administrative_Data");
  const transport = useTransport();
  const readAnew = useReadAnew();
  const act = useAct(`Delivery ${delivery.id.slice(-8)} was not sent again`, async () => {
    await callUnaryMethod(transport, DeliveryService.method.sendAgain, { deliveryId: delivery.id });
    const { data } = await webhook.refetch();
    const held = data?.webhook && heldBackBy(data.webhook);
    notifyDone(
      `Up to ${ATTEMPTS_A_ROUND} more attempts under the same id, numbered from ${delivery.attemptCount + 1}.`,
      held ? `It waits ${held}` : "It will be sent with the next dispatch",
    );
    await readAnew(DeliveryService);
  });
  // Success takes the button away.
  useFocusBack(act.loading);
  const possible = mayWrite && isFinal(delivery);
  const webhook = useQuery(
    WebhookService.method.getWebhook,
    possible ? { webhookId: delivery.webhookId } : skipToken,
  );
  if (!possible) return null;
  if (failureReason(webhook.error) === "WEBHOOK_NOT_FOUND") {
    return <Dimmed>The webhook was deleted, so this delivery cannot be sent again.</Dimmed>;
  }

  return (
    <>
      {delivery.state === DeliveryState.FAILED && <ReplaySince delivery={delivery} />}
      <Button leftSection={<IconRefresh size={16} />} {...act}>
        Send again
      </Button>
    </>
  );
}

const FAILED = [DeliveryState.FAILED];

/** Replays the webhook's failed deliveries from a failed one on, once that is confirmed. */
function ReplaySince({ delivery: { webhookId, created } }: { delivery: Delivery }) {
  const filter = { webhookId, states: FAILED, ...(created ? { from: created } : {}) };
  return (
    <DialogButton dialog={(dialog) => <SendFilteredDialog {...dialog} filter={filter} />}>
      Replay failed since this one…
    </DialogButton>
  );
}
