import type { DescEnum, DescField, DescMessage, DescOneof } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence } from "@bufbuild/protobuf/wkt";
import { required } from "../../../gen/webhook/v1/options_pb.ts";
import { commentOf } from "../comments.ts";
import { isMarked, TIMESTAMP } from "../json/field-types.ts";
import { enumMemberName, propertyName } from "../json/names.ts";
import { isRawJson } from "../json/scalars.ts";
import { fieldsFor, type JsonAudience } from "../json/writer.ts";
import { type JsonSchema, SCALAR_SCHEMAS, TIME_SCHEMA } from "./schema-scalars.ts";

/**
 * The self-contained JSON Schema (2020-12) of a payload type.
 *
 * Additional properties are allowed, because a later version may add some, and receivers should accept them.
 *
 * @param root a message type outside google.protobuf
 */
export function payloadSchema(root: DescMessage): JsonSchema {
  const parts = new Map<DescMessage, JsonSchema>();

  function refTo(desc: DescMessage): JsonSchema {
    if (desc === root) return { $ref: "#" };
    if (!parts.has(desc)) {
      // Registered before its fields are processed, so that types may be recursive.
      parts.set(desc, {});
      parts.set(desc, messageSchema(desc, "payload", refTo));
    }
    return { $ref: `#/$defs/${partName(desc, root)}` };
  }

  const schema = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: root.name,
    ...messageSchema(root, "payload", refTo),
  };
  if (parts.size === 0) return schema;
  return {
    ...schema,
    $defs: Object.fromEntries([...parts].map(([desc, part]) => [partName(desc, root), part])),
  };
}

/** The short name of a type if it is unambiguous. */
function partName(desc: DescMessage, root: DescMessage): string {
  const home = `${root.file.proto.package}.`;
  return desc.typeName.startsWith(home) ? desc.typeName.slice(home.length) : desc.typeName;
}

/** Returns a reference to the schema of another message. */
export type RefTo = (desc: DescMessage) => JsonSchema;

/**
 * The schema of a message as `jsonWriter` writes it for an audience and `findFieldViolations` accepts it: every
 * property is present, null if an optional field is unset, and `required` fields are not empty.
 *
 * @param refTo called for each nested message type, including itself if recursive
 */
export function messageSchema(desc: DescMessage, audience: JsonAudience, refTo: RefTo): JsonSchema {
  const fields = fieldsFor(desc, audience);
  const alternatives = desc.oneofs.filter((oneof) => oneof.fields.length > 1).map(atMostOne);
  return {
    ...described(commentOf(desc)),
    type: "object",
    properties: Object.fromEntries(
      fields.map((field) => [propertyName(field), propertySchema(field, refTo)]),
    ),
    required: fields.map(propertyName),
    ...(alternatives.length === 0 ? {} : { allOf: alternatives }),
  };
}

/** At most one member of a oneof is not null: for some member, all others are null. */
function atMostOne(oneof: DescOneof): JsonSchema {
  return {
    ...described(commentOf(oneof)),
    anyOf: oneof.fields.map((member) => ({
      properties: Object.fromEntries(
        oneof.fields
          .filter((field) => field !== member)
          .map((field) => [propertyName(field), { type: "null" }]),
      ),
    })),
  };
}

function propertySchema(field: DescField, refTo: RefTo): JsonSchema {
  const about = described(
    [commentOf(field), field.enum ? memberList(field.enum) : ""].filter(Boolean).join("\n\n"),
  );
  switch (field.fieldKind) {
    case "list":
      return {
        ...about,
        type: "array",
        items: valueSchema(field, refTo),
        ...(isRequired(field) ? { minItems: 1 } : {}),
      };
    case "map":
      return {
        ...about,
        type: "object",
        additionalProperties: valueSchema(field, refTo),
        ...(isRequired(field) ? { minProperties: 1 } : {}),
      };
    default: {
      const value = valueSchema(field, refTo);
      if (canBeUnset(field)) return { ...about, ...(isNullable(field) ? orNull(value) : value) };
      return { ...about, ...(isRequired(field) ? notZero(field, value) : value) };
    }
  }
}

/** Whether unset differs from zero. */
export function canBeUnset(field: DescField): boolean {
  return field.presence !== FeatureSet_FieldPresence.IMPLICIT;
}

/** Whether a property is null if its field is unset. A required field is never unset. */
export function isNullable(field: DescField): boolean {
  return canBeUnset(field) && !isRequired(field);
}

function isRequired(field: DescField): boolean {
  return isMarked(field, required);
}

function valueSchema(field: DescField, refTo: RefTo): JsonSchema {
  if (field.enum) return { type: "string", enum: memberNames(field.enum) };
  if (!field.message) return isRawJson(field) ? { type: "object" } : SCALAR_SCHEMAS[field.scalar];
  return field.message.typeName === TIMESTAMP ? TIME_SCHEMA : refTo(field.message);
}

/** The names of an enum's members in payloads, without aliases. */
export function memberNames(desc: DescEnum): string[] {
  return [...new Set(desc.values.map(({ number }) => enumMemberName(desc, number) as string))];
}

/** The descriptions of an enum's members, as a list. Empty if there are none. */
export function memberList(desc: DescEnum): string {
  return desc.values
    .flatMap((value) => {
      const comment = commentOf(value);
      return comment === undefined ? [] : [`- ${enumMemberName(desc, value.number)}: ${comment}`];
    })
    .join("\n");
}

function orNull(schema: JsonSchema): JsonSchema {
  if (typeof schema.type !== "string") return { anyOf: [schema, { type: "null" }] };
  const members = Array.isArray(schema.enum) ? { enum: [...schema.enum, null] } : {};
  return { ...schema, type: [schema.type, "null"], ...members };
}

/** A required field without presence must differ from the zero value of its type. */
function notZero(field: DescField, schema: JsonSchema): JsonSchema {
  if (field.enum) {
    const zero = enumMemberName(field.enum, field.enum.values[0]?.number ?? 0);
    return { ...schema, enum: (schema.enum as string[]).filter((name) => name !== zero) };
  }
  if (field.scalar === ScalarType.BOOL) return { ...schema, const: true };
  if (schema.type === "string") return { ...schema, minLength: 1 };
  return { ...schema, not: { const: 0 } };
}

/** `{ description }` for a text, otherwise an empty object. */
export function described(text: string | undefined): { description?: string } {
  return text ? { description: text } : {};
}
