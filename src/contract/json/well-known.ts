import { type DescField, type DescMessage, type JsonValue, type Message, toJson } from "@bufbuild/protobuf";
import { isWrapperDesc, type Timestamp } from "@bufbuild/protobuf/wkt";
import { scalarWriter, type WriteValue } from "./scalars.ts";
import { sortableTime } from "./timestamp.ts";

/** Types of google.protobuf that use protobuf's own JSON format. */
const AS_PROTOBUF_HAS_IT = new Set([
  "google.protobuf.Duration",
  "google.protobuf.FieldMask",
  "google.protobuf.Struct",
  "google.protobuf.Value",
  "google.protobuf.ListValue",
]);

/** Whether payloads hold a type as protobuf's own JSON format has it. */
export function hasProtobufJson(desc: DescMessage): boolean {
  return AS_PROTOBUF_HAS_IT.has(desc.typeName);
}

/**
 * The serializer of a well-known type with a special JSON format: times, wrappers (the plain value), durations
 * (`"1.5s"`), structs and others. Undefined for all other messages.
 */
export function wellKnownWriter(desc: DescMessage): WriteValue | undefined {
  if (desc.typeName === "google.protobuf.Timestamp") {
    return (value) => `"${sortableTime(value as Timestamp)}"`;
  }
  if (isWrapperDesc(desc)) {
    const write = scalarWriter(desc.fields[0], desc.name);
    return (message) => write((message as { value: unknown }).value);
  }
  if (hasProtobufJson(desc)) {
    return (message) => plainJson(protobufJson(desc, message as Message), desc.name);
  }
  return undefined;
}

/**
 * The serializer of a field whose generated representation is a plain value instead of its message: singular wrappers
 * outside oneofs, and structs. Undefined for all other fields.
 */
export function plainValueWriter(field: DescField): WriteValue | undefined {
  if (field.fieldKind === "message" && !field.oneof && isWrapperDesc(field.message)) {
    return scalarWriter(field.message.fields[0], field.name);
  }
  if (field.message?.typeName === "google.protobuf.Struct") {
    return (value) => plainJson(value as JsonValue, field.name);
  }
  return undefined;
}

function protobufJson(desc: DescMessage, message: Message): JsonValue {
  try {
    return toJson(desc, message);
  } catch (error) {
    throw new RangeError((error as Error).message);
  }
}

function plainJson(value: JsonValue, name: string): string {
  return JSON.stringify(value, (_key, each) => {
    // JSON.stringify would convert it to null.
    if (typeof each === "number" && !Number.isFinite(each)) {
      throw new RangeError(`${name} holds ${each}, which JSON cannot represent; send a finite number`);
    }
    return each;
  });
}
