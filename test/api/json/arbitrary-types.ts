import {
  create,
  createFileRegistry,
  type DescMessage,
  type MessageInitShape,
  ScalarType,
} from "@bufbuild/protobuf";
import {
  type DescriptorProtoSchema,
  Edition,
  FileDescriptorProtoSchema,
  file_google_protobuf_timestamp,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";
import fc from "fast-check";

type MessageProto = MessageInitShape<typeof DescriptorProtoSchema>;
type FieldType = { type: Type; typeName?: string };

// Scalar types have the same numbers in both enums.
const SCALARS = Object.values(ScalarType).filter((value) => typeof value === "number") as number[] as Type[];
const KEYS = SCALARS.filter((type) => ![Type.DOUBLE, Type.FLOAT, Type.BYTES].includes(type));
const TYPES: FieldType[] = [
  ...[".any.v1.M", ".any.v1.M.N", ".google.protobuf.Timestamp"].map((typeName) => ({
    type: Type.MESSAGE,
    typeName,
  })),
  ...[".any.v1.Prefixed", ".any.v1.Bare"].map((typeName) => ({ type: Type.ENUM, typeName })),
];
const ENUMS = [
  { name: "Prefixed", value: ["PREFIXED_NONE", "PREFIXED_A_2", "PREFIXED_LAST"] },
  { name: "Bare", value: ["NONE", "NOT_PREFIXED", "LAST"] },
].map(({ name, value }) => ({
  name,
  value: value.map((each, n) => ({ name: each, number: [0, 7, -1][n] as number })),
}));

interface FieldSpec {
  name: string;
  type: FieldType;
  shape: "plain" | "optional" | "list" | "map" | "member";
  key: Type;
}

/** Fields of one message: ordinary names, and names that mean something to JavaScript. */
const fields = fc.uniqueArray(
  fc.record<FieldSpec>({
    name: fc.oneof(
      { weight: 9, arbitrary: fc.stringMatching(/^[a-z][a-z0-9]{0,5}(_[a-z0-9]{1,4}){0,2}$/) },
      {
        weight: 1,
        arbitrary: fc.constantFrom("constructor", "to_string", "value_of", "case", "value", "then"),
      },
    ),
    type: fc.oneof(
      fc.constantFrom(...SCALARS).map((type): FieldType => ({ type })),
      fc.constantFrom(...TYPES),
    ),
    shape: fc.constantFrom("plain", "optional", "list", "map", "member"),
    key: fc.constantFrom(...KEYS),
  }),
  { maxLength: 8, selector: ({ name }) => name.replaceAll("_", "").toLowerCase() },
);

/**
 * Any message type that a payload may have: every kind of field, nested and recursive messages, enums with
 * and without their prefix, numbers in another order than the declarations. Of proto3, or of an edition, in which plain fields can be
 * unset, too.
 */
export const arbitraryType: fc.Arbitrary<DescMessage> = fc
  .tuple(fields, fields, fc.boolean())
  .map(([outer, inner, isProto3]) => {
    const nested = messageOf("M.N", inner, isProto3);
    const file = create(FileDescriptorProtoSchema, {
      name: "any.proto",
      package: "any.v1",
      dependency: [file_google_protobuf_timestamp.proto.name],
      enumType: ENUMS,
      messageType: [messageOf("M", outer, isProto3, nested)],
      syntax: isProto3 ? "proto3" : "editions",
      edition: isProto3 ? Edition.EDITION_PROTO3 : Edition.EDITION_2023,
    });
    const registry = createFileRegistry(file, () => file_google_protobuf_timestamp);
    return registry.getMessage("any.v1.M") as DescMessage;
  });

function messageOf(
  path: string,
  specs: readonly FieldSpec[],
  isProto3: boolean,
  ...nestedType: MessageProto[]
): MessageProto {
  // The order matters: the oneofs that proto3 makes for optional fields come last.
  const oneofs = specs.some(({ shape }) => shape === "member") ? ["the_choice"] : [];
  const field = specs.map(({ name, type, shape, key }, n) => {
    // As compilers make it; the descriptors need one.
    const jsonName = name.replaceAll(/_+(.?)/g, (_match, letter: string) => letter.toUpperCase());
    const declared = { name, jsonName, number: specs.length - n, label: Label.OPTIONAL, ...type };
    if (shape === "member") return { ...declared, oneofIndex: 0 };
    if (shape === "list") return { ...declared, label: Label.REPEATED };
    if (shape === "optional" && isProto3)
      return { ...declared, proto3Optional: true, oneofIndex: oneofs.push(`_${name}`) - 1 };
    if (shape !== "map") return declared;
    // A map is a list of entries, whose type is declared within the message.
    nestedType.push({
      name: `Entry${n}`,
      options: { mapEntry: true },
      field: [
        { name: "key", jsonName: "key", number: 1, label: Label.OPTIONAL, type: key },
        { name: "value", jsonName: "value", number: 2, label: Label.OPTIONAL, ...type },
      ],
    });
    const typeName = `.any.v1.${path}.Entry${n}`;
    return { ...declared, label: Label.REPEATED, type: Type.MESSAGE, typeName };
  });
  return { name: path.slice(-1), field, nestedType, oneofDecl: oneofs.map((name) => ({ name })) };
}
