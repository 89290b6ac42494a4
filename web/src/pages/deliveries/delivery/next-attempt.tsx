import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import type { Delivery } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useLateness } from "../../../parts/status/next-retry.tsx";
import { OVERDUE_AFTER_MS, overdueFor, overdueInWords, waitingFor } from "../../../parts/status/overdue.ts";
import { Countdown } from "./countdown.tsx";

const REFRESH_MS = 5_000;

/** When a delivery is retried: `The last attempt failed; the next one is in 4:59.` Late ones, with the reason. */
export function NextAttempt({ delivery, due }: { delivery: Delivery; due: Timestamp }) {
  return useLateness(due) > OVERDUE_AFTER_MS ? (
    <>
      The last attempt failed. <Overdue delivery={delivery} due={due} />
    </>
  ) : (
    <>
      The last attempt failed; the next one is <Countdown until={due} />.
    </>
  );
}

/** The same in short, for a line of its own. */
export function NextAttemptDue({ due }: { due: Timestamp }) {
  const late = useLateness(due);
  return late > OVERDUE_AFTER_MS ? `Overdue by ${overdueFor(late)}` : <Countdown until={due} />;
}

/** `The retry is overdue by 3 min: waiting for shop.example, which does not answer; 698 retries overdue, oldest 16 min.` */
function Overdue({ delivery, due }: { delivery: Delivery; due: Timestamp }) {
  const late = useLateness(due);
  const { data } = useQuery(
    WebhookService.method.getWebhook,
    { webhookId: delivery.webhookId },
    { refetchInterval: REFRESH_MS },
  );
  const { webhook, overdueRetries } = data ?? {};
  const reason = webhook ? `: ${waitingFor(webhook)}` : "";
  const others = overdueRetries ? `; ${overdueInWords(overdueRetries, Date.now())}` : "";
  return `The retry is overdue by ${overdueFor(late)}${reason}${others}.`;
}
