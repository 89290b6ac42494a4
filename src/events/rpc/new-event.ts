import { hash } from "node:crypto";
import { type DescField, type DescMessage, isFieldSet, type Message, toBinary } from "@bufbuild/protobuf";
import { type PublishEventRequest, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { invalidFields } from "../../calls/errors/index.ts";
import { assertFields, assertText } from "../../calls/index.ts";
import { payloadFields, processOfField } from "../../contract/catalogue.ts";
import { sortableTime } from "../../contract/json/timestamp.ts";
import { jsonWriter } from "../../contract/json/writer.ts";
import { searchableValues } from "../../contract/searchable-values.ts";
import type { NewEvent } from "../publish.ts";

/** The maximum size of a payload as JSON, in bytes. */
const MAX_PAYLOAD_BYTES = 262_144;
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
  // Clients write the entries of a map in any order, and a repeated request must have the same hash.
  sortMaps(PublishEventRequestSchema, request);
  return {
    ...payloadOf(request, searchIndex),
    apiKeyId,
    idempotencyKey: request.idempotencyKey,
    requestSha256: hash("sha256", toBinary(PublishEventRequestSchema, request), "hex"),
    userId: request.userId,
    occurred: occurredAt(request),
    traceparent,
  };
}

/** Sorts the entries of each map in a message by key, at any depth. */
export function sortMaps(desc: DescMessage, message: Message): void {
  for (const field of desc.fields) {
    // Most fields are neither, and asking whether one is set takes longer than the rest.
    if (field.fieldKind !== "map" && !field.message) continue;
    if (!isFieldSet(message, field)) continue;
    const values = message as unknown as Record<string, object>;
    const { oneof, localName } = field;
    const value = oneof
      ? (values[oneof.localName] as { value: object }).value
      : (values[localName] as object);
    if (field.message) {
      const messages = field.fieldKind === "message" ? [value] : Object.values(value);
      for (const each of messages) sortMaps(field.message, each as Message);
    }
    if (field.fieldKind === "map") {
      const entries = Object.entries(value).sort(([first], [second]) => (first < second ? -1 : 1));
      values[localName] = Object.fromEntries(entries);
    }
  }
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

const dataFields = new Map<string | undefined, DescField>(
  PublishEventRequestSchema.fields
    .filter((field) => field.oneof?.name === "data")
    .map((field) => [field.localName, field]),
);

/** The event's process, the body that its receivers get, and the values that it is found by. */
function payloadOf(
  request: PublishEventRequest,
  searchIndex: boolean,
): Pick<NewEvent, "process" | "payload" | "searchable"> {
  const field = dataFields.get(request.data.case);
  const process = field && processOfField(field.name);
  if (field?.fieldKind !== "message" || process === undefined) {
    throw invalidFields([
      { field: "data", description: `is required: set one of: ${payloadFields.join(", ")}` },
    ]);
  }
  const payload = writePayload(field.name, () =>
    jsonWriter(field.message, "payload")(request.data.value as never),
  );
  const bytes = Buffer.byteLength(payload);
  if (bytes > MAX_PAYLOAD_BYTES) {
    throw invalidFields([
      {
        field: field.name,
        description: `is ${bytes} bytes as JSON, more than the ${MAX_PAYLOAD_BYTES} allowed`,
      },
    ]);
  }
  const values = searchIndex ? searchableValues(field.message, request.data.value as Message) : [];
  return { process, payload, ...(values.length > 0 ? { searchable: values } : {}) };
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
