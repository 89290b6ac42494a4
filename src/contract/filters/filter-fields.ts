import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { TIMESTAMP } from "../json/field-types.ts";

/** A value that a filter can name. */
export interface FilterField {
  /** `event.order_number`. */
  path: string;
  /** `string`, `list of OrderLine`. */
  type: string;
}

/** What a filter of a payload's events can name: its fields, and those of the messages in them. */
export function filterFields({ fields }: DescMessage): FilterField[] {
  const fieldsOf = (outer: string, of: readonly DescField[]) =>
    of.map((field) => ({ path: `${outer}.${field.name}`, type: typeOf(field) }));
  return [
    { path: "user_id", type: "string" },
    ...fieldsOf("event", fields),
    ...fields.flatMap((field) => {
      if (!field.message || field.message.typeName === TIMESTAMP || field.fieldKind === "map") return [];
      return fieldsOf(`event.${field.name}${field.fieldKind === "list" ? "[0]" : ""}`, field.message.fields);
    }),
  ];
}

function typeOf(field: DescField): string {
  const name = field.message?.name ?? field.enum?.name ?? (field.scalar && SCALARS[field.scalar]) ?? "int";
  if (field.fieldKind === "list") return `list of ${name}`;
  return field.fieldKind === "map" ? `map to ${name}` : name;
}

const SCALARS: Partial<Record<ScalarType, string>> = {
  [ScalarType.STRING]: "string",
  [ScalarType.BOOL]: "bool",
  [ScalarType.BYTES]: "bytes",
  [ScalarType.DOUBLE]: "double",
  [ScalarType.FLOAT]: "double",
  [ScalarType.UINT32]: "uint",
  [ScalarType.UINT64]: "uint",
  [ScalarType.FIXED32]: "uint",
  [ScalarType.FIXED64]: "uint",
};
