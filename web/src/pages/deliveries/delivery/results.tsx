import { type Timestamp, timestampDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import statuses from "statuses";
import {
  type Attempt,
  type Delivery,
  DeliveryState,
  type Event,
  WaitingFor,
} from "../../../../../gen/webhook/v1/delivery_pb.ts";
import {
  CircuitBreakerState,
  type Webhook,
  WebhookService,
} from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { inUtc } from "../../../../../src/contract/time-in-words.ts";
import { useLive } from "../../../api/queries.ts";
import {
  OVERDUE_AFTER_MS,
  overdueFor,
  overdueInWords,
  useLateness,
  waitingFor,
} from "../../../parts/overdue.tsx";
import { isHeldBack } from "../../../parts/states.tsx";
import { capitalized } from "../../../parts/text/words.ts";
import { useNow } from "../../../parts/time.tsx";

/** The first attempt and up to three retries. */
export const ATTEMPTS_A_ROUND = 4;

/** The attempts of a round, in order. */
export interface Round {
  number: number;
  attempts: Attempt[];
}

/** The outcome of an attempt. */
interface Outcome {
  status?: number | undefined;
  error?: string | undefined;
}

/** Whether the receiver took it: a 2xx answer, complete in time. */
export function arrived({ status = 0, error }: Outcome): boolean {
  return status >= 200 && status <= 299 && error === undefined;
}

/**
 * Tells the rounds of a delivery apart. Where the current one begins is known; the others ended when the delivery
 * arrived, or with their last attempt.
 *
 * @returns oldest first; the last one has no attempts where it has only been asked for
 */
export function roundsOf(
  { roundStart }: Pick<Delivery, "roundStart">,
  attempts: readonly Attempt[],
): Round[] {
  const rounds: Round[] = [{ number: 1, attempts: [] }];
  let isOver = false;
  attempts.forEach((attempt, index) => {
    if (isOver || (index > 0 && index === roundStart))
      rounds.push({ number: rounds.length + 1, attempts: [] });
    const round = rounds.at(-1) as Round;
    round.attempts.push(attempt);
    isOver = arrived(attempt) || round.attempts.length === ATTEMPTS_A_ROUND;
  });
  if (roundStart > 0 && roundStart === attempts.length)
    rounds.push({ number: rounds.length + 1, attempts: [] });
  return rounds;
}

/** The reasons for a final state that say more than the state does. */
export const REASONS: Readonly<Record<string, string>> = {
  interrupted: "The worker crashed 10 times while sending this delivery.",
  "queue full": "Never sent: more deliveries waited for the webhook than MAX_PENDING_PER_WEBHOOK allows.",
  expired: "The delivery waited longer than RETENTION_DAYS, so no further attempt was made.",
  "webhook deleted": "The webhook was deleted first.",
  "payload erased": "The payload was erased first.",
};

/** The outcome of a delivery's latest attempt, or the reason why it ended without one. Undefined before the first. */
export function latestInWords({ status, error, reason }: Delivery): string | undefined {
  if (reason !== undefined) return capitalized(reason);
  return status === undefined && error === undefined ? undefined : resultInWords({ status, error });
}

/** The outcome of an attempt, in words: `503 Service Unavailable`. */
export function resultInWords(attempt: Outcome): string {
  const { status, error } = attempt;
  if (status === undefined) return capitalized(error ?? "no answer");
  const answer = `${status} ${statuses.message[status] ?? ""}`.trim();
  // Attempts of earlier releases have no text for redirects.
  const isRedirect = !arrived(attempt) && status >= 300 && status <= 399;
  const told = error ?? (isRedirect ? "redirects are not followed" : undefined);
  return told === undefined ? answer : `${answer}: ${told}`;
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;

/**
 * The text after "waits" for the deliveries of a webhook; undefined if they do not wait.
 *
 * @param due the time of a retry, for which a hold that ends earlier is no reason to wait
 */
export function heldBackBy(
  { paused, circuitBreaker, heldUntil }: Webhook,
  due?: Timestamp,
): string | undefined {
  if (paused) return "until the webhook is resumed";
  const state = circuitBreaker?.state;
  if (state === CircuitBreakerState.DISABLED) return "until the webhook is enabled";
  if (state === CircuitBreakerState.OPEN) return "for the circuit breaker";
  const isHeld = heldUntil && !(due && timestampMs(due) >= timestampMs(heldUntil));
  return isHeld ? "until the endpoint wants requests again" : undefined;
}

/** What a delivery waits for, after "waits". */
const WAITS: Partial<Record<WaitingFor, string>> = {
  [WaitingFor.RESUME]: "until the webhook is resumed",
  [WaitingFor.RECEIVER]: "until the endpoint wants requests again",
  [WaitingFor.RATE_LIMIT]: "for its turn under the rate limit of the webhook",
  [WaitingFor.HOST]: "for its turn: requests to the host time out, so that only a few are made at once",
};

/**
 * What a delivery waits for: its webhook is paused, its circuit breaker is open, its endpoint wants no requests or only some, or its host
 * does not answer. Undefined if nothing delays it, and for the first attempt of a test event, which is always made.
 */
export function useHeldBack(
  { state, webhookId, attemptCount, nextAttempt, waitingFor }: Delivery,
  event: Pick<Event, "test"> | undefined,
): ReactNode | undefined {
  const isOpen = state === DeliveryState.PENDING || state === DeliveryState.RETRYING;
  const isTest = event?.test && attemptCount === 0;
  const mayWait = isOpen && !isTest;
  const { data } = useLive(WebhookService.method.getWebhook, { webhookId }, REFRESH_MS, mayWait);
  const waits = isTest ? undefined : WAITS[waitingFor ?? WaitingFor.UNSPECIFIED];
  const webhook = mayWait ? data?.webhook : undefined;
  const held = webhook && heldBackBy(webhook, nextAttempt);
  if (!webhook || !held) return waits && `Waits ${waits}.`;
  const { paused, circuitBreaker, heldUntil } = webhook;
  const isProbed = !paused && circuitBreaker?.state === CircuitBreakerState.OPEN;
  const nextProbe = isProbed ? circuitBreaker.nextProbe : undefined;
  const isHold = !paused && !isHeldBack(webhook);
  return (
    <>
      Waits {held}
      {nextProbe && (
        <>
          ; next probe <Countdown until={nextProbe} />
        </>
      )}
      {isHold && heldUntil && (
        <>
          , <Countdown until={heldUntil} />
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
  const { data } = useLive(WebhookService.method.getWebhook, { webhookId: delivery.webhookId }, REFRESH_MS);
  const { webhook, overdueRetries } = data ?? {};
  const reason = webhook ? `: ${waitingFor(webhook)}` : "";
  const others = overdueRetries ? `; ${overdueInWords(overdueRetries, Date.now())}` : "";
  return `The retry is overdue by ${overdueFor(late)}${reason}${others}.`;
}

/** The time until a moment, updated every second: `in 4:59`. */
function Countdown({ until }: { until: Timestamp }) {
  const date = timestampDate(until);
  const seconds = Math.ceil((date.getTime() - useNow(1_000)) / 1_000);
  return (
    <Text
      component="time"
      inherit
      dateTime={date.toISOString()}
      title={inUtc(date)}
      ff="var(--mantine-font-family)"
      style={{ fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" }}
    >
      {seconds > 0 ? `in ${clock(seconds)}` : "any moment now"}
    </Text>
  );
}

function clock(seconds: number): string {
  const two = (part: number) => String(part).padStart(2, "0");
  const hours = Math.floor(seconds / 3_600);
  const minutes = Math.floor(seconds / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}
