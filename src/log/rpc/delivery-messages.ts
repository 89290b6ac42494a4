import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import {
  type AttemptSchema,
  type DeliveryRequestSchema,
  type DeliverySchema,
  type EventSchema,
  type WaitingFor,
  WaitingForSchema,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import type { Scope } from "../../calls/index.ts";
import { isNotice, processName } from "../../contract/catalogue.ts";
import { deliveryHeaders } from "../../contract/delivery-headers.ts";
import { numbersOf } from "../../contract/enum-numbers.ts";
import { present, timestampOf } from "../../contract/present.ts";
import { timingOf } from "../../contract/request-timing.ts";
import { subjectOf } from "../../contract/subject.ts";
import type { EventFacts, Subjects } from "../../events/index.ts";
import { failureCause } from "../../incidents/index.ts";
import { timeOfId } from "../../schema/index.ts";
import { type Sign, UnopenableError } from "../../webhooks/index.ts";
import type { AttemptRow, DeliveryRow, SentRequest } from "../deliveries.ts";
import type { WaitingFor as WaitingForName } from "../waiting-for.ts";
import { STATE_NUMBERS } from "./delivery-filter.ts";

const WAITING_NUMBERS: Record<WaitingForName, WaitingFor> = numbersOf(WaitingForSchema);

/** @param waitingFor as readWaitingFor returns it. Defaults to leaving it out */
export function deliveryMessage(
  row: DeliveryRow,
  subjects: Subjects,
  waitingFor?: (row: DeliveryRow) => WaitingForName | undefined,
): MessageInitShape<typeof DeliverySchema> {
  const { last } = row;
  const waits = waitingFor?.(row);
  return present({
    id: row.id,
    eventId: row.eventId,
    webhookId: row.webhookId,
    webhookProcess: row.process as WebhookProcess,
    webhookProcessName: processName(row.process),
    url: row.url,
    state: STATE_NUMBERS[row.state],
    attemptCount: row.attempts,
    roundStart: row.roundStart,
    created: timestampFromDate(row.created),
    nextAttempt: timestampOf(row.retryAt),
    finished: timestampOf(row.finished),
    reason: row.reason,
    subject: subjects.get(row.eventId),
    customer: row.customer,
    webhookName: row.name,
    durationMs: last?.durationMs,
    status: last?.status,
    error: last?.error || null,
    waitingFor: waits && WAITING_NUMBERS[waits],
  });
}

/** @param payload the event's; null if erased */
export function eventMessage(
  event: EventFacts,
  payload: string | null,
  scope: Scope,
): MessageInitShape<typeof EventSchema> {
  return present({
    id: event.id,
    process: event.process as WebhookProcess,
    webhookProcessName: processName(event.process),
    userId: event.userId,
    time: timestampFromDate(event.occurred),
    published: timestampFromDate(timeOfId(event.id)),
    test: event.test,
    erased: payload === null,
    subject: subjectOf(event.process, payload),
    ...(scope === "everything" ? publisherFields(event) : {}),
  });
}

/** Events belong to the whole service, so apps do not see who published them. Nobody published a notice. */
function publisherFields(event: EventFacts) {
  if (isNotice(event.process) && !event.test) return {};
  const { apiKeyId, apiKeyName, idempotencyKey } = event;
  return present({ apiKeyId, apiKeyName, idempotencyKey: event.test ? null : idempotencyKey });
}

export function requestMessage({
  facts,
  payload,
}: SentRequest): MessageInitShape<typeof DeliveryRequestSchema> {
  const headers = headersOf([...deliveryHeaders(facts), "webhook-id", facts.id]);
  return { headers, body: payload ?? "", erased: payload === null };
}

type Headers = { name: string; value: string }[];

/** @param parts names and values in turn */
function headersOf(parts: readonly string[]): Headers {
  const headers: Headers = [];
  for (let at = 0; at < parts.length; at += 2) {
    headers.push({ name: parts[at] as string, value: parts[at + 1] as string });
  }
  return headers;
}

/** @param sent the delivery's request; null if its event is not stored any more */
export function attemptMessage(
  row: AttemptRow,
  sent: SentRequest | null,
  sign: Sign,
): MessageInitShape<typeof AttemptSchema> {
  return present({
    number: row.number,
    started: timestampFromDate(row.started),
    durationMs: row.durationMs,
    status: row.status,
    error: row.error,
    responseStart: row.responseStart,
    ...signatureFields(row, sent, sign),
    responseHeaders: headersOf(row.responseHeaders),
    timing: row.timing && timingOf(row.timing),
    cause: hasFailed(row) ? failureCause(row.status, row.error) : null,
  });
}

const hasFailed = ({ status }: AttemptRow) => status === null || status < 200 || status > 299;

/** The signature headers that an attempt sent: stored for failed ones, recomputed for others. */
function signatureFields(
  { started, status, signature }: AttemptRow,
  sent: SentRequest | null,
  sign: Sign,
): { signatureHeaders?: Headers; signatureRecomputed?: true } {
  const timestamp = ["webhook-timestamp", String(Math.floor(started.getTime() / 1_000))];
  if (signature !== null) {
    return { signatureHeaders: headersOf([...timestamp, "webhook-signature", signature]) };
  }
  // Nothing was sent.
  if (status === null) return {};
  const recomputed = sent && recompute(sent, started, sign);
  if (!recomputed) return { signatureHeaders: headersOf(timestamp) };
  return {
    signatureHeaders: headersOf([...timestamp, "webhook-signature", recomputed]),
    signatureRecomputed: true,
  };
}

function recompute({ facts, payload, secrets }: SentRequest, at: Date, sign: Sign): string | null {
  if (payload === null || secrets.length === 0) return null;
  try {
    return sign(secrets, facts.id, at, payload)["webhook-signature"];
  } catch (error) {
    if (error instanceof UnopenableError) return null;
    throw error;
  }
}
