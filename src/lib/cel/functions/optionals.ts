import {
  type CelFunc,
  type CelInput,
  type CelList,
  CelScalar,
  type CelValue,
  celFromScalar,
  celFunc,
  celList,
  celMethod,
  isCelList,
  isCelMap,
  isCelUint,
  listType,
} from "@bufbuild/cel";
import { isReflectMessage, type ReflectMessage } from "@bufbuild/protobuf/reflect";
import { elementsOf } from "./values.ts";

const { BOOL, DYN } = CelScalar;
const LIST = listType(DYN);

/** The optionals: lists of one element or none, so that the library can compare them. */
const optionals = new WeakSet<CelList>();

/** An optional of a value; undefined is none. */
export function someOf(value: CelInput | undefined): CelList {
  const optional = celList(value === undefined ? [] : [value]);
  optionals.add(optional);
  return optional;
}

/** CEL's extension for values that may be missing, version 2. `optMap` and `optFlatMap` are macros. */
export const optionalFunctions: CelFunc[] = [
  celFunc("optional.none", [], LIST, () => someOf(undefined)),
  celFunc("optional.of", [DYN], LIST, someOf),
  celFunc("optional.ofNonZeroValue", [DYN], LIST, (value) => someOf(isZero(value) ? undefined : value)),
  celFunc("optional.unwrap", [LIST], LIST, unwrap),
  celMethod("unwrapOpt", LIST, [], LIST, function () {
    return unwrap(this);
  }),
  celMethod("hasValue", DYN, [], BOOL, function () {
    return optionalOf(this).size > 0;
  }),
  celMethod("value", DYN, [], DYN, function () {
    const value = optionalOf(this).get(0);
    if (value === undefined) throw new Error("optional.none() has no value: use orValue");
    return value;
  }),
  celMethod("or", DYN, [DYN], DYN, function (other) {
    return optionalOf(this).size > 0 ? this : optionalOf(other);
  }),
  celMethod("orValue", DYN, [DYN], DYN, function (value) {
    return optionalOf(this).get(0) ?? value;
  }),
  celFunc("@optionalField", [DYN, DYN], LIST, (value, key) => someOf(find(value, key))),
  celFunc("@optionalElement", [DYN, DYN], LIST, (value, key) => someOf(find(value, key))),
  // `[?optional]`, joined with the other elements of its list.
  celFunc("@elements", [DYN], LIST, (value) => [...optionalOf(value)]),
  // `{?key: optional}`.
  celFunc(
    "@entries",
    [DYN, DYN],
    CelScalar.DYN,
    (key, value) => new Map([...optionalOf(value)].map((each) => [key as string, each])),
  ),
];

function optionalOf(value: CelValue): CelList {
  if (isCelList(value) && optionals.has(value)) return value;
  throw new Error("the value is no optional");
}

function unwrap(list: CelList): CelValue[] {
  return elementsOf(list).flatMap((optional) => [...optionalOf(optional)]);
}

/** The element or field of a value, or of the value of an optional; undefined if there is none. */
function find(value: CelValue, key: CelValue): CelInput | undefined {
  if (isCelList(value) && optionals.has(value)) {
    const inner = value.get(0);
    return inner === undefined ? undefined : find(inner, key);
  }
  if (isCelMap(value)) return value.get(key as string);
  if (isCelList(value)) {
    const index = isCelUint(key) ? key.value : key;
    if (typeof index !== "bigint" && typeof index !== "number")
      throw new Error("the index of a list is a number");
    return value.get(Number(index));
  }
  if (isReflectMessage(value) && typeof key === "string") return fieldOf(value, key);
  throw new Error("only maps, lists and messages have optional elements");
}

function fieldOf(message: ReflectMessage, name: string): CelInput | undefined {
  const field = message.desc.fields.find((each) => each.name === name);
  if (!field) throw new Error(`field not found: ${name}`);
  if (!message.isSet(field)) return undefined;
  const value = message.get(field);
  if (field.fieldKind === "scalar") return celFromScalar(field.scalar, value as never);
  return field.fieldKind === "enum" ? BigInt(value as number) : (value as CelInput);
}

function isZero(value: CelValue): boolean {
  if (typeof value !== "object" || value === null) return !value;
  if (isCelUint(value)) return value.value === 0n;
  if (value instanceof Uint8Array) return value.length === 0;
  if (isCelList(value) || isCelMap(value)) return value.size === 0;
  return isReflectMessage(value) && value.fields.every((field) => !value.isSet(field));
}
