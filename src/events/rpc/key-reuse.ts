import { isDeepStrictEqual } from "node:util";
import type { DescMessage } from "@bufbuild/protobuf";
import { LONG_WORK_BYTES, longTurn } from "../../calls/index.ts";
import { eventType } from "../../contract/catalogue.ts";
import { DomainError } from "../../contract/errors.ts";
import { type ExactJson, parseExactJson } from "../../contract/json/exact-json.ts";
import { propertyName } from "../../contract/json/names.ts";
import { type Db, gathering } from "../../lib/pg/index.ts";
import { findEvents, type StoredEvent } from "../find.ts";
import type { NewEvent } from "../publish.ts";

/** The number of events read per query, each with a payload of up to 256 KiB. */
const MAX_EVENTS_PER_QUERY = 20;
/** The maximum number of differing fields named in a message. */
const MAX_NAMED_FIELDS = 3;
/** The maximum number of differing fields listed in the metadata. gRPC sends it in trailers, whose size is limited. */
const MAX_LISTED_FIELDS = 20;

/** Creates the error for an event whose idempotency key was already used for a different event. */
export type KeyReuse = (event: NewEvent, firstEventId: string) => Promise<DomainError>;

/** Compares rejected events with the stored first ones, and names the differing fields, never their values. */
export function createKeyReuse(db: Db): KeyReuse {
  const find = gathering(
    async (ids: readonly string[]) => {
      const found = new Map((await findEvents(db, ids)).map((event) => [event.id, event]));
      return ids.map((id) => found.get(id));
    },
    { most: MAX_EVENTS_PER_QUERY, atOnce: 1 },
  );
  return async (event, firstEventId) => {
    const first = await find(firstEventId);
    if (first && event.payload.length >= LONG_WORK_BYTES) await longTurn(event.apiKeyId);
    const fields = first ? differences(first, event) : [];
    return new DomainError(
      "IDEMPOTENCY_KEY_REUSED",
      `idempotency_key was already used for a different event, ${firstEventId}${inWords(first, fields)}; use a new key for a new event`,
      {
        metadata: { event_id: firstEventId, ...(fields.length > 0 ? { fields: listed(fields) } : {}) },
      },
    );
  };
}

/** For programs: the first fields, and "…" if there are more. */
function listed(fields: readonly string[]): string {
  const more = fields.length > MAX_LISTED_FIELDS ? ["…"] : [];
  return [...fields.slice(0, MAX_LISTED_FIELDS), ...more].join(",");
}

function inWords(first: StoredEvent | undefined, fields: readonly string[]): string {
  if (!first) return ", which is no longer stored";
  const erased = first.payload === null ? "; its payload is erased and was not compared" : "";
  if (fields.length > 0) {
    const more = fields.length > MAX_NAMED_FIELDS ? ` and ${fields.length - MAX_NAMED_FIELDS} more` : "";
    return `: they differ in ${fields.slice(0, MAX_NAMED_FIELDS).join(", ")}${more}${erased}`;
  }
  return erased || ": they differ in time, or in fractions of a second";
}

/** The differing fields, by their paths in PublishEventRequest. */
function differences(first: StoredEvent, event: NewEvent): string[] {
  const found: string[] = [];
  if (first.userId !== event.userId) found.push("user_id");
  // Without a time, a request means the time of publishing, which differs each time.
  if (event.occurred !== null && first.occurred !== event.occurred) found.push("time");
  if (first.process !== event.process) return [...found, "data"];
  const entry = eventType(event.process);
  if (entry && first.payload !== null) {
    compare(
      entry.payload,
      event.path ?? "data",
      parseExactJson(first.payload),
      parseExactJson(event.payload),
      found,
    );
  }
  return found;
}

/** @param path the path of the message that both JSON values represent */
function compare(
  desc: DescMessage,
  path: string,
  first: ExactJson | undefined,
  second: ExactJson | undefined,
  found: string[],
): void {
  if (!isObject(first) || !isObject(second) || desc.typeName.startsWith("google.protobuf.")) {
    found.push(path);
    return;
  }
  for (const field of desc.fields) {
    const name = propertyName(field);
    // Earlier versions of the service did not write fields unknown to them.
    const [before, now] = [first[name] ?? null, second[name] ?? null];
    if (isDeepStrictEqual(before, now)) continue;
    const at = `${path}.${field.name}`;
    if (field.fieldKind === "message") compare(field.message, at, before, now, found);
    else if (
      field.fieldKind === "list" &&
      field.listKind === "message" &&
      Array.isArray(before) &&
      Array.isArray(now) &&
      before.length === now.length
    ) {
      for (const [index, item] of now.entries()) {
        if (!isDeepStrictEqual(before[index], item))
          compare(field.message, `${at}[${index}]`, before[index], item, found);
      }
    } else found.push(at);
  }
}

function isObject(value: ExactJson | undefined): value is { [name: string]: ExactJson } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
