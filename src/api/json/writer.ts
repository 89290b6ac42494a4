import type { DescEnum, DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { base64Encode } from "@bufbuild/protobuf/wire";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { rest_omitted } from "../../../gen/webhook/v1/options_pb.ts";
import { pascalCase } from "../../catalogue.ts";
import { sortableTime } from "./timestamp.ts";

/** Writes one message as JSON text. */
export type JsonWriter<Desc extends DescMessage> = (message: MessageShape<Desc>) => string;

/** Who reads the JSON: receivers of payloads, or REST callers, who are spared fields marked `rest_omitted`. */
export type JsonAudience = "payload" | "rest";

type WriteValue = (value: unknown) => string;

const compiled: Record<JsonAudience, Map<string, WriteValue>> = { payload: new Map(), rest: new Map() };

/**
 * The writer of a message type: names in PascalCase in the order of the proto, enums by name, times as
 * `YYYY-MM-DDThh:mm:ss`, 64-bit integers as exact numbers, bytes as base64, null for what is unset.
 *
 * Compiled once a type, since publishing goes through it. It throws a RangeError on what JSON cannot say: a number
 * that is not finite, a time outside the years 0001 to 9999.
 */
export function jsonWriter<Desc extends DescMessage>(desc: Desc, audience: JsonAudience): JsonWriter<Desc> {
  return messageWriter(desc, audience) as JsonWriter<Desc>;
}

function messageWriter(desc: DescMessage, audience: JsonAudience): WriteValue {
  if (desc.typeName === "google.protobuf.Timestamp") {
    return (value) => `"${sortableTime(value as Timestamp)}"`;
  }
  const known = compiled[audience].get(desc.typeName);
  if (known) return known;

  let writeFields: ((message: Message) => string) | undefined;
  // Remembered before its fields are looked at, so that a type may hold itself.
  const write: WriteValue = (value) => {
    writeFields ??= fieldsWriter(desc, audience);
    return writeFields(value as Message);
  };
  compiled[audience].set(desc.typeName, write);
  return write;
}

function fieldsWriter(desc: DescMessage, audience: JsonAudience): (message: Message) => string {
  const fields = desc.fields.filter(
    (field) => audience === "payload" || !hasOption(field, rest_omitted) || !getOption(field, rest_omitted),
  );
  const steps = fields.map((field, index) => ({
    start: `${index === 0 ? "{" : ","}"${pascalCase(field.name)}":`,
    read: fieldReader(field),
    write: fieldWriter(field, audience),
  }));
  if (steps.length === 0) return () => "{}";
  return (message) => {
    let json = "";
    for (const step of steps) {
      const value = step.read(message as unknown as Record<string, unknown>);
      json += step.start + (value === undefined ? "null" : step.write(value));
    }
    return `${json}}`;
  };
}

/** Reads a field from the generated shape; undefined when it is unset. */
function fieldReader(field: DescField): (message: Record<string, unknown>) => unknown {
  const name = field.localName;
  const oneof = field.oneof?.localName;
  if (oneof === undefined) return (message) => message[name];
  return (message) => {
    const member = message[oneof] as { case?: string; value?: unknown };
    return member.case === name ? member.value : undefined;
  };
}

function fieldWriter(field: DescField, audience: JsonAudience): WriteValue {
  switch (field.fieldKind) {
    case "message":
      return messageWriter(field.message, audience);
    case "enum":
      return enumWriter(field.enum);
    case "scalar":
      return scalarWriter(field.scalar, field.name);
    case "list": {
      const write =
        field.listKind === "message"
          ? messageWriter(field.message, audience)
          : field.listKind === "enum"
            ? enumWriter(field.enum)
            : scalarWriter(field.scalar, field.name);
      return (items) => `[${(items as unknown[]).map(write).join(",")}]`;
    }
    case "map": {
      const write =
        field.mapKind === "message"
          ? messageWriter(field.message, audience)
          : field.mapKind === "enum"
            ? enumWriter(field.enum)
            : scalarWriter(field.scalar, field.name);
      return (map) =>
        `{${Object.entries(map as Record<string, unknown>)
          .map(([key, value]) => `${JSON.stringify(key)}:${write(value)}`)
          .join(",")}}`;
    }
  }
}

/** By name without the enum's prefix; a number that this version has no name for stays a number. */
function enumWriter(desc: DescEnum): WriteValue {
  const names = new Map(
    desc.values.map((value) => [value.number, `"${enumMemberName(desc, value.number)}"`] as const),
  );
  return (value) => names.get(value as number) ?? String(value);
}

/** `DOCUMENT_KIND_CREDIT_NOTE` → `CreditNote`; undefined for a number the enum does not have. */
export function enumMemberName(desc: DescEnum, number: number): string | undefined {
  const name = desc.value[number]?.name;
  if (name === undefined) return undefined;
  const prefix = desc.sharedPrefix?.toUpperCase() ?? "";
  return pascalCase(name.startsWith(prefix) ? name.slice(prefix.length) : name);
}

function scalarWriter(scalar: ScalarType, name: string): WriteValue {
  switch (scalar) {
    case ScalarType.STRING:
      return JSON.stringify;
    case ScalarType.BYTES:
      return (value) => `"${base64Encode(value as Uint8Array)}"`;
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return (value) => {
        if (!Number.isFinite(value))
          throw new RangeError(`${name} is ${value}, which JSON cannot say; send a finite number`);
        return String(value);
      };
    default:
      // Booleans and integers; 64-bit ones are bigint, which keeps every digit.
      return String;
  }
}
