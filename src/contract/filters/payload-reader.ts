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

/** A payload as a message. */
export interface ReadPayload<Desc extends DescMessage> {
  message: MessageShape<Desc>;
  /** The number of items of its longest list or map. */
  longestList: number;
}

/**
 * Reads a payload back into its message: the inverse of the writer of payloads, except that times have whole seconds.
 * Properties that the message does not have are ignored.
 *
 * @throws Error if the payload is not one of this type
 */
export function readPayload<Desc extends DescMessage>(desc: Desc, payload: string): ReadPayload<Desc> {
  const reader = new PayloadReader();
  const json = reader.message(desc, parseExactJson(payload));
  return { message: fromJson(desc, json), longestList: reader.longestList };
}

/** Converts payloads to the JSON that protobuf defines. */
class PayloadReader {
  longestList = 0;

  message(desc: DescMessage, value: ExactJson): JsonValue {
    if (desc.typeName === TIMESTAMP) return `${value}Z`;
    if (!isObject(value)) throw new Error(`a ${desc.name} must be a JSON object`);
    const read: Record<string, JsonValue> = {};
    for (const field of desc.fields) {
      const given = value[propertyName(field)];
      if (given !== undefined && given !== null) read[field.jsonName] = this.#field(field, given);
    }
    return read;
  }

  #field(field: DescField, value: ExactJson): JsonValue {
    if (field.fieldKind === "list" && Array.isArray(value)) {
      this.longestList = Math.max(this.longestList, value.length);
      return value.map((item) => this.#single(field, item));
    }
    if (field.fieldKind === "map" && isObject(value)) {
      const entries = Object.entries(value);
      this.longestList = Math.max(this.longestList, entries.length);
      return Object.fromEntries(entries.map(([key, item]) => [key, this.#single(field, item)]));
    }
    return this.#single(field, value);
  }

  /** A singular value, an item of a list or a value of a map. */
  #single(field: DescField, value: ExactJson): JsonValue {
    if (field.message) return this.message(field.message, value);
    if (field.enum && typeof value === "string") return enumName(field.enum, value);
    if (isRawJson(field)) return stringifyExactJson(value);
    return typeof value === "bigint" ? String(value) : (value as JsonValue);
  }
}

/** The name in the proto of an enum member; the text itself if it is none. */
function enumName(desc: DescEnum, text: string): string {
  return desc.values.find(({ number }) => enumMemberName(desc, number) === text)?.name ?? text;
}

function isObject(value: ExactJson): value is { [name: string]: ExactJson } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
