import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { DomainError } from "../contract/errors.ts";

/**
 * The maximum number of elements in one message: fields, list items and map entries at any depth. Parsing turns each
 * into objects, so a message of 4 MiB that holds two million empty items would block the process for seconds.
 */
export const MAX_ELEMENTS = 100_000;
/** The maximum number of digits of a number in JSON. Converting four million of them to an integer takes 0.8 s. */
export const MAX_DIGITS = 1_000;
/** The maximum depth of nested messages, lists and objects. */
const MAX_DEPTH = 100;
/** Messages up to this size, in bytes, cannot hold enough elements or digits to block the process. */
const CHECKED_FROM_BYTES = 64 * 1_024;

/** The problem of a message with more elements. */
export const TOO_MANY = `holds more than ${MAX_ELEMENTS} fields and list items; send less at once`;
/** The problem of a message that is nested more deeply. */
export const tooDeep = (maxDepth: number) =>
  `is nested more than ${maxDepth} levels deep; send a flatter one`;
const TOO_MANY_DIGITS = `holds a number of more than ${MAX_DIGITS} digits; 64-bit integers have at most 19`;

/** @param what the message, or its path in the request */
export function tooComplex(problem: string, what = "the message"): DomainError {
  return new DomainError("MESSAGE_TOO_COMPLEX", `${what} ${problem}`);
}

/**
 * Checks a binary message before it is parsed. Bytes that are not valid protobuf pass: the parser refuses them.
 *
 * @throws DomainError INVALID_ARGUMENT, reason MESSAGE_TOO_COMPLEX
 */
export function checkBinaryElements({ fields }: DescMessage, bytes: Uint8Array): void {
  if (bytes.byteLength <= CHECKED_FROM_BYTES) return;
  try {
    countFields(fields, new BinaryReader(bytes), bytes.byteLength, { elements: 0, depth: 0 });
  } catch (error) {
    if (error instanceof DomainError) throw error;
  }
}

/** What is counted of a field, or of the value of a map's entry. */
interface Counted {
  number: number;
  fieldKind: DescField["fieldKind"];
  message: DescMessage | undefined;
  scalar?: ScalarType | undefined;
  /** Whether the items of a list have no tags of their own. */
  packed?: boolean;
}

/** The bytes of an item of a packed list, by type. Items of other types take at least one. */
const ITEM_BYTES: Partial<Record<ScalarType, number>> = {
  [ScalarType.DOUBLE]: 8,
  [ScalarType.FIXED64]: 8,
  [ScalarType.SFIXED64]: 8,
  [ScalarType.FLOAT]: 4,
  [ScalarType.FIXED32]: 4,
  [ScalarType.SFIXED32]: 4,
};

function countFields(
  fields: readonly Counted[],
  reader: BinaryReader,
  end: number,
  count: { elements: number; depth: number },
): void {
  if (++count.depth > MAX_DEPTH) throw tooComplex(tooDeep(MAX_DEPTH));
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    count.elements += 1;
    const field = fields.find((each) => each.number === number);
    if (!field || wireType !== WireType.LengthDelimited) {
      reader.skip(wireType, number, MAX_DEPTH);
    } else {
      const length = reader.uint32();
      const next = reader.pos + length;
      const inner = field.fieldKind === "map" ? entryOf(field) : field.message?.fields;
      if (inner) countFields(inner, reader, next, count);
      else if (field.packed) count.elements += length / (ITEM_BYTES[field.scalar as ScalarType] ?? 1);
      reader.pos = next;
    }
    if (count.elements > MAX_ELEMENTS) throw tooComplex(TOO_MANY);
  }
  count.depth -= 1;
}

/** The fields of a map's entry, as far as they can hold others: its value. */
function entryOf({ message }: Counted): Counted[] {
  return [{ number: 2, fieldKind: "message", message }];
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
  if (bytes.byteLength > CHECKED_FROM_BYTES) checkJsonNesting(bytes, MAX_DEPTH);
}

/**
 * The same for text of any size.
 *
 * @param maxDepth the maximum depth of nested lists and objects
 * @param what the text, for the error
 */
export function checkJsonNesting(bytes: Uint8Array, maxDepth: number, what?: string): void {
  let elements = 0;
  let depth = 0;
  for (let at = 0; at < bytes.byteLength; at += 1) {
    switch (bytes[at]) {
      case QUOTE: {
        const end = endOfString(bytes, at + 1);
        if (end - at > MAX_DIGITS && isNumber(bytes.subarray(at + 1, end)))
          throw tooComplex(TOO_MANY_DIGITS, what);
        at = end;
        break;
      }
      case OPEN_LIST:
      case OPEN_OBJECT:
        if (++depth > maxDepth) throw tooComplex(tooDeep(maxDepth), what);
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
    if (elements > MAX_ELEMENTS) throw tooComplex(TOO_MANY, what);
  }
}

function isNumber(bytes: Uint8Array): boolean {
  return NUMBER.test(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1"));
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
