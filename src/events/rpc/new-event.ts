import { hash } from "node:crypto";
import { toBinary } from "@bufbuild/protobuf";
import { type PublishEventRequest, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { invalidFields } from "../../calls/errors/index.ts";
import { assertFields, assertText } from "../../calls/index.ts";
import { sortableTime } from "../../contract/json/timestamp.ts";
import { jsonWriter } from "../../contract/json/writer.ts";
import { searchableValues } from "../../contract/searchable-values.ts";
import type { NewEvent } from "../publish.ts";
import { MAX_PAYLOAD_BYTES, payloadTooLarge } from "./event-bytes.ts";
import { type SentEvent, sentEvent } from "./sent-event.ts";

/** The maximum length of an idempotency key, in characters. */
const MAX_KEY_CHARACTERS = 255;
/** The maximum length of a user id, in characters. */
export const MAX_USER_ID_CHARACTERS = 128;
/** A user id as it must be. */
const ALLOWED_USER_ID = new RegExp(`^[\\x21-\\x7e]{1,${MAX_USER_ID_CHARACTERS}}$`);
/** The characters allowed in a user id, for errors. */
const USER_ID_ALLOWED = "visible ASCII characters (no spaces)";

/**
 * Converts a publish request for storage.
 *
 * @param searchIndex whether searchable values of the payload are stored for searches
 * @throws DomainError INVALID_ARGUMENT with the remedy
 */
export function newEvent(
  apiKeyId: string,
  request: PublishEventRequest,
  searchIndex: boolean,
  traceparent: string | null = null,
): NewEvent {
  assertFields(PublishEventRequestSchema, request);
  assertText("idempotency_key", request.idempotencyKey, MAX_KEY_CHARACTERS);
  assertUserId(request.userId);
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

/** Checks the user id. Errors never repeat it, because it may be personal data. */
function assertUserId(userId: string): void {
  if (ALLOWED_USER_ID.test(userId)) return;
  const problems: string[] = [];
  const { length } = [...userId];
  if (length > MAX_USER_ID_CHARACTERS) problems.push(`has ${length} characters`);
  const place = [...userId].findIndex((character) => !/^[\x21-\x7e]$/.test(character));
  if (place >= 0) problems.push(`has ${kindOf([...userId][place] as string)} as character ${place + 1}`);
  if (problems.length === 0) return;
  throw invalidFields([
    {
      field: "user_id",
      description: `${problems.join(" and ")}; allowed: 1 to ${MAX_USER_ID_CHARACTERS} ${USER_ID_ALLOWED}`,
    },
  ]);
}

function kindOf(character: string): string {
  if (character === " ") return "a space";
  return /^\p{Cc}$/u.test(character) ? "a control character" : "a character outside ASCII";
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
