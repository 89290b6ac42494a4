import type { DescEnum, DescField, DescMessage } from "@bufbuild/protobuf";
import { getOption, hasOption, ScalarType } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { required, rest_omitted } from "../../../gen/webhook/v1/options_pb.ts";
import { commentOf } from "../../comments.ts";
import { enumMemberName, propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";
import type { JsonAudience } from "../json/writer.ts";
import { described, type JsonSchema } from "./json-schema.ts";

/** `YYYY-MM-DDThh:mm:ss` (contract, section 2.3). `date-time` would demand a zone. */
const SORTABLE_TIME: JsonSchema = {
  type: "string",
  pattern: "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}$",
  examples: ["2026-11-21T09:30:00"],
};

/** The schemas of what the service writes, each message type once. */
export interface AnswerSchemas {
  /** A reference to the message's schema. */
  of(desc: DescMessage): JsonSchema;
  /** Every schema asked for so far and what it refers to, by name. */
  components(): Record<string, JsonSchema>;
}

/** Describes messages as the JSON writer writes them for an audience. */
export function answerSchemas(audience: JsonAudience, nameOf: (desc: DescMessage) => string): AnswerSchemas {
  const known = new Map<string, JsonSchema>();

  function messageSchema(desc: DescMessage): JsonSchema {
    if (desc.typeName === "google.protobuf.Timestamp") return SORTABLE_TIME;
    const name = nameOf(desc);
    if (!known.has(name)) {
      const schema: JsonSchema = { type: "object", ...described(commentOf(desc)) };
      // Remembered before its fields are looked at, so that a type may hold itself.
      known.set(name, schema);
      const fields = desc.fields.filter((field) => isWritten(field, audience));
      schema.required = fields.map(propertyName);
      schema.properties = Object.fromEntries(
        fields.map((field) => [propertyName(field), fieldSchema(field)]),
      );
    }
    return { $ref: `#/components/schemas/${name}` };
  }

  function fieldSchema(field: DescField): JsonSchema {
    const comment = described(commentOf(field));
    const schema = valueSchema(field);
    return { ...(isNullable(field) ? orNull(schema) : schema), ...comment };
  }

  function valueSchema(field: DescField): JsonSchema {
    switch (field.fieldKind) {
      case "message":
        return messageSchema(field.message);
      case "enum":
        return enumNames(field.enum, !isRequired(field));
      case "scalar":
        return isRawJson(field) ? { type: "object" } : scalarSchema(field.scalar);
      case "list":
        return { type: "array", items: memberSchema(field, field.listKind) };
      case "map":
        return { type: "object", additionalProperties: memberSchema(field, field.mapKind) };
    }
  }

  function memberSchema(
    field: DescField & { fieldKind: "list" | "map" },
    kind: "message" | "enum" | "scalar",
  ): JsonSchema {
    if (kind === "message") return messageSchema(field.message as DescMessage);
    if (kind === "enum") return enumNames(field.enum as DescEnum, true);
    return scalarSchema(field.scalar as ScalarType);
  }

  return { of: messageSchema, components: () => Object.fromEntries(known) };
}

function isWritten(field: DescField, audience: JsonAudience): boolean {
  return audience === "payload" || !hasOption(field, rest_omitted) || !getOption(field, rest_omitted);
}

function isRequired(field: DescField): boolean {
  return hasOption(field, required) && getOption(field, required);
}

/** The writer writes null for what is unset and can be told from a zero. */
function isNullable(field: DescField): boolean {
  if (isRequired(field) || field.fieldKind === "list" || field.fieldKind === "map") return false;
  return field.presence !== FeatureSet_FieldPresence.IMPLICIT || field.oneof !== undefined;
}

function orNull(schema: JsonSchema): JsonSchema {
  if (typeof schema.type === "string" && schema.enum === undefined)
    return { ...schema, type: [schema.type, "null"] };
  return { anyOf: [schema, { type: "null" }] };
}

function enumNames(desc: DescEnum, withZero: boolean): JsonSchema {
  const values = desc.values.filter((value) => withZero || value.number !== 0);
  return {
    type: "string",
    enum: values.map((value) => enumMemberName(desc, value.number)),
    "x-enum-descriptions": values.map((value) => commentOf(value) ?? ""),
  };
}

/** A scalar as the writer writes it. */
function scalarSchema(scalar: ScalarType): JsonSchema {
  switch (scalar) {
    case ScalarType.STRING:
      return { type: "string" };
    case ScalarType.BYTES:
      return { type: "string", contentEncoding: "base64" };
    case ScalarType.BOOL:
      return { type: "boolean" };
    case ScalarType.FLOAT:
    case ScalarType.DOUBLE:
      return { type: "number" };
    default:
      return wholeNumberSchema(scalar);
  }
}

const BIG: readonly ScalarType[] = [
  ScalarType.INT64,
  ScalarType.SINT64,
  ScalarType.SFIXED64,
  ScalarType.UINT64,
  ScalarType.FIXED64,
];

/** A whole number, by its width. Its bounds are left to the format: JSON readers round those of 64 bits. */
export function wholeNumberSchema(scalar: ScalarType): JsonSchema {
  return { type: "integer", format: BIG.includes(scalar) ? "int64" : "int32" };
}
