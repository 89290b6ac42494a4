import { type CelList, type CelValue, celEnv, isCelUint, parse, plan } from "@bufbuild/cel";
import { isReflectMessage } from "@bufbuild/protobuf/reflect";
import { type Duration, DurationSchema, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";

/** The maximum number of elements of a list that a function makes. */
export const MAX_ELEMENTS = 100_000;
/** The maximum length of a text that a function makes, in UTF-16 units. */
export const MAX_LENGTH = 4_194_304;
/** The maximum number of bytes that the functions of an evaluation make: they are outside of the memory that limits a thread. */
const MAX_BYTES = 16_777_216;
let bytesMade = 0;

/** To be called before each evaluation. */
export function startEvaluation(): void {
  bytesMade = 0;
}

/** @throws Error if an evaluation makes too many bytes */
export function countBytes(length: number): void {
  bytesMade += length;
  if (bytesMade > MAX_BYTES) throw new Error(`an evaluation would make more than ${MAX_BYTES} bytes`);
}

/** @throws Error if a list would have too many elements */
export function assertElements(count: number | bigint): void {
  if (count > MAX_ELEMENTS) throw new Error(`a list would have more than ${MAX_ELEMENTS} elements`);
}

/** @throws Error if a text would be too long */
export function assertLength(length: number): void {
  if (length > MAX_LENGTH) throw new Error(`a text would have more than ${MAX_LENGTH} characters`);
}

/** The elements of a list. @throws Error if they are too many to copy */
export function elementsOf(list: CelList): CelValue[] {
  assertElements(list.size);
  return [...list];
}

const equality = plan(celEnv(), parse("a == b"));

/** A set of values, which are equal as by `==`. */
export class ValueSet {
  readonly #keys = new Set<string>();
  readonly #others: CelValue[] = [];

  constructor(values: Iterable<CelValue> = []) {
    for (const value of values) this.add(value);
  }

  add(value: CelValue): void {
    const key = keyOf(value);
    if (key === undefined) this.#others.push(value);
    else this.#keys.add(key);
  }

  has(value: CelValue): boolean {
    const key = keyOf(value);
    if (key !== undefined) return this.#keys.has(key);
    return this.#others.some((other) => equality({ a: value, b: other }) === true);
  }
}

/** A text that equal values share; undefined for values that have none, such as lists. */
function keyOf(value: CelValue): string | undefined {
  if (isCelUint(value)) return `n${value.value}`;
  if (typeof value === "number") {
    if (Number.isNaN(value)) return undefined;
    return Number.isInteger(value) ? `n${BigInt(value)}` : `n${value}`;
  }
  if (typeof value === "bigint") return `n${value}`;
  if (typeof value === "string") return `s${value}`;
  return typeof value === "boolean" || value === null ? `${value}` : undefined;
}

/** What a value is sorted by. @throws Error if it has no order */
export function orderOf(value: CelValue): bigint | number | string | boolean {
  if (typeof value !== "object") return value;
  if (isCelUint(value)) return value.value;
  // Each byte as one character.
  if (value instanceof Uint8Array) return value.reduce((text, byte) => text + String.fromCharCode(byte), "");
  if (isReflectMessage(value, TimestampSchema) || isReflectMessage(value, DurationSchema)) {
    const { seconds, nanos } = value.message as Timestamp | Duration;
    return seconds * 1_000_000_000n + BigInt(nanos);
  }
  throw new Error("only numbers, texts, bools, bytes, times and durations can be sorted");
}
