import {
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJson,
  type JsonValue,
  type MessageShape,
} from "@bufbuild/protobuf";
import { type ExactJson, parseExactJson, stringifyExactJson } from "../json/exact-json.ts";
import { TIMESTAMP } from "../json/field-types.ts";
import { enumMemberName, propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";

/**
 * Reads a payload back into its message: the inverse of the writer of payloads, except that times have whole seconds.
 * Properties that the message does not have are ignored.
 *
 * @throws Error if the payload is not one of this type
 */
export function readPayload<Desc extends DescMessage>(desc: Desc, payload: string): MessageShape<Desc> {
  return fromJson(desc, jsonOfMessage(desc, parseExactJson(payload)));
}

/** Converts a payload to the JSON that protobuf defines. */
function jsonOfMessage(desc: DescMessage, value: ExactJson): JsonValue {
  if (desc.typeName === TIMESTAMP) return `${value}Z`;
  if (!isObject(value)) throw new Error(`a ${desc.name} must be a JSON object`);
  const read: Record<string, JsonValue> = {};
  for (const field of desc.fields) {
    const given = value[propertyName(field)];
    if (given !== undefined && given !== null) read[field.jsonName] = jsonOfField(field, given);
  }
  return read;
}

function jsonOfField(field: DescField, value: ExactJson): JsonValue {
  if (field.fieldKind === "list" && Array.isArray(value)) return value.map((item) => jsonOfItem(field, item));
  if (field.fieldKind === "map" && isObject(value))
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, jsonOfItem(field, item)]));
  return jsonOfItem(field, value);
}

/** A singular value, an item of a list or a value of a map. */
function jsonOfItem(field: DescField, value: ExactJson): JsonValue {
  if (field.message) return jsonOfMessage(field.message, value);
  if (field.enum && typeof value === "string") return enumName(field.enum, value);
  if (isRawJson(field)) return stringifyExactJson(value);
  return typeof value === "bigint" ? String(value) : (value as JsonValue);
}

/** The name in the proto of an enum member; the text itself if it is none. */
function enumName(desc: DescEnum, text: string): string {
  return desc.values.find(({ number }) => enumMemberName(desc, number) === text)?.name ?? text;
}

function isObject(value: ExactJson): value is { [name: string]: ExactJson } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
