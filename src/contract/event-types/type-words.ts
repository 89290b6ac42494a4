import { type DescField, ScalarType } from "@bufbuild/protobuf";
import { INTEGERS_64, TIMESTAMP } from "../json/field-types.ts";
import { propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";
import { isNullable } from "./schema.ts";
import type { NameOf } from "./type-names.ts";

/** How types of JSON are written. */
export interface Notation {
  string: string;
  bytes: string;
  boolean: string;
  number: string;
  integer: string;
  integer64: string;
  time: string;
  /** An object of any properties. */
  object: string;
  list(item: string): string;
  map(value: string): string;
  orNull(value: string): string;
}

/** Types in words, such as `list of OrderLine` or `string or null`. @param code writes `null` */
export function inWords(code: (text: string) => string): Notation {
  return {
    ...{ string: "string", bytes: "string, base64", boolean: "boolean", number: "number" },
    ...{ integer: "integer", integer64: "64-bit integer", time: "time", object: "string" },
    list: (item) => `list of ${item}`,
    map: (value) => `object of ${value}`,
    orNull: (value) => `${value} or ${code("null")}`,
  };
}

/** The type of a property. @param nameOf writes the name of a message or enum, for example as a link */
export function propertyType(field: DescField, notation: Notation, nameOf: NameOf): string {
  const type = field.message ?? field.enum;
  const isTime = field.message?.typeName === TIMESTAMP;
  const value = isTime ? notation.time : type ? nameOf(type) : scalarType(field, notation);
  if (field.fieldKind === "list") return notation.list(value);
  if (field.fieldKind === "map") return notation.map(value);
  return isNullable(field) ? notation.orNull(value) : value;
}

function scalarType(field: DescField, notation: Notation): string {
  switch (field.scalar) {
    case ScalarType.STRING:
      return isRawJson(field) ? notation.object : notation.string;
    case ScalarType.BYTES:
      return notation.bytes;
    case ScalarType.BOOL:
      return notation.boolean;
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return notation.number;
    default:
      return INTEGERS_64.has(field.scalar) ? notation.integer64 : notation.integer;
  }
}

/** What a property excludes, because a oneof has its field. Undefined if it excludes nothing. */
export function choiceOf(field: DescField): string | undefined {
  const others = field.oneof?.fields.filter((each) => each !== field) ?? [];
  if (others.length === 0) return undefined;
  return `At most one of this and ${others.map((each) => `\`${propertyName(each)}\``).join(", ")} is set.`;
}
