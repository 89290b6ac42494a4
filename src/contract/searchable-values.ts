import { type DescField, type DescMessage, type Message, ScalarType } from "@bufbuild/protobuf";
import { searchable } from "../../gen/webhook/v1/options_pb.ts";
import { isMarked } from "./json/field-types.ts";

/** The maximum number of values that an event is found by, so that a long list cannot slow publishing. */
const MAX_VALUES = 20;
/** Types without a text that people would search for. */
const UNSUITABLE: readonly ScalarType[] = [
  ScalarType.BOOL,
  ScalarType.BYTES,
  ScalarType.DOUBLE,
  ScalarType.FLOAT,
];

/** Adds the searchable values of a message, with those of its parts. */
type Collect = (message: Message, found: Set<string>) => void;

/**
 * The collector of a type; undefined if the type has no searchable fields.
 *
 * @throws Error if the option `searchable` is set on a field of an unsuitable type
 */
export function collectorOf(desc: DescMessage, outer: readonly string[] = []): Collect | undefined {
  // Parts of a recursive type are not searched.
  if (outer.includes(desc.typeName)) return undefined;
  const collectors = desc.fields.map((field) => fieldCollector(field, [...outer, desc.typeName]));
  const some = collectors.filter((collect) => collect !== undefined);
  if (some.length === 0) return undefined;
  return (message, found) => {
    for (const collect of some) collect(message, found);
  };
}

function fieldCollector(field: DescField, outer: readonly string[]): Collect | undefined {
  const add = valueCollector(field, outer);
  if (!add) return undefined;
  const valuesOf = (message: Message): unknown =>
    (message as unknown as Record<string, unknown>)[field.localName];
  return (message, found) => {
    const value = valuesOf(message);
    for (const each of Array.isArray(value) ? value : [value]) add(each, found);
  };
}

function valueCollector(
  field: DescField,
  outer: readonly string[],
): ((value: unknown, found: Set<string>) => void) | undefined {
  if (!assertSearchable(field)) {
    const isPart =
      field.fieldKind === "message" || (field.fieldKind === "list" && field.listKind === "message");
    const collect = isPart ? collectorOf(field.message as DescMessage, outer) : undefined;
    return collect && ((value, found) => value !== undefined && collect(value as Message, found));
  }
  return (value, found) => {
    if (found.size < MAX_VALUES && value !== undefined && value !== "" && value !== 0 && value !== 0n)
      found.add(String(value));
  };
}

/**
 * Whether the option `searchable` is set on a field.
 *
 * @throws Error if it is set on a field of an unsuitable type
 */
export function assertSearchable(field: DescField): boolean {
  if (!isMarked(field, searchable)) return false;
  const isValue = field.fieldKind === "scalar" || (field.fieldKind === "list" && field.listKind === "scalar");
  if (isValue && !UNSUITABLE.includes(field.scalar)) return true;
  throw new Error(
    `${field.parent.typeName}.${field.name} cannot be searchable; allowed are texts, integers and lists of them: remove the option`,
  );
}

const collectors = new WeakMap<DescMessage, Collect | undefined>();

/** The values of a payload whose fields are marked `searchable`, each once. @param desc the payload's type */
export function searchableValues(desc: DescMessage, payload: Message): string[] {
  const found = new Set<string>();
  const collect = collectors.has(desc) ? collectors.get(desc) : collectorOf(desc);
  collectors.set(desc, collect);
  collect?.(payload, found);
  return [...found];
}
