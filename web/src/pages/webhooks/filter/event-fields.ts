import type { DescField } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { catalogue } from "../../../../../src/contract/catalogue.ts";

/** A field of an event as a filter names it. */
export interface EventField {
  /** `event.order_number`. */
  path: string;
  /** `string`, `list of OrderLine`. */
  type: string;
}

/** The fields of an event type's payload, and those of the messages in its lists. */
export function eventFields(process: number): EventField[] {
  const payload = catalogue.find(({ number }) => number === process)?.payload;
  const fields = payload?.fields ?? [];
  return [
    { path: "user_id", type: "string" },
    ...fields.map((field) => ({ path: `event.${field.name}`, type: typeOf(field) })),
    ...fields.flatMap((field) =>
      field.fieldKind === "list" && field.message
        ? field.message.fields.map((each) => ({
            path: `event.${field.name}[0].${each.name}`,
            type: typeOf(each),
          }))
        : [],
    ),
  ];
}

function typeOf(field: DescField): string {
  const name = field.message?.name ?? field.enum?.name ?? scalarName(field.scalar);
  if (field.fieldKind === "list") return `list of ${name}`;
  return field.fieldKind === "map" ? `map to ${name}` : name;
}

function scalarName(scalar: ScalarType | undefined): string {
  switch (scalar) {
    case ScalarType.STRING:
      return "string";
    case ScalarType.BOOL:
      return "bool";
    case ScalarType.BYTES:
      return "bytes";
    case ScalarType.DOUBLE:
    case ScalarType.FLOAT:
      return "double";
    case ScalarType.UINT32:
    case ScalarType.UINT64:
    case ScalarType.FIXED32:
    case ScalarType.FIXED64:
      return "uint";
    default:
      return "int";
  }
}
