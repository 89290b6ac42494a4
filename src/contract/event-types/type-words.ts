import { type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { INTEGERS_64, TIMESTAMP } from "../json/field-types.ts";
import { propertyName } from "../json/names.ts";
import { isNullable } from "./schema.ts";

/** Writes the name of a message or enum, for example as a link. */
export type Link = (desc: DescMessage | DescEnum) => string;

/**
 * The type of a property in words, such as `list of OrderLine` or `string or null`.
 *
 * @param code writes `null`
 */
export function propertyType(field: DescField, link: Link, code: (text: string) => string): string {
  const isOne = field.fieldKind !== "list" && field.fieldKind !== "map";
  return isOne && isNullable(field) ? `${typeOf(field, link)} or ${code("null")}` : typeOf(field, link);
}

function typeOf(field: DescField, link: Link): string {
  if (field.fieldKind === "list") return `list of ${valueType(field, link)}`;
  if (field.fieldKind === "map") return `object of ${valueType(field, link)}`;
  return valueType(field, link);
}

function valueType(field: DescField, link: Link): string {
  if (field.enum) return link(field.enum);
  if (!field.message) return scalarType(field.scalar);
  return field.message.typeName === TIMESTAMP ? "time" : link(field.message);
}

function scalarType(scalar: ScalarType): string {
  switch (scalar) {
    case ScalarType.STRING:
      return "string";
    case ScalarType.BYTES:
      return "string, base64";
    case ScalarType.BOOL:
      return "boolean";
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return "number";
    default:
      return INTEGERS_64.has(scalar) ? "64-bit integer" : "integer";
  }
}

/** What a property excludes, because a oneof has its field. Undefined if it excludes nothing. */
export function choiceOf(field: DescField): string | undefined {
  const others = field.oneof?.fields.filter((each) => each !== field) ?? [];
  if (others.length === 0) return undefined;
  return `At most one of this and ${others.map((each) => `\`${propertyName(each)}\``).join(", ")} is set.`;
}
