import type { DescField, DescMessage, Message, MessageShape } from "@bufbuild/protobuf";
import { isFieldSet, ScalarType } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, type Timestamp } from "@bufbuild/protobuf/wkt";
import { required } from "../../gen/webhook/v1/options_pb.ts";
import { eventTypes, isProcessEnum } from "../contract/catalogue.ts";
import type { FieldViolation } from "../contract/errors.ts";
import { isMarked } from "../contract/json/field-types.ts";
import { enumChoices } from "../contract/json/names.ts";
import { isTimestampInRange } from "../contract/json/timestamp.ts";

/**
 * Finds all violations in a message at any depth: missing `required` fields, times outside the years 0001 to 9999,
 * and enum lists with more items than members.
 *
 * Compiled once per type, because publishing uses it.
 */
export function findFieldViolations<Desc extends DescMessage>(
  desc: Desc,
  message: MessageShape<Desc>,
  path = "",
): FieldViolation[] {
  const found: FieldViolation[] = [];
  checkOf(desc)(message, path, found);
  return found;
}

/** @param path the path of the message, ending in a dot unless it is empty */
type Check = (message: Message, path: string, found: FieldViolation[]) => void;
/** @param path the path of the value */
type ValueCheck = (value: unknown, path: string, found: FieldViolation[]) => void;

const compiled = new WeakMap<DescMessage, Check>();

function checkOf(desc: DescMessage): Check {
  const known = compiled.get(desc);
  if (known) return known;
  let checks: Check[] | undefined;
  // Registered before its fields are processed, so that types may be recursive.
  const check: Check = (message, path, found) => {
    checks ??= desc.fields.map(fieldCheck).filter((one) => one !== undefined);
    for (const one of checks) one(message, path, found);
  };
  compiled.set(desc, check);
  return check;
}

/** Undefined for a field without checks. */
function fieldCheck(field: DescField): Check | undefined {
  const isRequired = isMarked(field, required);
  // A field that is `required` in proto2 must be present.
  const isNeeded = isRequired || field.presence === FeatureSet_FieldPresence.LEGACY_REQUIRED;
  const checkValue = valueCheck(field);
  if (!isNeeded && !checkValue) return undefined;
  const read = fieldReader(field);
  const description = requiredText(field);
  return (message, path, found) => {
    if (!isFieldSet(message, field)) {
      if (isNeeded) found.push({ field: path + field.name, description });
    } else if (checkValue) {
      checkValue(read(message), path + field.name, found);
    }
  };
}

function fieldReader(field: DescField): (message: Message) => unknown {
  const oneof = field.oneof?.localName;
  if (oneof === undefined)
    return (message) => (message as unknown as Record<string, unknown>)[field.localName];
  return (message) => (message as unknown as Record<string, { value?: unknown }>)[oneof]?.value;
}

/** The check of a field's value if set. */
function valueCheck(field: DescField): ValueCheck | undefined {
  if (field.fieldKind === "message") return messageCheck(field.message);
  if (field.fieldKind === "list" && field.listKind === "enum") {
    const isProcesses = isProcessEnum(field.enum);
    return (items, path, found) => {
      const { length } = items as unknown[];
      // Registered event types are no members of the enum.
      const known = isProcesses ? eventTypes().length : field.enum.values.length;
      if (length <= known) return;
      const description = `has ${length} values, more than the ${known} that exist; list each once`;
      found.push({ field: path, description });
    };
  }
  if (field.fieldKind === "list" && field.listKind === "message") {
    const check = messageCheck(field.message);
    if (!check) return undefined;
    return (items, path, found) => {
      for (const [index, item] of (items as unknown[]).entries()) check(item, `${path}[${index}]`, found);
    };
  }
  if (field.fieldKind === "map" && field.mapKind === "message") {
    const check = messageCheck(field.message);
    if (!check) return undefined;
    return (map, path, found) => {
      for (const [key, value] of Object.entries(map as Record<string, unknown>)) {
        check(value, `${path}[${JSON.stringify(key)}]`, found);
      }
    };
  }
  return undefined;
}

function messageCheck(desc: DescMessage): ValueCheck | undefined {
  if (desc.typeName === "google.protobuf.Timestamp") {
    return (value, field, found) => {
      if (isTimestampInRange(value as Timestamp)) return;
      found.push({ field, description: "must lie in the years 0001 to 9999" });
    };
  }
  // Other well-known types have no such options, and some have a special representation.
  if (desc.typeName.startsWith("google.protobuf.")) return undefined;
  const check = checkOf(desc);
  return (value, path, found) => check(value as Message, `${path}.`, found);
}

/** Proto3 does not distinguish zero from unset, so the text mentions both. */
function requiredText(field: DescField): string {
  if (field.fieldKind === "enum")
    return `is required and must not be 0; allowed: ${enumChoices(field.enum).join(", ")}`;
  if (field.fieldKind === "list" && field.listKind === "enum")
    return `is required and must not be empty; allowed: ${enumChoices(field.enum).join(", ")}`;
  if (field.fieldKind === "list") return "is required and must not be empty";
  if (field.fieldKind === "message") return "is required";
  if (field.fieldKind === "scalar" && field.scalar === ScalarType.STRING)
    return "is required and must not be empty";
  return "is required and must not be 0";
}
