import { isUtf8 } from "node:buffer";
import { type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { invalidField } from "../../calls/errors/index.ts";
import { elements } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { TIMESTAMP } from "../../contract/json/field-types.ts";
import { enumChoices, propertyName } from "../../contract/json/names.ts";

/** The maximum size of a payload as JSON, in bytes. */
export const MAX_PAYLOAD_BYTES = 262_144;
/** The maximum depth of objects and lists in a payload. Some parsers of JSON, such as .NET's, refuse more. */
export const MAX_NESTING = 64;

/** The error for a payload that is larger as JSON. @param bytes its size, if known */
export function payloadTooLarge(field: string, bytes?: number): DomainError {
  const size = bytes === undefined ? "has more bytes as JSON" : `is ${bytes} bytes as JSON, more`;
  return invalidField(field, `${size} than the ${MAX_PAYLOAD_BYTES} allowed`);
}

/** The minimum size of the fields of a message as JSON, in bytes. */
export function leastJsonBytes(desc: DescMessage): number {
  // Each with its name in quotes, a colon, one character and a comma.
  return desc.typeName === TIMESTAMP
    ? 20
    : desc.fields.reduce((sum, field) => sum + propertyName(field).length + 5, 0);
}

/** A message in Protobuf's binary format: a payload, a message in it, or an entry of a map. */
interface WireMessage {
  /** For errors. */
  name: string;
  fields: Map<number, WireField>;
  jsonBytes: number;
  /** The levels of its JSON below itself that it has without any value: lists are written also if they are empty. */
  levels: number;
}

/** A value that may follow a tag, or one of a packed list. */
interface WireValue {
  wireType: WireType;
  message?: WireMessage;
  /** Moves the reader past the value, and returns the problem of one that payloads cannot have. */
  pass: (reader: BinaryReader, bytes: Uint8Array) => string | undefined;
}

interface WireField extends WireValue {
  name: string;
  isList: boolean;
  isMap?: boolean;
}

const compiled = new WeakMap<DescMessage, WireMessage>();

function wireMessage(desc: DescMessage): WireMessage {
  const known = compiled.get(desc);
  if (known) return known;
  const holdsLists = desc.fields.some(({ fieldKind }) => fieldKind === "list" || fieldKind === "map");
  const made: WireMessage = {
    name: desc.typeName,
    fields: new Map(),
    jsonBytes: leastJsonBytes(desc),
    // A time is a text.
    levels: desc.typeName === TIMESTAMP ? -1 : Number(holdsLists),
  };
  // Before its fields, so that types may be recursive.
  compiled.set(desc, made);
  for (const field of desc.fields) made.fields.set(field.number, wireField(field));
  return made;
}

function wireField(field: DescField): WireField {
  const { name } = field;
  if (field.fieldKind !== "map") return { name, isList: field.fieldKind === "list", ...wireValue(field) };
  const key = { name: "key", isList: false, ...SCALARS[field.mapKey] };
  const fields = new Map([
    [1, key],
    [2, { name: "value", isList: false, ...wireValue(field) }],
  ]);
  const message = { name: `an entry of ${name}`, fields, jsonBytes: '"":0,'.length, levels: 0 };
  return { name, isList: true, isMap: true, ...MESSAGE, message };
}

/** The value of a singular field, an item of a list, or the value of a map's entry. */
function wireValue(field: DescField): WireValue {
  if (field.message) {
    const isGroup = "delimitedEncoding" in field && field.delimitedEncoding;
    const message = wireMessage(field.message);
    return isGroup ? { ...MESSAGE, wireType: WireType.StartGroup, message } : { ...MESSAGE, message };
  }
  if (!field.enum) return SCALARS[field.scalar as ScalarType];
  const desc = field.enum;
  return { wireType: WireType.Varint, pass: (reader) => enumProblem(desc, reader.int32()) };
}

const skipped = (wireType: WireType): WireValue => ({
  wireType,
  pass: (reader) => void reader.skip(wireType),
});
const VARINT = skipped(WireType.Varint);
const BIT_32 = skipped(WireType.Bit32);
const BIT_64 = skipped(WireType.Bit64);
/** Its `pass` is not called. */
const MESSAGE = skipped(WireType.LengthDelimited);

const SCALARS: Record<ScalarType, WireValue> = {
  [ScalarType.STRING]: { wireType: WireType.LengthDelimited, pass: textProblem },
  [ScalarType.BYTES]: skipped(WireType.LengthDelimited),
  [ScalarType.FLOAT]: { wireType: WireType.Bit32, pass: (reader) => infiniteProblem(reader.float()) },
  [ScalarType.DOUBLE]: { wireType: WireType.Bit64, pass: (reader) => infiniteProblem(reader.double()) },
  [ScalarType.FIXED32]: BIT_32,
  [ScalarType.SFIXED32]: BIT_32,
  [ScalarType.FIXED64]: BIT_64,
  [ScalarType.SFIXED64]: BIT_64,
  [ScalarType.INT32]: VARINT,
  [ScalarType.INT64]: VARINT,
  [ScalarType.UINT32]: VARINT,
  [ScalarType.UINT64]: VARINT,
  [ScalarType.SINT32]: VARINT,
  [ScalarType.SINT64]: VARINT,
  [ScalarType.BOOL]: VARINT,
};

function textProblem(reader: BinaryReader, bytes: Uint8Array): string | undefined {
  const length = reader.uint32();
  const start = reader.pos;
  reader.pos += length;
  return isUtf8(bytes.subarray(start, reader.pos)) ? undefined : "is not UTF-8; send Unicode text";
}

function infiniteProblem(value: number): string | undefined {
  return Number.isFinite(value)
    ? undefined
    : `is ${value}, which JSON cannot represent; send a finite number`;
}

function enumProblem(desc: DescEnum, number: number): string | undefined {
  if (desc.value[number] !== undefined) return undefined;
  return `is ${number}, which is no ${desc.name}; allowed: ${enumChoices(desc).join(", ")}`;
}

/** What is known of a payload while it is read. */
interface Reading {
  reader: BinaryReader;
  bytes: Uint8Array;
  /** The path of the payload, of the message that is read in it, and of the field there. */
  path: string[];
  elements: number;
  /** The minimum size as JSON of what was read, in bytes. */
  jsonBytes: number;
}

/**
 * Checks a payload in Protobuf's binary format before it is decoded. The decoder ignores what is refused here: fields that the type
 * does not have, wire types of other types, enum numbers without a name. It also takes no more time and memory than a payload may.
 *
 * @param path the path of the payload in the request
 * @throws DomainError INVALID_ARGUMENT with the path
 */
export function checkPayloadBytes(desc: DescMessage, bytes: Uint8Array, path: string): void {
  const reader = new BinaryReader(bytes);
  const reading = { reader, bytes, path: [path], elements: 0, jsonBytes: 0 };
  try {
    readMessage(wireMessage(desc), reading, 1, bytes.byteLength);
  } catch (error) {
    throw error instanceof DomainError ? error : malformed(desc, path);
  }
}

/** The error for bytes that are not a message of a type. */
export function malformed(desc: DescMessage, field: string): DomainError {
  return invalidField(
    field,
    `does not hold a ${desc.typeName} in Protobuf's binary format; serialize a message of this type`,
  );
}

/**
 * @param depth the depth of its JSON
 * @param group the number of the field whose value ends with an end tag instead of a length
 */
function readMessage(wire: WireMessage, reading: Reading, depth: number, end: number, group?: number): void {
  const { reader, path } = reading;
  reading.jsonBytes += wire.jsonBytes;
  if (reading.jsonBytes > MAX_PAYLOAD_BYTES) throw payloadTooLarge(path[0] as string);
  if (depth + wire.levels > MAX_NESTING) throw elements.tooComplex(elements.tooDeep(MAX_NESTING), path[0]);
  /** The numbers of items read so far, by field. */
  let items: Map<number, number> | undefined;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    if (wireType === WireType.EndGroup && number === group) return;
    const field = wire.fields.get(number);
    if (!field) throw unknownField(wire, number, path);
    const isPacked =
      wireType === WireType.LengthDelimited && field.isList && field.wireType !== WireType.LengthDelimited;
    path.push(`.${field.name}`);
    if (wireType !== field.wireType && !(isPacked && !field.message)) throw otherType(wire, number, path);
    if (field.message) {
      addElement(reading);
      if (field.isList) {
        items ??= new Map();
        const index = items.get(number) ?? 0;
        items.set(number, index + 1);
        path.push(`[${index}]`);
      }
      const below = depth + (field.isList && !field.isMap ? 2 : 1);
      if (wireType === WireType.StartGroup) readMessage(field.message, reading, below, end, number);
      else readMessage(field.message, reading, below, endOf(reading, end));
      if (field.isList) path.pop();
    } else if (isPacked) {
      const last = endOf(reading, end);
      while (reader.pos < last) readValue(field, reading);
      if (reader.pos !== last) throw new RangeError();
    } else readValue(field, reading);
    path.pop();
  }
  if (reader.pos !== end || group !== undefined) throw new RangeError();
}

function readValue(field: WireField, reading: Reading): void {
  addElement(reading);
  const description = field.pass(reading.reader, reading.bytes);
  if (description !== undefined) throw invalidField(reading.path.join(""), description);
}

function addElement(reading: Reading): void {
  if (++reading.elements > elements.MAX_ELEMENTS)
    throw elements.tooComplex(elements.TOO_MANY, reading.path[0]);
}

/** Reads a length. Returns where the value ends. */
function endOf({ reader }: Reading, end: number): number {
  const length = reader.uint32();
  if (length > end - reader.pos) throw new RangeError();
  return reader.pos + length;
}

function unknownField({ name, fields }: WireMessage, number: number, path: readonly string[]): DomainError {
  const allowed = [...fields].map(([each, field]) => `${each} (${field.name})`).join(", ") || "none";
  return invalidField(
    path.join(""),
    `has a field ${number}, which ${name} does not have; allowed: ${allowed}`,
  );
}

function otherType({ name }: WireMessage, number: number, path: readonly string[]): DomainError {
  const remedy = "generate code from the registered proto file";
  return invalidField(path.join(""), `(field ${number}) has another type than in ${name}; ${remedy}`);
}
