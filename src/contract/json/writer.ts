import type { DescEnum, DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { Edition, type Timestamp } from "@bufbuild/protobuf/wkt";
import { rest_omitted } from "../../../gen/webhook/v1/options_pb.ts";
import { assertJsonField, isMarked, TIMESTAMP } from "./field-types.ts";
import { assertDistinct, enumChoices, enumMemberName, propertyName } from "./names.ts";
import { scalarWriter, type WriteValue } from "./scalars.ts";
import { sortableTime } from "./timestamp.ts";

/** Serializes a message as JSON. */
export type JsonWriter<Desc extends DescMessage> = (message: MessageShape<Desc>) => string;

/**
 * The reader of the JSON: receivers of payloads, or REST callers, for whom fields marked `rest_omitted` are omitted.
 */
export type JsonAudience = "payload" | "rest";

const compiled: Record<JsonAudience, WeakMap<DescMessage, WriteValue>> = {
  payload: new WeakMap(),
  rest: new WeakMap(),
};

/**
 * The JSON serializer of a message type: PascalCase names in proto order, enums by name, times as
 * `YYYY-MM-DDThh:mm:ss`, 64-bit integers as exact numbers, bytes as base64, null for unset fields.
 *
 * Compiled once per type, because publishing uses it. Throws a RangeError for values that JSON cannot represent:
 * non-finite numbers, times outside the years 0001 to 9999 and, in payloads, enum numbers without a name.
 *
 * @throws Error if two fields of the type have the same name, or one has a type that `assertJsonField` rejects
 */
export function jsonWriter<Desc extends DescMessage>(desc: Desc, audience: JsonAudience): JsonWriter<Desc> {
  return messageWriter(desc, audience) as JsonWriter<Desc>;
}

function messageWriter(desc: DescMessage, audience: JsonAudience): WriteValue {
  if (desc.typeName === TIMESTAMP) return (value) => `"${sortableTime(value as Timestamp)}"`;
  const writers = compiled[audience];
  const known = writers.get(desc);
  if (known) return known;
  // A placeholder while the fields are processed, so that types may be recursive.
  writers.set(desc, (message) => messageWriter(desc, audience)(message));
  try {
    const write = fieldsWriter(desc, audience);
    writers.set(desc, write);
    return write;
  } catch (error) {
    writers.delete(desc);
    throw error;
  }
}

/** The fields of a message for an audience, in proto order. */
export function fieldsFor(desc: DescMessage, audience: JsonAudience): DescField[] {
  return desc.fields.filter((field) => audience === "payload" || !isMarked(field, rest_omitted));
}

function fieldsWriter(desc: DescMessage, audience: JsonAudience): WriteValue {
  const fields = fieldsFor(desc, audience);
  for (const field of fields) assertJsonField(field);
  assertDistinct(
    desc.typeName,
    fields.map((field) => ({ proto: field.name, json: propertyName(field) })),
  );
  const steps = fields.map((field, index) => ({
    start: `${index === 0 ? "{" : ","}"${propertyName(field)}":`,
    read: fieldReader(field),
    write: fieldWriter(field, audience),
  }));
  if (steps.length === 0) return () => "{}";
  return (message) => {
    let json = "";
    for (const step of steps) {
      const value = step.read(message as Message & Record<string, unknown>);
      json += step.start + (value === undefined ? "null" : step.write(value));
    }
    return `${json}}`;
  };
}

/** Returns a function that reads a field from the generated representation; undefined if it is unset. */
function fieldReader(field: DescField): (message: Record<string, unknown>) => unknown {
  const name = field.localName;
  const oneof = field.oneof?.localName;
  if (oneof !== undefined) {
    return (message) => {
      const member = message[oneof] as { case?: string; value?: unknown };
      return member.case === name ? member.value : undefined;
    };
  }
  if (field.parent.file.edition === Edition.EDITION_PROTO3) return (message) => message[name];
  // In other editions, an unset field inherits the default of its type.
  return (message) => (Object.hasOwn(message, name) ? message[name] : undefined);
}

function fieldWriter(field: DescField, audience: JsonAudience): WriteValue {
  const write = valueWriter(field, audience);
  switch (field.fieldKind) {
    case "list":
      return (items) => `[${(items as unknown[]).map((item) => write(item)).join(",")}]`;
    case "map":
      return (map) =>
        `{${Object.entries(map as Record<string, unknown>)
          .map(([key, value]) => `${JSON.stringify(key)}:${write(value)}`)
          .join(",")}}`;
    default:
      return write;
  }
}

/** The serializer of a singular field, of a list's items or of a map's values. */
function valueWriter(field: DescField, audience: JsonAudience): WriteValue {
  if (field.message) return messageWriter(field.message, audience);
  if (field.enum) return enumWriter(field.enum, field.name, audience);
  return scalarWriter(field);
}

/**
 * Serializes an enum by name, without the enum's prefix. Numbers without a name are rejected in payloads, whose
 * receivers expect names; REST shows them, because a later version may have stored them.
 */
function enumWriter(desc: DescEnum, field: string, audience: JsonAudience): WriteValue {
  const members = Object.values(desc.value).map(({ name, number }) => ({
    proto: name,
    number,
    json: enumMemberName(desc, number) as string,
  }));
  assertDistinct(desc.typeName, members);
  const names = new Map(members.map(({ number, json }) => [number, `"${json}"`]));
  return (value) => {
    const name = names.get(value as number);
    if (name !== undefined) return name;
    const addedName = enumMemberName(desc, value as number);
    if (addedName !== undefined) return `"${addedName}"`;
    if (audience === "rest") return String(value);
    const choices = enumChoices(desc).join(", ");
    throw new RangeError(`${field} is ${value}, which is no ${desc.name}; allowed: ${choices}`);
  };
}
