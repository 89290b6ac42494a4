import { hash } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import { type PublishEventRequest, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { invalidFields } from "../../calls/errors/index.ts";
import { type ApiKeyRow, assertFields, assertText, assertUserId } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { sortableTime } from "../../contract/json/timestamp.ts";
import { jsonWriter } from "../../contract/json/writer.ts";
import { searchableValues } from "../../contract/searchable-values.ts";
import type { NewEvent } from "../publish.ts";
import { MAX_PAYLOAD_BYTES, payloadTooLarge } from "./event-bytes.ts";
import { type SentEvent, sentEvent } from "./sent-event.ts";

/** The maximum length of an idempotency key, in characters. */
const MAX_KEY_CHARACTERS = 255;

/**
 * Converts a publish request for storage.
 *
 * @param searchIndex whether searchable values of the payload are stored for searches
 * @throws DomainError INVALID_ARGUMENT with the remedy; PERMISSION_DENIED if the key belongs to another customer
 */
export function newEvent(
  { id: apiKeyId, customer }: Pick<ApiKeyRow, "id" | "customer">,
  request: PublishEventRequest,
  searchIndex: boolean,
  traceparent: string | null = null,
): NewEvent {
  assertFields(PublishEventRequestSchema, request);
  assertText("idempotency_key", request.idempotencyKey, MAX_KEY_CHARACTERS);
  assertUserId("user_id", request.userId);
  if (customer !== null && customer !== request.userId) throw notOwnUser();
  return {
    ...payloadOf(sentEvent(request), searchIndex),
    apiKeyId,
    idempotencyKey: request.idempotencyKey,
    requestSha256: hash("sha256", toBinary(PublishEventRequestSchema, request), "hex"),
    userId: request.userId,
    occurred: occurredAt(request),
    traceparent,
  };
}

/** The same for user ids of other customers and for those of nobody. */
function notOwnUser(): DomainError {
  return new DomainError(
    "NOT_ALLOWED",
    "user_id: the API key belongs to a customer, and publishes events of this customer only; send its user_id",
  );
}

/** The event's process, the body that its receivers get, and the values that it is found by. */
function payloadOf(
  { entry, payload: message, path }: SentEvent,
  searchIndex: boolean,
): Pick<NewEvent, "process" | "payload" | "path" | "searchable"> {
  const payload = writePayload(path, () => jsonWriter(entry.payload, "payload")(message as never));
  const bytes = Buffer.byteLength(payload);
  if (bytes > MAX_PAYLOAD_BYTES) throw payloadTooLarge(path, bytes);
  const values = searchIndex ? searchableValues(entry.payload, message) : [];
  return { process: entry.number, payload, path, ...(values.length > 0 ? { searchable: values } : {}) };
}

function writePayload(field: string, write: () => string): string {
  try {
    return write();
  } catch (error) {
    if (error instanceof RangeError)
      throw invalidFields([{ field, description: `cannot be sent: ${error.message}` }]);
    throw error;
  }
}

/** The time in microseconds, the precision of the database. */
function occurredAt({ time }: PublishEventRequest): string | null {
  return time ? `${sortableTime(time)}.${String(time.nanos).padStart(9, "0").slice(0, 6)}Z` : null;
}
