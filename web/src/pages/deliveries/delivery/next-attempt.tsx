import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { useQuery } from "@connectrpc/connect-query";
import type { ReactNode } from "react";
import { type Delivery, DeliveryState, type Event } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import {
  CircuitBreakerState,
  type Webhook,
  WebhookService,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { useLateness } from "../../../parts/status/next-retry.tsx";
import { OVERDUE_AFTER_MS, overdueFor, overdueInWords, waitingFor } from "../../../parts/status/overdue.ts";
import { Countdown } from "./countdown.tsx";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;

/** The text after "waits" for the deliveries of a webhook; undefined if they do not wait. */
export function heldBackBy({ paused, circuitBreaker }: Webhook): string | undefined {
  if (paused) return "until the webhook is resumed";
  switch (circuitBreaker?.state) {
    case CircuitBreakerState.DISABLED:
      return "until the webhook is enabled";
    case CircuitBreakerState.OPEN:
      return "for the circuit breaker";
    default:
      return undefined;
  }
}

/**
 * The reason why a delivery is held back: its webhook is paused, or its circuit breaker is open. Undefined if nothing
 * does, and for the first attempt of a test event, which is always made.
 */
export function useHeldBack(
  { state, webhookId, attemptCount }: Delivery,
  event: Pick<Event, "test"> | undefined,
): ReactNode | undefined {
  const isOpen = state === DeliveryState.PENDING || state === DeliveryState.RETRYING;
  const mayWait = isOpen && !(event?.test && attemptCount === 0);
  const { data } = useQuery(
    WebhookService.method.getWebhook,
    { webhookId },
    { enabled: mayWait, refetchInterval: REFRESH_MS },
  );
  if (!mayWait || !data?.webhook) return undefined;
  const held = heldBackBy(data.webhook);
  if (!held) return undefined;
  const { paused, circuitBreaker } = data.webhook;
  const isProbed = !paused && circuitBreaker?.state === CircuitBreakerState.OPEN;
  const nextProbe = isProbed ? circuitBreaker.nextProbe : undefined;
  return (
    <>
      Waits {held}
      {nextProbe && (
        <>
          ; next probe <Countdown until={nextProbe} />
        </>
      )}
      .
    </>
  );
}

/** The time of a delivery's retry: `The last attempt failed; the next one is in 4:59.` Late ones, with the reason. */
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

/** The same in short, for a separate line. */
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
