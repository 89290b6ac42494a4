import type { DescField, DescMessage, MessageShape } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { required } from "../../gen/webhook/v1/options_pb.ts";
import { isTimestampInRange } from "./json/timestamp.ts";

/** One thing wrong with a request. */
export interface FieldViolation {
  /** Path by proto names, such as `order_dispatched.lines[0].sku`. */
  field: string;
  /** What to change; reads on after the field's name. */
  description: string;
}

/**
 * Everything in a message, at any depth, that lacks a field with the option `required` or holds a time outside the
 * years 0001 to 9999.
 */
export function findFieldViolations<Desc extends DescMessage>(
  desc: Desc,
  message: MessageShape<Desc>,
): FieldViolation[] {
  const found: FieldViolation[] = [];
  visit(reflect(desc, message), "", found);
  return found;
}

function visit(message: ReflectMessage, prefix: string, found: FieldViolation[]): void {
  for (const field of message.desc.fields) {
    const path = prefix + field.name;
    if (!message.isSet(field)) {
      if (hasOption(field, required) && getOption(field, required)) {
        found.push({ field: path, description: requiredText(field) });
      }
    } else if (field.fieldKind === "message") {
      visitMessage(message.get(field), path, found);
    } else if (field.fieldKind === "list" && field.listKind === "message") {
      let index = 0;
      for (const item of message.get(field))
        visitMessage(item as ReflectMessage, `${path}[${index++}]`, found);
    } else if (field.fieldKind === "map" && field.mapKind === "message") {
      for (const [key, value] of message.get(field)) {
        visitMessage(value as ReflectMessage, `${path}[${JSON.stringify(key)}]`, found);
      }
    }
  }
}

function visitMessage(message: ReflectMessage, path: string, found: FieldViolation[]): void {
  if (message.desc.typeName !== "google.protobuf.Timestamp") {
    visit(message, `${path}.`, found);
  } else if (!isTimestampInRange(message.message as Timestamp)) {
    found.push({ field: path, description: "must lie in the years 0001 to 9999" });
  }
}

/** Proto3 cannot tell a zero from nothing, so the text names both. */
function requiredText(field: DescField): string {
  if (field.fieldKind === "message") return "is required";
  if (field.fieldKind === "scalar" && field.scalar === ScalarType.STRING)
    return "is required and must not be empty";
  return "is required and must not be 0";
}
