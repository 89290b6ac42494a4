import { createHash } from "node:crypto";
import { type DescFile, type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { CatalogueEntry } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { buildFile, OWN } from "./build.ts";
import type { StoredFile, StoredType } from "./model.ts";

/** The place and the detached comments of every stored declaration: the same for all, because there are as many as fields. */
const SHARED = { span: [0, 0, 1], leadingDetachedComments: [] };

/** A stored file that is built when one of its messages is used first. */
interface LazyFile {
  /** The hash of the file and of all that it imports. */
  hash: string;
  built: () => { file: DescFile; messages: ReadonlyMap<string, DescMessage> };
}

/** The files of the last call, by their hashes. */
let kept: ReadonlyMap<string, LazyFile> = new Map();

/**
 * Makes what `setRegisteredTypes` takes. A message is built with its file and what that imports when it is used first: thousands of event types
 * take half a second and a hundred mebibytes, and most processes use few. Messages of files that are the same as in the last call, as is all
 * that they import, are the same objects, so that what is derived from them is kept. The files were checked when they were registered.
 *
 * @throws Error if no stored file declares the message of a type
 */
export function buildEntries(files: readonly StoredFile[], types: readonly StoredType[]): CatalogueEntry[] {
  const outlines = new Map(files.map((file) => [file.path, outlineOf(file)]));
  const byPath = new Map<string, LazyFile>();
  const byMessage = new Map<string, LazyFile>();
  const lazyFile = ({ path, descriptor, imports, names }: Outline): LazyFile => {
    const known = byPath.get(path);
    if (known) return known;
    const imported = imports.flatMap((each) => outlines.get(each) ?? []).map(lazyFile);
    const own = imports.flatMap((each) => OWN.get(each) ?? []);
    const digest = createHash("sha256").update(descriptor);
    for (const each of imported) digest.update(each.hash);
    const hash = digest.digest("base64");
    const file = kept.get(hash) ?? { hash, built: builderOf(descriptor, imported, own) };
    byPath.set(path, file);
    for (const name of names) byMessage.set(name, file);
    return file;
  };
  kept = new Map(Array.from(outlines.values(), lazyFile).map((file) => [file.hash, file]));
  /** A message in another one is declared with it. */
  const fileWith = (name: string): LazyFile | undefined =>
    byMessage.get(name) ?? (name.includes(".") ? fileWith(name.slice(0, name.lastIndexOf("."))) : undefined);
  return types.map(({ process: number, name, alias, deprecated, message }) => {
    const file = fileWith(message);
    if (!file) throw new Error(`no stored file declares ${message}, the message of event type ${number}`);
    return {
      ...{ number, name, message, ...present({ alias }), ...(deprecated ? { deprecated: true } : {}) },
      get payload() {
        const payload = file.built().messages.get(message);
        if (!payload) throw new Error(`no stored file declares ${message}`);
        return payload;
      },
    };
  });
}

/** @param own the files of Protobuf itself that the file imports */
function builderOf(
  descriptor: Uint8Array,
  imported: readonly LazyFile[],
  own: readonly DescFile[],
): LazyFile["built"] {
  let built: ReturnType<LazyFile["built"]> | undefined;
  // Let go of once it is built.
  let bytes: Uint8Array | undefined = descriptor;
  return () => {
    if (bytes) {
      const file = buildFile(decoded(bytes), [...imported.map((each) => each.built().file), ...own]);
      const messages = [...nestedTypes(file)].filter((desc) => desc.kind === "message");
      built = { file, messages: new Map(messages.map((desc) => [desc.typeName, desc])) };
      bytes = undefined;
    }
    return built as NonNullable<typeof built>;
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
