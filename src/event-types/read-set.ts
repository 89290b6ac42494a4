import { type DescField, type DescMessage, fromBinary, ScalarType } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import {
  EnumDescriptorProtoSchema,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import type { Problems } from "./model.ts";

/** The maximum size of a set of files, in bytes. */
export const MAX_SET_BYTES = 16 * 1_024 * 1_024;
const MAX_FILES = 5_000;
/** The maximum number of messages, of lists' items and of options in the descriptors of a set: each takes memory. */
const MAX_ELEMENTS = 600_000;
const MAX_ENUM_VALUES = 10_000;
/** The maximum depth of declarations within each other. */
const MAX_DEPTH = 64;
/** The maximum number of declarations whose lines and comments are kept. */
const MAX_LOCATIONS = 500_000;

/** Field numbers of FileDescriptorProto. Services and extensions are not read, because event types need none. */
const READ = new Set([1, 2, 3, 4, 5, 8, 10, 12, 14]);
const SOURCE_INFO = 9;

/** The file of the options of event types. */
export const OPTIONS_FILE = "webhook/v1/options.proto";
/** The files of the service and of Protobuf itself: whatever a set has under these names, this service's versions are used. */
export const OWN_FILES = /^(?:webhook\/v1\/options\.proto$|google\/protobuf\/)/;

/** The line and the comments of a declaration. */
export interface Location {
  line?: number;
  leading: string;
  trailing: string;
}

/** A proto file that was given or stored. */
export interface SourceFile {
  path: string;
  /** Without services, extensions and source information. */
  proto: FileDescriptorProto;
  /** Whether it is in the given set. */
  isGiven: boolean;
  /** By the path of the declaration in the file, such as `4.0.2.1`. */
  locations: ReadonlyMap<string, Location>;
}

/** A set that cannot be read, and what to do. */
class Unreadable extends Error {
  readonly remedy: string;

  constructor(problem: string, remedy: string) {
    super(problem);
    this.remedy = remedy;
  }
}

const COMPILE =
  "Compile the files with `buf build -o` or `protoc --descriptor_set_out --include_source_info`";
const SPLIT = "Register fewer files, or simpler ones";

/** Reads a FileDescriptorSet without the files of the service and of Protobuf itself. Never throws for bad bytes. */
export function readSet(set: Uint8Array, problems: Problems): SourceFile[] {
  const files = new Map<string, SourceFile>();
  const budget = { left: MAX_ELEMENTS };
  let path = "";
  try {
    if (set.length > MAX_SET_BYTES)
      throw new Unreadable(`it has ${set.length} bytes, more than the ${MAX_SET_BYTES} allowed`, SPLIT);
    for (const bytes of filesOf(set)) {
      path = "";
      const file = readFile(bytes, budget, (name) => {
        path = name;
      });
      if (!file || OWN_FILES.test(path)) continue;
      if (files.has(path)) throw new Unreadable("the set has two files of this path", COMPILE);
      if (files.size === MAX_FILES)
        throw new Unreadable(`the set has more than ${MAX_FILES} files, the most allowed`, SPLIT);
      files.set(path, file);
    }
  } catch (error) {
    const isOwn = error instanceof Unreadable;
    const problem = isOwn ? error.message : `it is no FileDescriptorSet: ${(error as Error).message}`;
    problems.add({ file: path, subject: path, problem, remedy: isOwn ? error.remedy : COMPILE });
    return [];
  }
  return [...files.values()];
}

/** Reads a stored file. @throws Error if it is damaged */
export function readStored(path: string, descriptor: Uint8Array): SourceFile {
  const proto = fromBinary(FileDescriptorProtoSchema, descriptor);
  const locations = new Map(
    (proto.sourceCodeInfo?.location ?? []).map((each) => [
      each.path.join("."),
      { leading: each.leadingComments, trailing: each.trailingComments },
    ]),
  );
  return { path, proto, isGiven: false, locations };
}

function* filesOf(set: Uint8Array): Generator<Uint8Array> {
  for (const { no, wireType, value } of fieldsOf(set)) {
    if (no !== 1) continue;
    if (wireType !== WireType.LengthDelimited) throw new Error("its field 1 is no message");
    yield value;
  }
}

interface WireField {
  no: number;
  wireType: WireType;
  /** The content of what has a length; otherwise the field's value as it is. */
  value: Uint8Array;
  /** The whole field, with its tag. */
  whole: Uint8Array;
}

function* fieldsOf(data: Uint8Array): Generator<WireField> {
  const reader = new BinaryReader(data);
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const [no, wireType] = reader.tag();
    const value = wireType === WireType.LengthDelimited ? reader.bytes() : reader.skip(wireType, no);
    yield { no, wireType, value, whole: data.subarray(start, reader.pos) };
  }
}

/** @param named called with the path as soon as it is known */
function readFile(
  bytes: Uint8Array,
  budget: { left: number },
  named: (path: string) => void,
): SourceFile | undefined {
  const parts: Uint8Array[] = [];
  const locations = new Map<string, Location>();
  let path = "";
  for (const field of fieldsOf(bytes)) {
    if (field.no === 1) {
      path = Buffer.from(field.value).toString();
      named(path);
      if (OWN_FILES.test(path)) return undefined;
    }
    if (READ.has(field.no)) parts.push(field.whole);
    if (field.no === SOURCE_INFO) readLocations(field.value, locations);
  }
  if (!/^\P{Cc}{1,500}$/u.test(path))
    throw new Unreadable("a file needs a path of 1 to 500 characters", COMPILE);
  const read = Buffer.concat(parts);
  measure(read, FileDescriptorProtoSchema, 0, budget);
  return { path, proto: fromBinary(FileDescriptorProtoSchema, read), isGiven: true, locations };
}

const fieldsByNumber = new WeakMap<DescMessage, ReadonlyMap<number, DescField>>();

/** Checks the size of a descriptor before it is decoded, because a few bytes can decode to much memory. */
function measure(data: Uint8Array, desc: DescMessage, depth: number, budget: { left: number }): void {
  if (depth > MAX_DEPTH)
    throw new Unreadable(`declarations are nested deeper than the ${MAX_DEPTH} levels allowed`, SPLIT);
  const fields = fieldsByNumber.getOrInsertComputed(
    desc,
    () => new Map(desc.fields.map((field) => [field.number, field])),
  );
  let enumValues = 0;
  for (const { no, wireType, value } of fieldsOf(data)) {
    const field = fields.get(no);
    if (field && !hasWireType(field, wireType))
      throw new Error(`${desc.typeName}.${field.name} has wire type ${wireType}`);
    // Single numbers and texts take no memory of their own worth counting. A list of numbers has at most one item per byte.
    const isNumbers = field?.fieldKind === "list" && field.scalar === ScalarType.INT32;
    budget.left -= isNumbers ? value.length : field && field.fieldKind !== "list" && !field.message ? 0 : 1;
    if (budget.left < 0)
      throw new Unreadable(`the set has more than ${MAX_ELEMENTS} declarations and options`, SPLIT);
    if (desc === EnumDescriptorProtoSchema && no === 2 && ++enumValues > MAX_ENUM_VALUES)
      throw new Unreadable(
        `an enum has more than ${MAX_ENUM_VALUES} values, the most allowed`,
        "Use an enum with fewer values, or a text",
      );
    if (field?.message) measure(value, field.message, depth + 1, budget);
  }
}

function hasWireType(field: DescField, wireType: WireType): boolean {
  if (field.message || field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES)
    return wireType === WireType.LengthDelimited;
  if (field.scalar === ScalarType.DOUBLE) return wireType === WireType.Bit64;
  return (
    wireType === WireType.Varint || (field.fieldKind === "list" && wireType === WireType.LengthDelimited)
  );
}

/** Reads the lines and comments of declarations. Compilers write several times as many locations: of types, numbers and options. */
function readLocations(info: Uint8Array, locations: Map<string, Location>): void {
  for (const { no, wireType, value } of fieldsOf(info)) {
    if (no !== 1 || wireType !== WireType.LengthDelimited) continue;
    let path: number[] = [];
    let line = 0;
    const comments = { leading: "", trailing: "" };
    for (const field of fieldsOf(value)) {
      if (field.wireType !== WireType.LengthDelimited) continue;
      if (field.no === 1) path = numbersOf(field.value);
      if (field.no === 2) line = numbersOf(field.value, 1)[0] ?? 0;
      if (field.no === 3) comments.leading = Buffer.from(field.value).toString();
      if (field.no === 4) comments.trailing = Buffer.from(field.value).toString();
    }
    if (isDeclaration(path) && locations.size < MAX_LOCATIONS)
      locations.set(path.join("."), { line: line + 1, ...comments });
  }
}

/** Whether a path is that of a message, enum, field, oneof or enum value, and not of a part of it. */
function isDeclaration(path: readonly number[]): boolean {
  if (path.length === 0 || path.length % 2 === 1 || path.length > 2 * MAX_DEPTH) return false;
  return path.every((number, index) => index % 2 === 1 || [2, 3, 4, 5, 8].includes(number));
}

function numbersOf(packed: Uint8Array, max = 2 * MAX_DEPTH + 1): number[] {
  const reader = new BinaryReader(packed);
  const numbers: number[] = [];
  while (reader.pos < reader.len && numbers.length < max) numbers.push(reader.int32());
  return numbers;
}
