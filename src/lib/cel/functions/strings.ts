import { type CelFunc, CelScalar, celError, celFunc, celMethod, listType } from "@bufbuild/cel";
import { strings as libraryStrings } from "@bufbuild/cel/ext";
import { assertElements, assertLength, countBytes, elementsOf, MAX_ELEMENTS, MAX_LENGTH } from "./values.ts";

const { BYTES, DYN, INT, STRING } = CelScalar;
const TEXTS = listType(STRING);
const encoder = new TextEncoder();

/** The library's functions that count in code points or need no counting. */
const TAKEN = new Set(["strings.quote", "lowerAscii", "upperAscii", "trim", "format"]);

/** CEL's extension for texts, version 4. Positions are in code points; those of the library are in UTF-16 units. */
export const stringFunctions: CelFunc[] = [
  ...libraryStrings.filter(({ name }) => TAKEN.has(name)).map(limited),
  celFunc("_+_", [STRING, STRING], STRING, (one, other) => {
    assertLength(one.length + other.length);
    return one + other;
  }),
  celFunc("_+_", [BYTES, BYTES], BYTES, (one, other) => {
    countBytes(one.length + other.length);
    const joined = new Uint8Array(one.length + other.length);
    joined.set(one);
    joined.set(other, one.length);
    return joined;
  }),
  celFunc("bytes", [STRING], BYTES, (text) => {
    const bytes = encoder.encode(text);
    countBytes(bytes.length);
    return bytes;
  }),
  celMethod("charAt", STRING, [INT], STRING, function (index) {
    const points = [...this];
    return points[within(index, points.length)] ?? "";
  }),
  celMethod("indexOf", STRING, [STRING], INT, function (text) {
    return indexOf(this, text, 0n);
  }),
  celMethod("indexOf", STRING, [STRING, INT], INT, function (text, from) {
    return indexOf(this, text, from);
  }),
  celMethod("lastIndexOf", STRING, [STRING], INT, function (text) {
    return pointsBefore(this, this.lastIndexOf(text));
  }),
  celMethod("lastIndexOf", STRING, [STRING, INT], INT, function (text, from) {
    return pointsBefore(this, this.lastIndexOf(text, unitsBefore(this, from)));
  }),
  celMethod("replace", STRING, [STRING, STRING], STRING, function (from, to) {
    return replace(this, from, to, -1n);
  }),
  celMethod("replace", STRING, [STRING, STRING, INT], STRING, function (from, to, limit) {
    return replace(this, from, to, limit);
  }),
  celMethod("split", STRING, [STRING], TEXTS, function (by) {
    return split(this, by, -1n);
  }),
  celMethod("split", STRING, [STRING, INT], TEXTS, function (by, limit) {
    return split(this, by, limit);
  }),
  celMethod("substring", STRING, [INT], STRING, function (start) {
    return this.slice(unitsBefore(this, start));
  }),
  celMethod("substring", STRING, [INT, INT], STRING, function (start, end) {
    if (start > end) throw new Error(`the end ${end} is before the start ${start}`);
    return this.slice(unitsBefore(this, start), unitsBefore(this, end));
  }),
  celMethod("join", listType(DYN), [], STRING, function () {
    return join(elementsOf(this), "");
  }),
  celMethod("join", listType(DYN), [STRING], STRING, function (by) {
    return join(elementsOf(this), by);
  }),
  celMethod("reverse", STRING, [], STRING, function () {
    return [...this].reverse().join("");
  }),
];

/**
 * The function, which fails if its result is a text that is too long. Such a text takes memory when it is read: V8 ends the
 * process if a thread asks for much more than it may have at once.
 */
function limited(func: CelFunc): CelFunc {
  const call: CelFunc["call"] = (id, target, args) => {
    const result = func.call(id, target, args);
    const isLong = typeof result === "string" && result.length > MAX_LENGTH;
    return isLong ? celError(`a text would have more than ${MAX_LENGTH} characters`, id) : result;
  };
  return Object.create(func, { call: { value: call } });
}

/** @throws Error if an index is not from 0 to the length */
function within(index: bigint, length: number): number {
  if (index < 0n || index > length) throw new Error(`index ${index} is not from 0 to ${length}`);
  return Number(index);
}

/** The number of UTF-16 units before a code point. */
function unitsBefore(text: string, index: bigint): number {
  const points = [...text];
  return points.slice(0, within(index, points.length)).join("").length;
}

/** The number of code points before a UTF-16 unit; -1 for -1. */
function pointsBefore(text: string, unit: number): bigint {
  return unit < 0 ? -1n : BigInt([...text.slice(0, unit)].length);
}

function indexOf(text: string, searched: string, from: bigint): bigint {
  return pointsBefore(text, text.indexOf(searched, unitsBefore(text, from)));
}

/** Splits a text into at most `limit` parts, or any number if it is negative. */
function split(text: string, by: string, limit: bigint): string[] {
  if (limit === 0n) return [];
  // An empty separator separates code points.
  const parts = by === "" ? [...text] : text.split(by, MAX_ELEMENTS + 1);
  assertElements(parts.length);
  if (limit < 0n || limit >= parts.length) return parts;
  const first = parts.slice(0, Number(limit) - 1);
  const rest = first.reduce((length, part) => length + part.length + by.length, 0);
  return [...first, text.slice(rest)];
}

/** Replaces the first `limit` matches, or all if it is negative. An empty text matches before and after each code point. */
function replace(text: string, from: string, to: string, limit: bigint): string {
  let replaced = "";
  let end = 0;
  for (let left = limit; left !== 0n; left -= 1n) {
    const start = text.indexOf(from, end);
    if (start < 0) break;
    const [point = ""] = from === "" ? text.slice(start, start + 2) : [];
    replaced += text.slice(end, start) + to + point;
    assertLength(replaced.length);
    end = start + from.length + point.length;
    if (from === "" && point === "") break;
  }
  replaced += text.slice(end);
  assertLength(replaced.length);
  return replaced;
}

function join(parts: readonly unknown[], by: string): string {
  const texts = parts.filter((part) => typeof part === "string");
  if (texts.length < parts.length) throw new Error("join takes a list of texts only");
  assertLength(texts.reduce((length, text) => length + text.length + by.length, 0));
  return texts.join(by);
}
