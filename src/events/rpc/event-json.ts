import {
  type DescField,
  type DescMessage,
  fromJson,
  fromJsonString,
  type JsonValue,
  type Message,
} from "@bufbuild/protobuf";
import { aboutField, invalidField, plainJsonMessage, withoutExcerpt } from "../../calls/errors/index.ts";
import { elements } from "../../calls/index.ts";
import { exactText, fieldsByJsonName, timeProblem } from "../../contract/json/exact-text.ts";
import { TIMESTAMP } from "../../contract/json/field-types.ts";
import { leastJsonBytes, MAX_NESTING, MAX_PAYLOAD_BYTES, payloadTooLarge } from "./event-bytes.ts";

/** The maximum length of a name that an error repeats, in characters. */
const MAX_SHOWN_NAME = 100;

/**
 * Reads a payload by Protobuf's JSON mapping.
 *
 * @param path the path of the payload in the request
 * @throws DomainError INVALID_ARGUMENT with the path of what does not fit
 */
export function readPayloadJson(desc: DescMessage, text: string, path: string): Message {
  elements.checkJsonNesting(Buffer.from(text), MAX_NESTING, path);
  // Before it is decoded, which takes time and memory for each field of each message, also for fields that are not set.
  checkJson(desc, parsed(text, path), { path, jsonBytes: 0 });
  try {
    return fromJsonString(desc, exactText(desc, text));
  } catch (error) {
    checkJson(desc, parsed(text, path, exactly), { path, jsonBytes: 0, values: true });
    // Of a name that occurs twice, the last value counts for the check of values.
    throw invalidField(path, `does not fit: ${plainJsonMessage((error as Error).message, desc)}`);
  }
}

type Reviver = Parameters<typeof JSON.parse>[1];

/** Keeps integers that a double cannot represent as texts, as which the library takes them, too. */
const exactly = ((_name: string, value: JsonValue, { source = "" }: { source?: string }) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d{1,20}$/.test(source)
    ? source
    : value) as Reviver;

function parsed(text: string, path: string, reviver?: Reviver): JsonValue {
  try {
    return JSON.parse(text, reviver);
  } catch (error) {
    throw invalidField(path, `is not valid JSON: ${withoutExcerpt((error as Error).message)}`);
  }
}

interface Checking {
  /** The path of the payload. */
  path: string;
  /** The minimum size of the payload as receivers get it, in bytes. */
  jsonBytes: number;
  /** Whether values are checked, too. */
  values?: boolean;
}

/** Finds what the library would report without its path: a name that a message does not have, and a value that does not fit. */
function checkJson(desc: DescMessage, json: JsonValue, checking: Checking, path = checking.path): void {
  if (typeof json !== "object" || json === null || Array.isArray(json))
    throw invalidField(path, "must be an object");
  checking.jsonBytes += leastJsonBytes(desc);
  if (checking.jsonBytes > MAX_PAYLOAD_BYTES) throw payloadTooLarge(checking.path);
  const fields = fieldsByJsonName(desc);
  for (const [name, value] of Object.entries(json)) {
    const field = fields.get(name);
    if (!field) {
      const allowed = desc.fields.map(({ jsonName }) => jsonName).join(", ") || "none";
      const shown = name.length > MAX_SHOWN_NAME ? `${name.slice(0, MAX_SHOWN_NAME)}…` : name;
      throw invalidField(`${path}.${shown}`, `is no field of ${desc.typeName}; allowed: ${allowed}`);
    }
    if (value === null) continue;
    const at = `${path}.${field.name}`;
    const messages =
      field.message && field.message.typeName !== TIMESTAMP ? messagesIn(field, value) : undefined;
    if (messages) {
      for (const [place, each] of messages)
        checkJson(field.message as DescMessage, each, checking, at + place);
    } else if (checking.values) checkValue(desc, field, value, at);
  }
}

/** The messages in the value of a field, each with its place in it; undefined if the value is not of the field's kind. */
function messagesIn(field: DescField, value: JsonValue): [string, JsonValue][] | undefined {
  if (field.fieldKind === "list")
    return Array.isArray(value) ? value.map((item, index) => [`[${index}]`, item]) : undefined;
  if (field.fieldKind !== "map") return [["", value]];
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  return Object.entries(value).map(([key, each]) => [`[${JSON.stringify(key)}]`, each]);
}

function checkValue(desc: DescMessage, field: DescField, value: JsonValue, path: string): void {
  if (field.message) {
    const times = typeof value === "object" && value !== null ? Object.values(value) : [value];
    for (const time of times) {
      const problem = typeof time === "string" ? timeProblem(time) : undefined;
      if (problem) throw invalidField(path, problem);
    }
  }
  try {
    fromJson(desc, { [field.name]: value });
  } catch (error) {
    const reason = (error as Error).message.replace(/^cannot decode .*? from JSON: /s, "");
    throw invalidField(path, aboutField(field, reason));
  }
}
