import type { DescEnum, DescField } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import {
  eventType,
  eventTypeNamed,
  isProcessEnum,
  isRegistered,
  processChoices,
} from "../../contract/catalogue.ts";
import { enumMemberName } from "../../contract/json/names.ts";

/** A converted parameter value, or the problem with it. */
export type Converted = { value: unknown } | { problem: string };

const MIN_INT64 = -(2n ** 63n);
const MAX_INT64 = 2n ** 63n - 1n;

const isInt64 = ({ scalar }: DescField) => scalar === ScalarType.INT64;

/** Whether a field can be a parameter: an enum, an int64 or a string. */
export function isParameter(field: DescField): boolean {
  const isText = field.scalar === ScalarType.STRING;
  return field.fieldKind === "enum" || (field.fieldKind === "scalar" && (isText || isInt64(field)));
}

/** The allowed values of a parameter, for error messages. */
export function expectation(field: DescField): string {
  if (field.fieldKind === "enum") return `allowed: ${choices(field.enum)}`;
  if (isInt64(field)) return `send a whole number, at most ${MAX_INT64}`;
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
    const number = memberNumber(field.enum, given);
    if (number !== undefined) return { value: number };
    return { problem: `is ${shown(given)}, not a known value; ${expectation(field)}` };
  }
  if (isInt64(field)) {
    const number = wholeNumber(given);
    if (number === undefined)
      return { problem: `is ${shown(given)}, not a whole number; ${expectation(field)}` };
    if (number >= MIN_INT64 && number <= MAX_INT64) return { value: number };
    return { problem: `is out of range: it must be from ${MIN_INT64} to ${MAX_INT64}` };
  }
  if (typeof given !== "string") return { problem: `is ${shown(given)}; ${expectation(field)}` };
  // Half of a surrogate pair would be replaced during serialization.
  return given.isWellFormed() ? { value: given } : { problem: "is not valid Unicode text" };
}

/**
 * The number of an enum's member; undefined if it has none. An event type is sent by number, as the contract has it (4.2). A registered
 * one may also be sent by name or alias.
 */
function memberNumber(desc: DescEnum, given: unknown): number | undefined {
  const number = wholeNumber(given);
  const isMember = desc.values.some((value) => BigInt(value.number) === number);
  if (isMember) return Number(number);
  if (!isProcessEnum(desc)) return undefined;
  const entry =
    number === undefined && typeof given === "string" ? eventTypeNamed(given) : eventType(Number(number));
  return entry && isRegistered(entry.number) ? entry.number : undefined;
}

/**
 * Matches an integer, as the contract has it (4.2, 4.3): no sign or white space, which are mistakes in
 * queries: `+1` there is ` 1`. The number of digits is limited, because no 64-bit integer has more than 19.
 */
const WHOLE_NUMBER = /^-?\d{1,40}$/;

function wholeNumber(given: unknown): bigint | undefined {
  if (typeof given === "bigint") return given;
  if (typeof given === "number") return Number.isSafeInteger(given) ? BigInt(given) : undefined;
  return typeof given === "string" && WHOLE_NUMBER.test(given) ? BigInt(given) : undefined;
}

function choices(desc: DescEnum): string {
  if (isProcessEnum(desc)) return processChoices();
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
