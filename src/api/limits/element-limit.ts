import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { DomainError } from "../../contract/errors.ts";

/**
 * The maximum number of elements in one message: fields, list items and map entries at any depth. Parsing turns each
 * into objects, so a message of 4 MiB that holds two million empty items would block the process for seconds.
 */
export const MAX_ELEMENTS = 100_000;
/** The maximum number of digits of a number in JSON. Converting text to an integer takes quadratic time. */
export const MAX_DIGITS = 1_000;
/** The maximum depth of nested messages, lists and objects. */
const MAX_DEPTH = 100;
/** Messages up to this size, in bytes, cannot hold enough elements or digits to block the process. */
const CHECKED_FROM_BYTES = 64 * 1_024;

function tooManyElements(): DomainError {
  return new DomainError(
    "INVALID_ARGUMENT",
    `the message holds more than ${MAX_ELEMENTS} fields and list items; send less at once`,
    { reason: "MESSAGE_TOO_COMPLEX" },
  );
}

function tooDeep(): DomainError {
  return new DomainError(
    "INVALID_ARGUMENT",
    `the message is nested more than ${MAX_DEPTH} levels deep; send a flatter one`,
    { reason: "MESSAGE_TOO_COMPLEX" },
  );
}

/**
 * Checks a binary message before it is parsed. Bytes that are not valid protobuf pass: the parser refuses them.
 *
 * @throws DomainError INVALID_ARGUMENT, reason MESSAGE_TOO_COMPLEX
 */
export function checkBinaryElements(desc: DescMessage, bytes: Uint8Array): void {
  if (bytes.byteLength <= CHECKED_FROM_BYTES) return;
  try {
    countFields(desc, new BinaryReader(bytes), bytes.byteLength, { elements: 0, depth: 0 });
  } catch (error) {
    if (error instanceof DomainError) throw error;
  }
}

interface Count {
  elements: number;
  depth: number;
}

type MapField = DescField & { fieldKind: "map" };

/** @param desc a message, or the map whose entry is read */
function countFields(desc: DescMessage | MapField, reader: BinaryReader, end: number, count: Count): void {
  if (++count.depth > MAX_DEPTH) throw tooDeep();
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    if (++count.elements > MAX_ELEMENTS) throw tooManyElements();
    const field = fieldOf(desc, number);
    if (field === undefined || wireType !== WireType.LengthDelimited) {
      reader.skip(wireType, number, MAX_DEPTH);
      continue;
    }
    const length = reader.uint32();
    const next = reader.pos + length;
    const inner = messageIn(field);
    if (inner) countFields(inner, reader, next, count);
    else if (isList(field)) count.elements += length / packedItemBytes(field);
    if (count.elements > MAX_ELEMENTS) throw tooManyElements();
    reader.pos = next;
  }
  count.depth -= 1;
}

/** A field of a message. Of a map's entry, whose value is field 2: the type of the value if it is a message. */
function fieldOf(desc: DescMessage | MapField, number: number): DescField | DescMessage | undefined {
  if (desc.kind === "field") return number === 2 ? desc.message : undefined;
  return desc.fields.find((field) => field.number === number);
}

/** What a field holds whose fields are counted: a message, or a map's entry; undefined if it holds other values. */
function messageIn(field: DescField | DescMessage): DescMessage | MapField | undefined {
  return field.kind === "message" || field.fieldKind === "map" ? field : field.message;
}

function isList(field: DescField | DescMessage): field is DescField & { fieldKind: "list" } {
  return field.kind === "field" && field.fieldKind === "list";
}

/** The least number of bytes that an item of a packed list takes; strings and bytes are never packed. */
function packedItemBytes(field: DescField & { fieldKind: "list" }): number {
  if (field.listKind !== "scalar") return 1;
  switch (field.scalar) {
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return Number.POSITIVE_INFINITY;
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return 8;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return 4;
    default:
      return 1;
  }
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_LIST = 0x5b;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const NUMBER = /^\s*[+-]?\d+\s*$/;

/**
 * Checks JSON text in UTF-8 before it is decoded and parsed. Text that is not valid JSON passes: the parser refuses it.
 *
 * @throws DomainError INVALID_ARGUMENT, reason MESSAGE_TOO_COMPLEX
 */
export function checkJsonElements(bytes: Uint8Array): void {
  if (bytes.byteLength <= CHECKED_FROM_BYTES) return;
  let elements = 0;
  let depth = 0;
  for (let at = 0; at < bytes.byteLength; at += 1) {
    switch (bytes[at]) {
      case QUOTE: {
        const end = endOfString(bytes, at + 1);
        if (end - at > MAX_DIGITS && isNumber(bytes.subarray(at + 1, end))) throw tooManyDigits();
        at = end;
        break;
      }
      case OPEN_LIST:
      case OPEN_OBJECT:
        if (++depth > MAX_DEPTH) throw tooDeep();
        elements += 1;
        break;
      case CLOSE_LIST:
      case CLOSE_OBJECT:
        depth -= 1;
        break;
      case COMMA:
        elements += 1;
        break;
    }
    if (elements > MAX_ELEMENTS) throw tooManyElements();
  }
}

function isNumber(bytes: Uint8Array): boolean {
  return NUMBER.test(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"));
}

function tooManyDigits(): DomainError {
  return new DomainError(
    "INVALID_ARGUMENT",
    `the message holds a number of more than ${MAX_DIGITS} digits; 64-bit integers have at most 19`,
    { reason: "MESSAGE_TOO_COMPLEX" },
  );
}

/** The place of the quote that ends the string, or the end of the text. */
function endOfString(bytes: Uint8Array, from: number): number {
  for (let end = bytes.indexOf(QUOTE, from); end >= 0; end = bytes.indexOf(QUOTE, end + 1)) {
    let backslashes = 0;
    while (bytes[end - 1 - backslashes] === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return end;
  }
  return bytes.byteLength;
}
