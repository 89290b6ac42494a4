import type { DescEnum, DescField } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { enumMemberName } from "../json/names.ts";

/** A parameter's value as the message holds it, or what is wrong with it. */
export type Converted = { value: unknown } | { problem: string };

const INT32 = { min: -(2n ** 31n), max: 2n ** 31n - 1n };
const INT64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };
const UINT32 = { min: 0n, max: 2n ** 32n - 1n };
const UINT64 = { min: 0n, max: 2n ** 64n - 1n };

/** The values that a field's kind can have, when it is a whole number. */
function rangeOf(scalar: ScalarType): { min: bigint; max: bigint; big: boolean } | undefined {
  switch (scalar) {
    case ScalarType.INT32:
    case ScalarType.SINT32:
    case ScalarType.SFIXED32:
      return { ...INT32, big: false };
    case ScalarType.UINT32:
    case ScalarType.FIXED32:
      return { ...UINT32, big: false };
    case ScalarType.INT64:
    case ScalarType.SINT64:
    case ScalarType.SFIXED64:
      return { ...INT64, big: true };
    case ScalarType.UINT64:
    case ScalarType.FIXED64:
      return { ...UINT64, big: true };
    default:
      return undefined;
  }
}

/** What a parameter must be, for messages. */
export function expectation(field: DescField): string {
  if (field.fieldKind === "enum") return `allowed: ${choices(field.enum)}`;
  if (field.fieldKind !== "scalar") return "send a value";
  const range = rangeOf(field.scalar);
  if (range) return `send a whole number, at most ${range.max}`;
  if (field.scalar === ScalarType.BOOL) return "send true or false";
  return field.name.endsWith("url") ? "send an https:// URL" : "send text";
}

/**
 * A value from a query, a form or exact JSON as a field of the message holds it.
 *
 * Numbers may come as text, since queries and forms know nothing else; 64-bit ones stay exact.
 */
export function convertParameter(field: DescField, given: unknown): Converted {
  if (given === "") return { problem: `is empty; ${expectation(field)}` };
  if (field.fieldKind === "enum") {
    const number = wholeNumber(given);
    const known = number !== undefined && field.enum.values.some((value) => BigInt(value.number) === number);
    if (known) return { value: Number(number) };
    return { problem: `is ${shown(given)}, not a known value; ${expectation(field)}` };
  }
  if (field.fieldKind !== "scalar") return { problem: "cannot be sent over REST" };
  const range = rangeOf(field.scalar);
  if (range) {
    const number = wholeNumber(given);
    if (number === undefined)
      return { problem: `is ${shown(given)}, not a whole number; ${expectation(field)}` };
    if (number < range.min || number > range.max) {
      return { problem: `is out of range: it must be from ${range.min} to ${range.max}` };
    }
    return { value: range.big ? number : Number(number) };
  }
  if (field.scalar === ScalarType.BOOL) {
    if (given === true || given === "true") return { value: true };
    if (given === false || given === "false") return { value: false };
  }
  if (field.scalar === ScalarType.STRING && typeof given === "string") {
    // Half of a surrogate pair would be replaced on its way to the service.
    return given.isWellFormed() ? { value: given } : { problem: "is not valid Unicode text" };
  }
  return { problem: `is ${shown(given)}; ${expectation(field)}` };
}

/** More digits than any 64-bit number has are not worth reading. */
const WHOLE_NUMBER = /^-?\d{1,40}$/;

function wholeNumber(given: unknown): bigint | undefined {
  if (typeof given === "bigint") return given;
  if (typeof given === "number") return Number.isSafeInteger(given) ? BigInt(given) : undefined;
  return typeof given === "string" && WHOLE_NUMBER.test(given) ? BigInt(given) : undefined;
}

function choices(desc: DescEnum): string {
  return desc.values
    .filter((value) => value.number !== 0)
    .map((value) => `${value.number} (${enumMemberName(desc, value.number)})`)
    .join(", ");
}

/** A wrong value as it may be repeated to whoever sent it: short, and never a whole structure. */
function shown(given: unknown): string {
  if (Array.isArray(given)) return "a list";
  if (given !== null && typeof given === "object") return "an object";
  const text = typeof given === "string" ? JSON.stringify(given) : String(given);
  return text.length > 50 ? `${text.slice(0, 50)}…` : text;
}
