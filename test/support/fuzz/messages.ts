import {
  type DescField,
  type DescMessage,
  type DescMethod,
  type Message,
  ScalarType,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { scalarZeroValue } from "@bufbuild/protobuf/reflect";
import fc from "fast-check";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { emptyItems, emptyItemsJson, unknownFields } from "../hostile-messages.ts";
import { mutated, noise } from "./generators.ts";

/** How a message is written. */
export type Format = "proto" | "json";

/** Values that mean something to the service under test, by the JSON names of their fields. */
export type KnownValues = Readonly<Record<string, readonly (string | bigint | number)[]>>;

/**
 * The bytes of a request message of a method: right ones, some with values that the service knows, nearly right ones,
 * random ones, and ones made to cost much.
 */
export function messageBytes(
  { input }: DescMethod,
  format: Format,
  known: KnownValues,
): fc.Arbitrary<Buffer> {
  const right = fc.oneof(arbitraryMessage(input), arbitraryMessage(input, 0, usualValue(known)));
  const written = right.map(({ message }) =>
    Buffer.from(format === "proto" ? toBinary(input, message) : jsonOf(input, message)),
  );
  return fc.oneof(
    { weight: 10, arbitrary: written },
    { weight: 7, arbitrary: mutated(written) },
    { weight: 1, arbitrary: noise },
    { weight: 1, arbitrary: fc.constant(Buffer.alloc(0)) },
    { weight: 2, arbitrary: format === "json" ? oddJson(input) : oddBinary },
    { weight: 1, arbitrary: costly(input, format) },
  );
}

/** Protobuf's JSON does not write a packed message of a type that it does not know: then the type is all that is sent. */
function jsonOf(desc: DescMessage, message: Message): string {
  try {
    return JSON.stringify(toJson(desc, message));
  } catch (error) {
    const [, type] = /google\.protobuf\.Any to JSON: (".*")/s.exec((error as Error).message) ?? [];
    if (type === undefined) throw error;
    return `{"event":{"@type":${JSON.stringify(type)}}}`;
  }
}

/** Values that the service knows, where there are some, or small ones. */
function usualValue(known: KnownValues) {
  return ({ jsonName, name, scalar }: DescField) => {
    const values = known[jsonName];
    if (values?.length) return fc.constantFrom(...values);
    if (scalar === undefined || scalar === ScalarType.BOOL || scalar === ScalarType.BYTES) return undefined;
    if (scalar === ScalarType.STRING) return fc.nat(30).map((n) => `${name}-${n}`);
    return typeof scalarZeroValue(scalar, false) === "bigint" ? fc.bigInt(0n, 20n) : fc.nat(20);
  };
}

/** JSON text for a field's value that no field takes, or only just. */
const ODD_VALUES = [
  'null [] {} true -0 1e999 1e-7 -1 1.5 NaN "NaN" "Infinity" 01 [null] [[]] [{}] [""] {"":{}} "" "\\ud800"',
  '"\\udc00\\ud800" "\\u0000" "\\uFEFF" "a" "-1" "9223372036854775808" "1970-01-01T00:00:00Z" "0000-01-01T00:00:00Z"',
  '"9999-12-31T23:59:59.999999999Z" "1s" "-315576000001s" {"@type":"type.googleapis.com/google.protobuf.Any"}',
  `"__proto__" "constructor" ${"1".repeat(400)} "${"9".repeat(999)}" ${"[".repeat(90)}${"]".repeat(90)}`,
];
const oddValues = fc.constantFrom(...ODD_VALUES.flatMap((line) => line.split(" ")));

function oddJson({ fields }: DescMessage): fc.Arbitrary<Buffer> {
  const names = fields.flatMap(({ jsonName, name }) => [jsonName, name]);
  const name = fc.constantFrom(...names, "\\ud800", "__proto__", "", "@type", "unknown", "toString");
  const member = fc.tuple(name, oddValues).map(([key, value]) => `"${key}":${value}`);
  return fc
    .oneof(
      fc.array(member, { maxLength: 4 }).map((list) => `{${list.join(",")}}`),
      fc.constantFrom(...'_ _{_}_[]_null_1_"_\ufeff{}_{}{}_{"a":1,"a":2}_{,}_/**/{}'.split("_")),
      fc.json(),
    )
    .map((text) => Buffer.from(text));
}

/** Endless varints, groups, wrong lengths and texts that are not UTF-8, in hexadecimal digits. */
const ODD_BINARY =
  "ff,ffffffffffffffffffff01,0aff,0affffffff0f,0a05,0b0c,0b,0c,0f,00,0001,0a02c328,0a03eda080,08,0880,0dffff,09ff,08ffffffffffffffffff01,0a00,1200,1a00";

/** Bytes of protobuf's format that no message has. */
const oddBinary: fc.Arbitrary<Buffer> = fc.oneof(
  fc.constantFrom(...ODD_BINARY.split(",")).map((hex) => Buffer.from(hex, "hex")),
  // The numbers of the first fields with each wire type, and a little behind it.
  fc
    .tuple(fc.integer({ min: 8, max: 127 }), fc.uint8Array({ maxLength: 12 }))
    .map(([tag, rest]) => Buffer.from([tag, ...rest])),
);

const KIB = 1_024;
const sizes = fc.constantFrom(8 * KIB - 10, 8 * KIB + 2, 60 * KIB, 64 * KIB + 2, 300 * KIB);

/** Messages that would cost much, were they read without limits. */
function costly({ fields: [first] }: DescMessage, format: Format): fc.Arbitrary<Buffer> {
  if (format === "proto") {
    const deep = (size: number) => Buffer.alloc(size, 0x0b);
    const make = fc.constantFrom(unknownFields, emptyItems, deep);
    return fc.tuple(make, sizes).map(([fill, size]) => fill(size / 2));
  }
  const name = first?.jsonName ?? "unknown";
  const repeated = fc
    .constantFrom('"1', "1", "[", '{"":', " ", '"\\u0041')
    .chain((text) => sizes.map((size) => `{"${name}":${text.repeat(size / text.length)}`));
  return fc.oneof(
    sizes.map((size) => emptyItemsJson(name, Math.floor(size / 3))),
    sizes.map((size) => Buffer.from(`{"${name}":"${"1".repeat(size)}"}`)),
    fc.tuple(repeated, fc.constantFrom("", "1}", "}", '"}')).map((parts) => Buffer.from(parts.join(""))),
  );
}
