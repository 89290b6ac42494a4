import { createHash } from "node:crypto";
import { type DescMessage, type FileRegistry, fromBinary } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { CatalogueEntry } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { buildFiles } from "./build.ts";
import type { StoredFile, StoredType } from "./model.ts";

/** The place and the detached comments of every stored declaration: the same for all, because there are as many as fields. */
const SHARED = { span: [0, 0, 1], leadingDetachedComments: [] };

/** Returns a message by its full name. */
type Messages = (name: string) => DescMessage;

/** The messages of the last call, by the hash of the files that are connected by imports. */
let groups: ReadonlyMap<string, Messages> = new Map();

/**
 * Makes what `setRegisteredTypes` takes. A message is built with the files that are connected with its own when one of them is used first:
 * thousands of event types take half a second and a hundred mebibytes, and most processes use few. Messages of files that are the same as
 * in the last call are the same objects, so that what is derived from them is kept. The files were checked when they were registered.
 *
 * @throws Error if no stored file declares the message of a type
 */
export function buildEntries(files: readonly StoredFile[], types: readonly StoredType[]): CatalogueEntry[] {
  const current = new Map<string, Messages>();
  const byMessage = new Map<string, Messages>();
  for (const group of connected(files)) {
    const hash = createHash("sha256");
    for (const { descriptor } of group) hash.update(descriptor);
    const key = hash.digest("base64");
    const messages = groups.get(key) ?? messagesOf(group.map(({ descriptor }) => descriptor));
    current.set(key, messages);
    for (const { names } of group) for (const name of names) byMessage.set(name, messages);
  }
  groups = current;
  /** A message in another one is declared with it. */
  const messagesWith = (name: string): Messages | undefined =>
    byMessage.get(name) ??
    (name.includes(".") ? messagesWith(name.slice(0, name.lastIndexOf("."))) : undefined);
  return types.map(({ process: number, name, alias, deprecated, message }) => {
    const messages = messagesWith(message);
    if (!messages) throw new Error(`no stored file declares ${message}, the message of event type ${number}`);
    return {
      ...{ number, name, message, ...present({ alias }), ...(deprecated ? { deprecated: true } : {}) },
      get payload() {
        return messages(message);
      },
    };
  });
}

/** @param descriptors taken out when they are built */
function messagesOf(descriptors: Uint8Array[]): Messages {
  let built: FileRegistry | undefined;
  return (name) => {
    built ??= buildFiles(descriptors.splice(0).map(decoded));
    const message = built.getMessage(name);
    if (!message) throw new Error(`no stored file declares ${name}`);
    return message;
  };
}

function decoded(descriptor: Uint8Array): FileDescriptorProto {
  const file = fromBinary(FileDescriptorProtoSchema, descriptor);
  for (const location of file.sourceCodeInfo?.location ?? []) Object.assign(location, SHARED);
  return file;
}

/** What is read of a stored file without building it. */
interface Outline extends StoredFile {
  imports: string[];
  /** The full names of the messages that it declares, without those in others. */
  names: string[];
}

/** Groups of files: files of one group import none of another. */
function connected(files: readonly StoredFile[]): Outline[][] {
  const outlines = new Map(files.map((file) => [file.path, outlineOf(file)]));
  const neighbours = new Map(files.map(({ path }) => [path, new Set([path])]));
  for (const { path, imports } of outlines.values())
    for (const imported of imports) {
      neighbours.get(path)?.add(imported);
      neighbours.get(imported)?.add(path);
    }
  const left = new Set([...outlines.keys()].sort());
  // Iterating over a set leaves out items removed meanwhile.
  return Array.from(left, (path) => {
    const group = new Set([path]);
    // Iterating over a set includes items added meanwhile.
    for (const each of group) for (const near of neighbours.get(each) ?? []) group.add(near);
    for (const each of group) left.delete(each);
    return [...group].flatMap((each) => outlines.get(each) ?? []);
  });
}

/** Reads an outline without decoding the file, which takes time and memory. The package was written before the messages. */
function outlineOf(file: StoredFile): Outline {
  const outline = { ...file, imports: [] as string[], names: [] as string[] };
  let prefix = "";
  for (const [number, bytes] of partsOf(file.descriptor)) {
    if (number === PACKAGE && bytes.length > 0) prefix = `${textOf(bytes)}.`;
    if (number === DEPENDENCY) outline.imports.push(textOf(bytes));
    if (number !== MESSAGE_TYPE) continue;
    for (const [part, name] of partsOf(bytes)) {
      if (part !== NAME) continue;
      outline.names.push(prefix + textOf(name));
      break;
    }
  }
  return outline;
}

const textOf = (bytes: Uint8Array) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString();

/** Fields of FileDescriptorProto. */
const PACKAGE = 2;
const DEPENDENCY = 3;
const MESSAGE_TYPE = 4;
/** A field of DescriptorProto. */
const NAME = 1;

/** The fields of an encoded message that have a text or a message: their numbers and bytes. */
function* partsOf(message: Uint8Array): Generator<[number: number, bytes: Uint8Array]> {
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    if (wireType === WireType.LengthDelimited) yield [number, reader.bytes()];
    else reader.skip(wireType, number);
  }
}
