import { createHash } from "node:crypto";
import { type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { CatalogueEntry } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { buildFiles } from "./build.ts";
import type { StoredFile, StoredType } from "./model.ts";

/** The place and the detached comments of every stored declaration: the same for all, because there are as many as fields. */
const SHARED = { span: [0, 0, 1], leadingDetachedComments: [] };

/** The messages of the last call, by the hash of the files that are connected by imports. */
let groups: ReadonlyMap<string, DescMessage[]> = new Map();

/**
 * Builds what `setRegisteredTypes` takes. The files were checked when they were registered. Messages of files that are the same as in
 * the last call are the same objects, so that what is derived from them is kept.
 *
 * @throws Error if a stored file is damaged, or lacks the message of a type
 */
export function buildEntries(files: readonly StoredFile[], types: readonly StoredType[]): CatalogueEntry[] {
  const current = new Map<string, DescMessage[]>();
  const changed = new Map<string, { file: FileDescriptorProto; messages: DescMessage[] }>();
  for (const group of connected(files)) {
    const hash = createHash("sha256");
    for (const { descriptor } of group) hash.update(descriptor);
    const key = hash.digest("base64");
    const messages = groups.get(key) ?? [];
    current.set(key, messages);
    if (!groups.has(key)) for (const { path, file } of group) changed.set(path, { file, messages });
  }
  // Built together, so that they share what they import of Protobuf.
  for (const desc of buildFiles(Array.from(changed.values(), ({ file }) => file)))
    if (desc.kind === "message") changed.get(desc.file.proto.name)?.messages.push(desc);
  groups = current;
  const payloads = new Map([...current.values()].flat().map((message) => [message.typeName, message]));
  return types.map((type) => {
    const { process, message } = type;
    const payload = payloads.get(message);
    if (!payload) throw new Error(`no stored file declares ${message}, the message of event type ${process}`);
    return { ...namesOf(type), payload };
  });
}

/** `buildEntries` that builds all messages when one is used first. */
export function lazyEntries(files: readonly StoredFile[], types: readonly StoredType[]): CatalogueEntry[] {
  let built: ReadonlyMap<number, CatalogueEntry> | undefined;
  return types.map((type) => ({
    ...namesOf(type),
    get payload() {
      built ??= new Map(buildEntries(files, types).map((entry) => [entry.number, entry]));
      return (built.get(type.process) as CatalogueEntry).payload;
    },
  }));
}

/** What needs no message. */
function namesOf({ process, name, alias, deprecated }: StoredType): Omit<CatalogueEntry, "payload"> {
  return { number: process, name, ...present({ alias }), ...(deprecated ? { deprecated: true } : {}) };
}

/** Decodes files. @returns groups of them: files of one group import none of another */
function connected(files: readonly StoredFile[]): (StoredFile & { file: FileDescriptorProto })[][] {
  const decoded = new Map(
    files.map((each) => [
      each.path,
      { ...each, file: fromBinary(FileDescriptorProtoSchema, each.descriptor) },
    ]),
  );
  const neighbours = new Map(files.map(({ path }) => [path, new Set([path])]));
  for (const { path, file } of decoded.values()) {
    for (const location of file.sourceCodeInfo?.location ?? []) Object.assign(location, SHARED);
    for (const imported of file.dependency) {
      neighbours.get(path)?.add(imported);
      neighbours.get(imported)?.add(path);
    }
  }
  const left = new Set([...decoded.keys()].sort());
  // Iterating over a set leaves out items removed meanwhile.
  return Array.from(left, (path) => {
    const group = new Set([path]);
    // Iterating over a set includes items added meanwhile.
    for (const each of group) for (const near of neighbours.get(each) ?? []) group.add(near);
    for (const each of group) left.delete(each);
    return [...group].flatMap((each) => decoded.get(each) ?? []);
  });
}
