import {
  type DescField,
  type DescMessage,
  type DescMethod,
  ScalarType,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import fc from "fast-check";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { emptyItems, emptyItemsJson, unknownFields } from "../hostile-messages.ts";
import { mutated, randomBytes } from "./mutated-bytes.ts";

/** How a message is written. */
export type Format = "proto" | "json";

/** Values that mean something to the service under test, by the JSON names of their fields. */
export type KnownValues = Readonly<Record<string, readonly (string | bigint | number)[]>>;

/**
 * The bytes of a request message of a method: right ones, some with values that the service knows, nearly right ones,
 * random ones, and ones made to cost much.
 */
export function messageBytes(method: DescMethod, format: Format, known: KnownValues): fc.Arbitrary<Buffer> {
  const right = fc.oneof(arbitraryMessage(method.input), knowing(method.input, known));
  const written = right.map((message) => write(message, format));
  return fc.oneof(
    { weight: 10, arbitrary: written },
    { weight: 7, arbitrary: mutated(written) },
    { weight: 1, arbitrary: randomBytes },
    { weight: 1, arbitrary: fc.constant(Buffer.alloc(0)) },
    { weight: 2, arbitrary: format === "json" ? oddJson(method.input) : oddBinary },
    { weight: 1, arbitrary: costly(method.input, format) },
  );
}

function write(message: ReflectMessage, format: Format): Buffer {
  if (format === "proto") return Buffer.from(toBinary(message.desc, message.message));
  return Buffer.from(JSON.stringify(toJson(message.desc, message.message)));
}

/** Messages whose fields hold values that the service knows, where there are some, or small ones. */
function knowing(desc: DescMessage, known: KnownValues, depth = 0): fc.Arbitrary<ReflectMessage> {
  const setters = desc.fields.map((field) =>
    fieldValue(field, known, depth).map((value) => (message: ReflectMessage) => {
      if (value === undefined) return;
      if (field.fieldKind === "list") for (const item of [value].flat()) message.get(field).add(item);
      else if (field.fieldKind !== "map") message.set(field, value);
    }),
  );
  return fc.tuple(...setters.map((each) => fc.option(each, { freq: 5, nil: undefined }))).map((list) => {
    const message = reflect(desc);
    for (const set of list) set?.(message);
    return message;
  });
}

// biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
type Value = any;

function fieldValue(field: DescField, known: KnownValues, depth: number): fc.Arbitrary<Value> {
  if (field.fieldKind === "map") return fc.constant(undefined);
  const values = known[field.jsonName];
  if (values && values.length > 0) return fc.constantFrom(...values);
  if (field.enum) return fc.constantFrom(...field.enum.values.map(({ number }) => number));
  if (field.message) {
    if (depth > 3) return fc.constant(undefined);
    if (field.message.typeName.startsWith("google.protobuf."))
      return arbitraryMessage(field.message, depth + 1);
    return knowing(field.message, known, depth + 1);
  }
  switch (field.scalar) {
    case ScalarType.STRING:
      return fc.nat(30).map((n) => `${field.name}-${n}`);
    case ScalarType.BOOL:
      return fc.boolean();
    case ScalarType.BYTES:
      return fc.uint8Array({ maxLength: 5 });
    case ScalarType.INT64:
    case ScalarType.UINT64:
    case ScalarType.SINT64:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return fc.bigInt(0n, 20n);
    default:
      return fc.nat(20);
  }
}

/** JSON text for a field's value that no field takes, or only just. */
const oddValues = fc.constantFrom(
  ...["null", "[]", "{}", "true", "-0", "1e999", "1e-7", "-1", "1.5", "NaN", '"NaN"', '"Infinity"', "01"],
  ...[
    '""',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\\uFEFF"',
    '"a"',
    '"-1"',
    '"9223372036854775808"',
  ],
  ...[
    '"1970-01-01T00:00:00Z"',
    '"0000-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59.999999999Z"',
    '"1s"',
    '"-315576000001s"',
  ],
  ...["[null]", "[[]]", "[{}]", '[""]', '{"":{}}', '{"@type":"type.googleapis.com/google.protobuf.Any"}'],
  ...[
    "1".repeat(400),
    `"${"9".repeat(999)}"`,
    `${"[".repeat(90)}${"]".repeat(90)}`,
    '"__proto__"',
    '"constructor"',
  ],
);

function oddJson(desc: DescMessage): fc.Arbitrary<Buffer> {
  const names = desc.fields.flatMap(({ jsonName, name }) => [jsonName, name]);
  const name = fc.constantFrom(...names, "\\ud800", "__proto__", "", "@type", "unknown", "toString");
  const members = fc.array(
    fc.tuple(name, oddValues).map(([key, value]) => `"${key}":${value}`),
    { maxLength: 4 },
  );
  return fc
    .oneof(
      members.map((list) => `{${list.join(",")}}`),
      fc.constantFrom(
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "1",
        '"',
        "\ufeff{}",
        "{}{}",
        '{"a":1,"a":2}',
        "{,}",
        "/**/{}",
      ),
      fc.json(),
    )
    .map((text) => Buffer.from(text));
}

/** Bytes of protobuf's format that no message has: endless varints, groups, wrong wire types, lengths, field numbers. */
const oddBinary: fc.Arbitrary<Buffer> = fc.oneof(
  fc
    .constantFrom(
      ..."ff,ffffffffffffffffffff01,0aff,0affffffff0f,0a05,0b0c,0b,0c,0f,00,0001,0a02c328,0a03eda080,08,0880,0dffff,09ff,08ffffffffffffffffff01,0a00,1200,1a00".split(
        ",",
      ),
    )
    .map((hex) => Buffer.from(hex, "hex")),
  // Each field number with each wire type, and a little behind it.
  fc
    .tuple(fc.integer({ min: 1, max: 20 }), fc.nat(7), fc.uint8Array({ maxLength: 12 }))
    .map(([number, wireType, rest]) => Buffer.from([...varint((number << 3) | wireType), ...rest])),
);

function varint(value: number): number[] {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(value >>> 7)];
}

const KIB = 1_024;
const DEEP_BINARY = Buffer.concat(Array<Buffer>(2_000).fill(Buffer.from([0x0b])));

/** Messages that would cost much, were they read without limits. Made once: they are large. */
function costly(desc: DescMessage, format: Format): fc.Arbitrary<Buffer> {
  const [first] = desc.fields;
  const name = first?.jsonName ?? "unknown";
  const sizes = fc.constantFrom(8 * KIB - 10, 8 * KIB + 2, 60 * KIB, 64 * KIB + 2, 300 * KIB);
  if (format === "proto") {
    return fc.oneof(
      sizes.map((size) => unknownFields(size)),
      sizes.map((size) => emptyItems(size / 2)),
      fc.constant(DEEP_BINARY),
    );
  }
  return fc.oneof(
    sizes.map((size) => emptyItemsJson(name, Math.floor(size / 3))),
    sizes.map((size) => Buffer.from(`{"${name}":"${"1".repeat(size)}"}`)),
    sizes.map((size) => Buffer.from(`{"${name}":${"1".repeat(size)}}`)),
    sizes.map((size) => Buffer.from(`{"${name}":${"[".repeat(size)}`)),
    sizes.map((size) => Buffer.from(`{"${name}":${'{"":'.repeat(size / 4)}`)),
    sizes.map((size) => Buffer.from(`{"${name}":${" ".repeat(size)}1}`)),
    sizes.map((size) => Buffer.from(`{"${name}":"${"\\u0041".repeat(size / 6)}"}`)),
  );
}
