import { CelScalar, type CelType, listType, mapType, objectType } from "@bufbuild/cel";

const { BOOL, BYTES, DOUBLE, DYN, INT, NULL, STRING, TYPE, UINT } = CelScalar;

/** The type of the elements of an empty list, and of the value of `optional.none()`: it becomes that of other elements. */
export const NEVER: CelType = { ...DYN };
const NUMERIC = new Set<string>([INT.name, UINT.name, DOUBLE.name]);
/** The types that have a name in expressions, as in `type(a) == string`. */
export const NAMED_TYPES = new Set(
  [BOOL, BYTES, DOUBLE, INT, NULL, STRING, TYPE, UINT]
    .map(({ name }) => name as string)
    .concat("list", "map"),
);

/** The type of a value that may be missing. */
type OptionalType = ReturnType<typeof objectType> & { value: CelType };

export function optionalType(value: CelType): OptionalType {
  return { ...objectType("optional_type"), value };
}

/** The type of an optional's value; undefined if the type is none of an optional. */
export function optionalValue(type: CelType): CelType | undefined {
  return type.kind === "object" && "value" in type ? (type as OptionalType).value : undefined;
}

/** Whether a value of the type can be of any type. */
export function isAny(type: CelType): boolean {
  return type === DYN || type === NEVER;
}

/** A type as errors and the page name it. */
export function typeName(type: CelType): string {
  if (type.kind === "list") return `list of ${typeName(type.element)}`;
  if (type.kind === "map") return `map of ${typeName(type.key)} to ${typeName(type.value)}`;
  const value = optionalValue(type);
  if (value) return `optional ${typeName(value)}`;
  return type === NULL ? "null" : type.name.slice(type.name.lastIndexOf(".") + 1);
}

/** The type of all, or any type if they differ or there is none. */
export function common(types: readonly CelType[]): CelType {
  const [first = NEVER, ...others] = types.filter((type) => type !== NEVER);
  return others.reduce(commonOfTwo, first);
}

function commonOfTwo(one: CelType, other: CelType): CelType {
  if (one.kind === "list" && other.kind === "list") return listType(common([one.element, other.element]));
  if (one.kind === "map" && other.kind === "map")
    return mapOf(common([one.key, other.key]), common([one.value, other.value]));
  const [value, otherValue] = [optionalValue(one), optionalValue(other)];
  if (value && otherValue) return optionalType(common([value, otherValue]));
  return typeName(one) === typeName(other) ? one : DYN;
}

export function mapOf(key: CelType, value: CelType): CelType {
  return mapType(key as typeof STRING, value);
}

export function elementOf(type: CelType): CelType {
  return type.kind === "list" ? type.element : type === NEVER ? NEVER : DYN;
}

export function isAssignable(type: CelType, to: CelType): boolean {
  if (isAny(type) || isAny(to)) return true;
  if (type.kind === "list" && to.kind === "list") return isAssignable(type.element, to.element);
  if (type.kind === "map" && to.kind === "map")
    return isAssignable(type.key, to.key) && isAssignable(type.value, to.value);
  const [value, toValue] = [optionalValue(type), optionalValue(to)];
  if (value && toValue) return isAssignable(value, toValue);
  return type.kind === to.kind && type.name === to.name;
}

const isNumeric = (type: CelType) => isAny(type) || NUMERIC.has(type.name);

export function areComparable(one: CelType, other: CelType): boolean {
  if (one.kind === "list" && other.kind === "list") return areComparable(one.element, other.element);
  return isAssignable(one, other) || (isNumeric(one) && isNumeric(other));
}

/** The type of a function's result. The target of a method is the first argument. Undefined: the arguments are not accepted. */
type ResultType = (...types: CelType[]) => CelType | undefined;

const ofOptional =
  (result: (value: CelType, other: CelType) => CelType | undefined): ResultType =>
  (optional = DYN, other = DYN) => {
    const value = isAny(optional) ? DYN : optionalValue(optional);
    return value && result(value, other);
  };
const sameList: ResultType = (list = DYN) => list;
const unwrapped: ResultType = (list = DYN) => ofOptional((value) => listType(value))(elementOf(list));
const bestNumber: ResultType = (numbers = DYN) => {
  const number = numbers.kind === "list" ? numbers.element : numbers;
  return isNumeric(number) ? number : undefined;
};
const ofSets: ResultType = (one = DYN, other = DYN) => (areComparable(one, other) ? BOOL : undefined);
const element: ResultType = (list = DYN) => optionalType(elementOf(list));
const both = (value: CelType, other: CelType) =>
  areComparable(value, other) ? common([value, other]) : undefined;

/** Functions whose result has a type that depends on those of the arguments. */
const RESULT_TYPES = new Map<string, ResultType>(
  Object.entries({
    "_+_": (one = DYN, other = DYN) => listType(common([elementOf(one), elementOf(other)])),
    slice: sameList,
    distinct: sameList,
    sort: sameList,
    reverse: sameList,
    "@sortBy": sameList,
    flatten: (list = DYN, levels?: CelType) => {
      const inner = elementOf(list);
      return levels || isAny(inner) ? listType(DYN) : inner.kind === "list" ? inner : list;
    },
    first: element,
    last: element,
    join: (texts = DYN) => (isAssignable(elementOf(texts), STRING) ? STRING : undefined),
    "sets.contains": ofSets,
    "sets.equivalent": ofSets,
    "sets.intersects": ofSets,
    "math.@greatest": bestNumber,
    "math.@least": bestNumber,
    "optional.none": () => optionalType(NEVER),
    "optional.of": (value = DYN) => optionalType(value),
    "optional.ofNonZeroValue": (value = DYN) => optionalType(value),
    "optional.unwrap": unwrapped,
    unwrapOpt: unwrapped,
    hasValue: ofOptional(() => BOOL),
    value: ofOptional((value) => value),
    orValue: ofOptional(both),
    or: ofOptional((value, other) =>
      ofOptional((otherValue) => {
        const type = both(value, otherValue);
        return type && optionalType(type);
      })(other),
    ),
    "@elements": ofOptional((value) => listType(value)),
    "@entries": (key = DYN, optional = DYN) => ofOptional((value) => mapOf(key, value))(optional),
    "@merge": (maps = DYN) => (maps.kind === "list" && maps.element.kind === "map" ? maps.element : DYN),
    "@keys": (range = DYN) => listType(range.kind === "map" ? range.key : range.kind === "list" ? INT : DYN),
  } satisfies Record<string, ResultType>),
);

/**
 * The type of a call's result.
 *
 * @param results the result types of the overloads that take the arguments
 * @param types the types of target and arguments
 * @returns undefined if the arguments are not accepted
 */
export function resultType(
  name: string,
  results: readonly CelType[],
  types: readonly CelType[],
): CelType | undefined {
  const known = RESULT_TYPES.get(name);
  const result = common(results);
  const isFixed = result.kind !== "list" && (name === "_+_" || name === "reverse");
  return known && !isFixed ? known(...types) : result;
}
