import { Code, ConnectError, type Transport } from "@connectrpc/connect";
import { callUnaryMethod, useMutation, useTransport } from "@connectrpc/connect-query";
import { List, Text } from "@mantine/core";
import { useRef } from "react";
import { type Delivery, DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failureInWords } from "../../api/failure.ts";
import { useReadAnew } from "../../api/queries.ts";
import { ConfirmDialog, type DialogProps } from "../../parts/dialogs.tsx";
import { notifyDone } from "../../parts/save.ts";
import { countOf } from "../../parts/text/words.ts";
import { heldBackBy } from "./delivery/results.tsx";

const MAX_NAMED = 5;
/** Refusals of one delivery, with a message that names it. Others can still be sent. */
const OF_ONE: ReadonlySet<Code> = new Set([Code.NotFound, Code.FailedPrecondition]);

/** The deliveries to send again. */
export interface SendSelectedDialogProps extends DialogProps {
  deliveries: readonly Delivery[];
  /** Called when some are sent and the dialog closes. */
  onDone: () => void;
}

/** Asks before ticked deliveries are sent again, names them, and sends them. */
export function SendSelectedDialog({ opened, onClose, deliveries, onDone }: SendSelectedDialogProps) {
  const { mutateAsync: sendAgain } = useMutation(DeliveryService.method.sendAgain);
  const transport = useTransport();
  const readAnew = useReadAnew();
  // While the dialog is open, trying again sends nothing twice. A delivery that fails later may be sent again.
  const sent = useRef(new Set<string>());
  const named = deliveries.slice(0, MAX_NAMED);
  const count = countOf(deliveries.length, "delivery", "deliveries");

  async function run() {
    const refused: ConnectError[] = [];
    try {
      for (const { id } of deliveries) {
        if (sent.current.has(id)) continue;
        try {
          await sendAgain({ deliveryId: id });
          sent.current.add(id);
        } catch (error) {
          const refusal = ConnectError.from(error);
          if (!OF_ONE.has(refusal.code)) throw error;
          refused.push(refusal);
        }
      }
    } finally {
      void readAnew(DeliveryService);
    }
    const sentAgain = deliveries.filter(({ id }) => sent.current.has(id));
    const message = await sentInWords(transport, sentAgain);
    if (refused[0]) throw new ConnectError(`${message} ${refusedInWords(refused)}`.trim(), refused[0].code);
    notifyDone(message);
  }

  function close() {
    // Those sent would be ticked again once they have ended.
    if (sent.current.size > 0) onDone();
    sent.current.clear();
    onClose();
  }

  return (
    <ConfirmDialog
      opened={opened}
      onClose={close}
      title={`Send ${count} again?`}
      confirm={`Send ${count} again`}
      ready={deliveries.length > 0}
      onConfirm={run}
    >
      <Text size="sm">
        Each starts a new round: up to four more attempts under the same id, with the next dispatch.
        Deliveries of paused webhooks wait.
      </Text>
      <List size="sm" spacing="xs">
        {named.map(({ id, url }) => (
          <List.Item key={id} style={{ overflowWrap: "anywhere" }}>
            <Text span size="xs" ff="monospace">
              {id}
            </Text>{" "}
            to {url}
          </List.Item>
        ))}
        {deliveries.length > MAX_NAMED && (
          <List.Item>and {countOf(deliveries.length - MAX_NAMED, "other", "others")}</List.Item>
        )}
      </List>
    </ConfirmDialog>
  );
}

/** `1 delivery will be sent with the next dispatch. 2 deliveries wait until the webhook is resumed.` */
async function sentInWords(transport: Transport, deliveries: readonly Delivery[]): Promise<string> {
  const held = new Map<bigint, string | undefined>();
  for (const { webhookId } of deliveries) {
    if (held.has(webhookId)) continue;
    // The deliveries are sent, even if nobody can say when.
    const read = await callUnaryMethod(transport, WebhookService.method.getWebhook, { webhookId }).catch(
      () => undefined,
    );
    held.set(webhookId, read?.webhook && heldBackBy(read.webhook));
  }
  const sentences = [...new Set(held.values())].map((reason) => {
    const { length } = deliveries.filter(({ webhookId }) => held.get(webhookId) === reason);
    const effect = reason
      ? `${length === 1 ? "waits" : "wait"} ${reason}`
      : "will be sent with the next dispatch";
    return `${countOf(length, "delivery", "deliveries")} ${effect}.`;
  });
  return sentences.join(" ");
}

/** @param refused each with a message that names its delivery */
function refusedInWords(refused: readonly ConnectError[]): string {
  const others = refused.length - MAX_NAMED;
  return [
    `${countOf(refused.length, "delivery", "deliveries")} cannot be sent again.`,
    ...refused.slice(0, MAX_NAMED).map((refusal) => failureInWords(refusal).text),
    ...(others > 0 ? [`And ${countOf(others, "other", "others")}.`] : []),
  ].join(" ");
}
