import type { DescEnum, DescField } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { enumMemberName } from "../../contract/json/names.ts";

/** A converted parameter value, or the problem with it. */
export type Converted = { value: unknown } | { problem: string };

const INT32 = { min: -(2n ** 31n), max: 2n ** 31n - 1n };
const INT64 = { min: -(2n ** 63n), max: 2n ** 63n - 1n };
const UINT32 = { min: 0n, max: 2n ** 32n - 1n };
const UINT64 = { min: 0n, max: 2n ** 64n - 1n };

/** The range of an integer field; undefined for other fields. */
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

/** The allowed values of a parameter, for error messages. */
export function expectation(field: DescField): string {
  if (field.fieldKind === "enum") return `allowed: ${choices(field.enum)}`;
  if (field.fieldKind !== "scalar") return "send a value";
  const range = rangeOf(field.scalar);
  if (range) return `send a whole number, at most ${range.max}`;
  if (field.scalar === ScalarType.BOOL) return "send true or false";
  return field.name.endsWith("url") ? "send an https:// URL" : "send text";
}

/**
 * Converts a value from a query, a form or exact JSON for a field of a message.
 *
 * Numbers may be strings, because queries and forms have no other type. 64-bit integers stay exact.
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
    // Half of a surrogate pair would be replaced during serialization.
    return given.isWellFormed() ? { value: given } : { problem: "is not valid Unicode text" };
  }
  return { problem: `is ${shown(given)}; ${expectation(field)}` };
}

/** Matches an integer. The number of digits is limited, because no 64-bit integer has more than 19. */
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

/** A short form of an invalid value for error messages. Never includes a complete structure. */
function shown(given: unknown): string {
  if (Array.isArray(given)) return "a list";
  if (given !== null && typeof given === "object") return "an object";
  const text = typeof given === "string" ? JSON.stringify(given) : String(given);
  return text.length > 50 ? `${text.slice(0, 50)}…` : text;
}
