import type { DescEnum, DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { getOption, hasOption } from "@bufbuild/protobuf";
import { Edition } from "@bufbuild/protobuf/wkt";
import { rest_omitted } from "../../../gen/webhook/v1/options_pb.ts";
import { assertDistinct, enumChoices, enumMemberName, propertyName } from "./names.ts";
import { scalarWriter, type WriteValue } from "./scalars.ts";
import { plainValueWriter, wellKnownWriter } from "./well-known.ts";

/** Writes one message as JSON text. */
export type JsonWriter<Desc extends DescMessage> = (message: MessageShape<Desc>) => string;

/** Who reads the JSON: receivers of payloads, or REST callers, who are spared fields marked `rest_omitted`. */
export type JsonAudience = "payload" | "rest";

const compiled: Record<JsonAudience, WeakMap<DescMessage, WriteValue>> = {
  payload: new WeakMap(),
  rest: new WeakMap(),
};

/**
 * The writer of a message type: names in PascalCase in the order of the proto, enums by name, times as
 * `YYYY-MM-DDThh:mm:ss`, 64-bit integers as exact numbers, bytes as base64, null for what is unset.
 *
 * Compiled once a type, since publishing goes through it. It throws a RangeError on what the JSON cannot say: a
 * number that is not finite, a time outside the years 0001 to 9999, in payloads a member of an enum without a name.
 *
 * @throws Error when two fields of the type would have the same name
 */
export function jsonWriter<Desc extends DescMessage>(desc: Desc, audience: JsonAudience): JsonWriter<Desc> {
  return messageWriter(desc, audience) as JsonWriter<Desc>;
}

function messageWriter(desc: DescMessage, audience: JsonAudience): WriteValue {
  const writers = compiled[audience];
  const known = writers.get(desc);
  if (known) return known;
  // Stands in while the fields are looked at, so that a type may hold itself.
  writers.set(desc, (message) => messageWriter(desc, audience)(message));
  try {
    const write = wellKnownWriter(desc) ?? fieldsWriter(desc, audience);
    writers.set(desc, write);
    return write;
  } catch (error) {
    writers.delete(desc);
    throw error;
  }
}

/** The fields of a message that its audience gets, in the order of the proto. */
export function fieldsFor(desc: DescMessage, audience: JsonAudience): DescField[] {
  return desc.fields.filter(
    (field) => audience === "payload" || !hasOption(field, rest_omitted) || !getOption(field, rest_omitted),
  );
}

function fieldsWriter(desc: DescMessage, audience: JsonAudience): WriteValue {
  const fields = fieldsFor(desc, audience);
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

/** Reads a field from the generated shape; undefined when it is unset. */
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

/** The writer of a singular field's value, of a list's items or of a map's values. */
function valueWriter(field: DescField, audience: JsonAudience): WriteValue {
  if (field.message) return plainValueWriter(field) ?? messageWriter(field.message, audience);
  if (field.enum) return enumWriter(field.enum, field.name, audience);
  return scalarWriter(field, field.name);
}

/**
 * By name without the enum's prefix. A number that this version has no name for is refused in payloads, whose
 * receivers are promised names; REST shows it, since a later version may have stored it.
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
    if (audience === "rest") return String(value);
    const choices = enumChoices(desc).join(", ");
    throw new RangeError(`${field} is ${value}, which is no ${desc.name}; allowed: ${choices}`);
  };
}
