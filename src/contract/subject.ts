import type { DescMessage } from "@bufbuild/protobuf";
import { searchable } from "../../gen/webhook/v1/options_pb.ts";
import { eventType } from "./catalogue.ts";
import { parseExactJson } from "./json/exact-json.ts";
import { isMarked } from "./json/field-types.ts";
import { propertyName } from "./json/names.ts";

/** The maximum length of a subject, in characters. A search text has the same limit. Lists of 1,000 stay small. */
const MAX_SUBJECT_CHARACTERS = 300;

const properties = new WeakMap<DescMessage, string[]>();

/** The searchable properties of an event type's payload. */
function propertiesOf(process: number): string[] {
  const payload = eventType(process)?.payload;
  if (!payload) return [];
  return properties.getOrInsertComputed(payload, () =>
    payload.fields.filter((field) => isMarked(field, searchable)).map(propertyName),
  );
}

/**
 * The first searchable value of a payload, at most MAX_SUBJECT_CHARACTERS long; undefined if it has none. The payload of a test
 * event is any JSON object, whose values need not have the types of the event type, and may be nested too deeply for the parser
 * of large integers.
 *
 * @param process the number of its event type
 */
export function subjectOf(process: number, payload: string | null): string | undefined {
  const names = propertiesOf(process);
  if (payload === null || names.length === 0) return undefined;
  const values = parsed(payload);
  for (const name of names) {
    const [value] = [values[name]].flat();
    // JSON may contain half of a surrogate pair, which clients reject in a message.
    if (typeof value === "string" && value !== "") return limited(value.toWellFormed());
    if (typeof value === "number" || typeof value === "bigint") return limited(String(value));
  }
  return undefined;
}

function limited(text: string): string {
  // Each character has at most two units; so many units show whether there are too many characters.
  const characters = [...text.slice(0, 2 * (MAX_SUBJECT_CHARACTERS + 1))];
  if (characters.length <= MAX_SUBJECT_CHARACTERS) return text;
  return `${characters.slice(0, MAX_SUBJECT_CHARACTERS - 1).join("")}…`;
}

/** The properties of a payload; none if the payload cannot be parsed. */
function parsed(payload: string): Record<string, unknown> {
  try {
    return parseExactJson(payload) as Record<string, unknown>;
  } catch {
    return {};
  }
}
