import { create, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { DurationSchema, FeatureSet_FieldPresence, TimestampSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { TIMESTAMP } from "../../../src/contract/json/field-types.ts";

/** How deep messages hold others. */
const MAX_DEPTH = 3;

/** Values of a field; undefined: any of its type. */
type ValuesOf = (field: DescField) => fc.Arbitrary<Value> | undefined;

/** Any message of a type that JSON can say; times are whole seconds, since no more of them is written. */
export function arbitraryMessage(
  desc: DescMessage,
  depth = 0,
  valuesOf: ValuesOf = () => undefined,
): fc.Arbitrary<ReflectMessage> {
  return wellKnown(desc) ?? fields(desc, depth, valuesOf);
}

function fields(desc: DescMessage, depth: number, valuesOf: ValuesOf): fc.Arbitrary<ReflectMessage> {
  const setters = desc.fields
    .filter((field) => depth < MAX_DEPTH || !field.message || wellKnown(field.message))
    .map((field) => setter(field, depth, valuesOf));
  return fc.tuple(...setters).map((set) => {
    const message = reflect(desc);
    for (const each of set) each?.(message);
    return message;
  });
}

type Setter = ((message: ReflectMessage) => void) | undefined;

/** Puts something into a field, or nothing where it can be unset. Of a oneof the last one stays. */
function setter(field: DescField, depth: number, valuesOf: ValuesOf): fc.Arbitrary<Setter> {
  if (field.fieldKind === "list") {
    return fc.array(value(field, depth, valuesOf), { maxLength: 3 }).map((items) => (message) => {
      for (const item of items) message.get(field).add(item);
    });
  }
  if (field.fieldKind === "map") {
    const key = scalar(field.mapKey) as fc.Arbitrary<string>;
    return fc
      .array(fc.tuple(key, value(field, depth, valuesOf)), { maxLength: 3 })
      .map((entries) => (message) => {
        for (const [name, each] of entries) message.get(field).set(name, each);
      });
  }
  const set = value(field, depth, valuesOf).map(
    (each): Setter =>
      (message) =>
        message.set(field, each),
  );
  return field.presence === FeatureSet_FieldPresence.IMPLICIT ? set : fc.option(set, { nil: undefined });
}

// biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
type Value = any;

/** A singular field's value, a list's item, a map's value. */
function value(field: DescField, depth: number, valuesOf: ValuesOf): fc.Arbitrary<Value> {
  const own = valuesOf(field);
  if (own) return own;
  if (field.message) return arbitraryMessage(field.message, depth + 1, valuesOf);
  if (field.enum) return fc.constantFrom(...field.enum.values.map((member) => member.number));
  return scalar(field.scalar);
}

/** Values of the types of `google.protobuf` that calls have: payloads have times only. */
function wellKnown(desc: DescMessage): fc.Arbitrary<ReflectMessage> | undefined {
  if (desc.typeName === TIMESTAMP)
    return fc
      .bigInt({ min: -62_135_596_800n, max: 253_402_300_799n })
      .map((seconds) => reflect(desc, create(TimestampSchema, { seconds })));
  if (desc.typeName !== "google.protobuf.Duration") return undefined;
  return fc
    .tuple(fc.bigInt({ min: 0n, max: 315_576_000_000n }), fc.nat(999_999_999), fc.constantFrom(1, -1))
    .map(([seconds, nanos, sign]) =>
      reflect(desc, create(DurationSchema, { seconds: seconds * BigInt(sign), nanos: nanos * sign })),
    );
}

const signed = fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n);
const SCALARS: Partial<Record<ScalarType, fc.Arbitrary<Value>>> = {
  [ScalarType.STRING]: fc.string({ unit: "binary" }),
  [ScalarType.BYTES]: fc.uint8Array({ maxLength: 20 }),
  [ScalarType.BOOL]: fc.boolean(),
  [ScalarType.FLOAT]: fc.float({ noNaN: true, noDefaultInfinity: true }),
  [ScalarType.DOUBLE]: fc.double({ noNaN: true, noDefaultInfinity: true }),
  [ScalarType.UINT32]: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  [ScalarType.FIXED32]: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
  [ScalarType.INT64]: signed,
  [ScalarType.SINT64]: signed,
  [ScalarType.SFIXED64]: signed,
  [ScalarType.UINT64]: fc.bigInt(0n, 2n ** 64n - 1n),
  [ScalarType.FIXED64]: fc.bigInt(0n, 2n ** 64n - 1n),
};
const scalar = (type: ScalarType): fc.Arbitrary<Value> => SCALARS[type] ?? fc.integer();
