import { create, createFileRegistry, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import {
  type DescriptorProto,
  DescriptorProtoSchema,
  Edition,
  type EnumDescriptorProto,
  EnumDescriptorProtoSchema,
  type FieldDescriptorProto,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  FileDescriptorProtoSchema,
  file_google_protobuf_timestamp,
  OneofDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { TIMESTAMP } from "../../../src/contract/json/field-types.ts";

const PACKAGE = "arbitrary.v1";

const SCALARS = Object.values(ScalarType).filter((value) => typeof value === "number");
const NO_KEYS: readonly ScalarType[] = [ScalarType.DOUBLE, ScalarType.FLOAT, ScalarType.BYTES];
const KEYS = SCALARS.filter((scalar) => !NO_KEYS.includes(scalar));

type FieldType = { scalar: ScalarType } | { enum: number } | { message: number } | { time: true };

interface FieldSpec {
  name: string;
  type: FieldType;
  shape: "plain" | "optional" | "list" | "map" | "member";
  key: ScalarType;
}

interface FileSpec {
  /** Proto3, or an edition, in which plain fields can be unset, too. */
  proto3: boolean;
  /** The first message holds the declarations of those that are nested. */
  messages: { nested: boolean; fields: FieldSpec[]; numbers: number[] }[];
  enums: { prefixed: boolean; words: string[]; numbers: number[] }[];
}

const plain = (name: string) => name.replaceAll("_", "").toLowerCase();

/** Ordinary names, and names that mean something to JavaScript. */
const fieldName = fc.oneof(
  { weight: 9, arbitrary: fc.stringMatching(/^[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,4}){0,2}$/) },
  { weight: 1, arbitrary: fc.constantFrom("constructor", "to_string", "value_of", "case", "value", "then") },
);
const number = fc.integer({ min: 1, max: 500_000_000 }).filter((each) => each < 19_000 || each > 19_999);

const fieldSpec = fc.record<FieldSpec>({
  name: fieldName,
  type: fc.oneof(
    { weight: 6, arbitrary: fc.record({ scalar: fc.constantFrom(...SCALARS) }) },
    { weight: 2, arbitrary: fc.record({ enum: fc.nat(9) }) },
    { weight: 2, arbitrary: fc.record({ message: fc.nat(9) }) },
    { weight: 1, arbitrary: fc.constant<FieldType>({ time: true }) },
  ),
  shape: fc.constantFrom("plain", "optional", "list", "map", "member"),
  key: fc.constantFrom(...KEYS),
});

const fileSpec = fc.record<FileSpec>({
  proto3: fc.boolean(),
  messages: fc.array(
    fc.record({
      nested: fc.boolean(),
      fields: fc.uniqueArray(fieldSpec, { maxLength: 8, selector: (field) => plain(field.name) }),
      numbers: fc.uniqueArray(number, { minLength: 8, maxLength: 8 }),
    }),
    { minLength: 1, maxLength: 4 },
  ),
  enums: fc.array(
    fc.record({
      prefixed: fc.boolean(),
      words: fc.uniqueArray(fc.stringMatching(/^[A-Z][A-Z0-9]{0,4}(_[A-Z][A-Z0-9]{0,3})?$/), {
        minLength: 1,
        maxLength: 5,
        selector: plain,
      }),
      numbers: fc.uniqueArray(
        fc.integer().filter((each) => each !== 0),
        { minLength: 4, maxLength: 4 },
      ),
    }),
    { minLength: 1, maxLength: 2 },
  ),
});

/**
 * Any message type that a payload may have: every kind of field, nested and recursive messages, enums with
 * and without their prefix, numbers in another order than the declarations.
 */
export const arbitraryType: fc.Arbitrary<DescMessage> = fileSpec.map((spec) => {
  const file = create(FileDescriptorProtoSchema, {
    name: "arbitrary.proto",
    package: PACKAGE,
    dependency: [file_google_protobuf_timestamp.proto.name],
    enumType: spec.enums.map(enumOf),
    ...(spec.proto3 ? { syntax: "proto3" } : { syntax: "editions", edition: Edition.EDITION_2023 }),
  });
  const messages = spec.messages.map((_, index) => messageOf(spec, index));
  const [first] = messages as [DescriptorProto];
  for (const [index, message] of messages.entries()) {
    (isNested(spec, index) ? first.nestedType : file.messageType).push(message);
  }
  const registry = createFileRegistry(file, () => file_google_protobuf_timestamp);
  return registry.getMessage(`${PACKAGE}.M0`) as DescMessage;
});

function isNested(spec: FileSpec, index: number): boolean {
  return index > 0 && (spec.messages[index]?.nested ?? false);
}

function nameOf(spec: FileSpec, index: number): string {
  return isNested(spec, index) ? `${PACKAGE}.M0.M${index}` : `${PACKAGE}.M${index}`;
}

function enumName(index: number): string {
  return `Kind${index}`;
}

function enumOf({ prefixed, words, numbers }: FileSpec["enums"][number], index: number): EnumDescriptorProto {
  return create(EnumDescriptorProtoSchema, {
    name: enumName(index),
    value: words.map((word, position) => ({
      name: prefixed ? `KIND${index}_${word}` : word,
      number: position === 0 ? 0 : (numbers[position - 1] as number),
    })),
  });
}

function messageOf(spec: FileSpec, index: number): DescriptorProto {
  const { fields, numbers } = spec.messages[index] as FileSpec["messages"][number];
  const message = create(DescriptorProtoSchema, { name: `M${index}` });
  // The order matters: those that proto3 makes for optional fields come last.
  if (fields.some((field) => field.shape === "member")) addOneof(message, "the_choice");
  for (const [position, declared] of fields.entries()) {
    const field = create(FieldDescriptorProtoSchema, {
      ...declaration(declared.name, numbers[position] as number),
      ...typeOf(spec, declared.type),
    });
    if (declared.shape === "member") field.oneofIndex = 0;
    if (declared.shape === "list") field.label = FieldDescriptorProto_Label.REPEATED;
    if (declared.shape === "optional" && spec.proto3) {
      field.proto3Optional = true;
      field.oneofIndex = addOneof(message, `_${declared.name}`);
    }
    message.field.push(
      declared.shape === "map" ? asMap(message, nameOf(spec, index), field, declared.key) : field,
    );
  }
  return message;
}

function addOneof(message: DescriptorProto, name: string): number {
  return message.oneofDecl.push(create(OneofDescriptorProtoSchema, { name })) - 1;
}

function declaration(name: string, number: number) {
  // As compilers make it; the descriptors need one.
  const jsonName = name.replaceAll(/_+(.?)/g, (_match, letter: string) => letter.toUpperCase());
  return { name, jsonName, number, label: FieldDescriptorProto_Label.OPTIONAL };
}

function typeOf(spec: FileSpec, type: FieldType) {
  // Scalar types have the same numbers in both enums.
  if ("scalar" in type) return { type: type.scalar as number as FieldDescriptorProto_Type };
  if ("enum" in type) {
    const name = enumName(type.enum % spec.enums.length);
    return { type: FieldDescriptorProto_Type.ENUM, typeName: `.${PACKAGE}.${name}` };
  }
  const typeName = "message" in type ? nameOf(spec, type.message % spec.messages.length) : TIMESTAMP;
  return { type: FieldDescriptorProto_Type.MESSAGE, typeName: `.${typeName}` };
}

/** A map is a list of entries, whose type is declared within the message. */
function asMap(
  message: DescriptorProto,
  messageName: string,
  value: FieldDescriptorProto,
  key: ScalarType,
): FieldDescriptorProto {
  const name = `Entry${message.nestedType.length}`;
  message.nestedType.push(
    create(DescriptorProtoSchema, {
      name,
      options: { mapEntry: true },
      field: [
        { ...declaration("key", 1), type: key as number as FieldDescriptorProto_Type },
        { ...declaration("value", 2), type: value.type, typeName: value.typeName },
      ],
    }),
  );
  return create(FieldDescriptorProtoSchema, {
    ...declaration(value.name, value.number),
    label: FieldDescriptorProto_Label.REPEATED,
    type: FieldDescriptorProto_Type.MESSAGE,
    typeName: `.${messageName}.${name}`,
  });
}
