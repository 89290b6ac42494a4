import type { DescField, DescMessage, JsonObject, JsonValue, Message } from "@bufbuild/protobuf";
import { fromJson, getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { example } from "../../../gen/webhook/v1/options_pb.ts";
import { TIMESTAMP } from "../json/field-types.ts";
import { isRawJson } from "../json/scalars.ts";
import { jsonWriter } from "../json/writer.ts";
import { canBeUnset } from "./schema.ts";

const SAMPLE_TIME = "2026-11-21T09:30:00Z";

/**
 * A deterministic sample of a message type: fields have the value of their option `example`, or one generated from type
 * and name. Optional fields with an empty example are unset. Of a oneof, the first member is set; a recursive type is
 * nested once.
 *
 * @throws Error that names a field whose example does not fit its type
 */
export function sampleMessage(desc: DescMessage): Message {
  try {
    return fromJson(desc, sampleOf(desc, []));
  } catch (error) {
    throw new Error(`${(error as Error).message}; correct the option example of the field`, { cause: error });
  }
}

/** A sample payload of an event type, as JSON text. @throws Error as `sampleMessage` does */
export function samplePayload(desc: DescMessage): string {
  return jsonWriter(desc, "payload")(sampleMessage(desc));
}

/** @param within the enclosing messages, outermost first */
function sampleOf(desc: DescMessage, within: readonly DescMessage[]): JsonObject {
  const sample: JsonObject = {};
  for (const field of desc.fields) {
    if (field.oneof && field !== field.oneof.fields[0]) continue;
    if (canBeUnset(field) && exampleOf(field) === "") continue;
    if (field.message && [...within, desc].includes(field.message)) continue;
    sample[field.jsonName] = fieldSample(field, [...within, desc]);
  }
  return sample;
}

/** The sample of a field, in protobuf's JSON format. @param within the enclosing messages, outermost first */
export function fieldSample(field: DescField, within: readonly DescMessage[]): JsonValue {
  const value = valueSample(field, within);
  if (field.fieldKind === "list") return [value];
  if (field.fieldKind !== "map") return value;
  if (field.mapKey === ScalarType.STRING) return { name: value };
  return { [field.mapKey === ScalarType.BOOL ? "true" : "1"]: value };
}

function valueSample(field: DescField, within: readonly DescMessage[]): JsonValue {
  const given = exampleOf(field);
  if (field.message?.typeName === TIMESTAMP) return given ?? SAMPLE_TIME;
  if (field.message) return given ?? sampleOf(field.message, within);
  if (field.enum) return given ?? memberSample(field);
  return scalarSample(field.scalar, given, field);
}

function exampleOf(field: DescField): string | undefined {
  return hasOption(field, example) ? getOption(field, example) : undefined;
}

/** The first member other than zero. */
function memberSample(field: DescField): string {
  const values = field.enum?.values ?? [];
  return (values[1] ?? values[0])?.name ?? "";
}

/** Numbers may be texts, which protobuf's JSON accepts. */
function scalarSample(scalar: ScalarType, given: string | undefined, field: DescField): JsonValue {
  switch (scalar) {
    case ScalarType.BOOL:
      return given === undefined || given === "true" || (given !== "false" && given);
    case ScalarType.STRING:
      return given ?? (isRawJson(field) ? "{}" : field.name.replaceAll("_", " "));
    case ScalarType.BYTES:
      return given ?? "AQID";
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return given ?? "1.5";
    default:
      return given ?? "1";
  }
}
