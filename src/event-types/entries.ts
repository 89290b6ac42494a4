import { type DescMessage, type FileRegistry, fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { CatalogueEntry } from "../contract/catalogue.ts";
import { buildFiles } from "./build.ts";
import type { StoredFile, StoredType } from "./model.ts";

/** Files that are connected by imports, and what was built of them. */
interface Group {
  files: readonly FileDescriptorProto[];
  built: FileRegistry;
}

interface Decoded {
  descriptor: Uint8Array;
  proto: FileDescriptorProto;
}

/** The place and the detached comments of every stored declaration. */
const SPAN: number[] = [0, 0, 1];
const NONE: string[] = [];

/** What the last call decoded and built, by path. */
let decoded: ReadonlyMap<string, Decoded> = new Map();
let groups: ReadonlyMap<string, Group> = new Map();

/**
 * Builds what `setRegisteredTypes` takes. The files were checked when they were registered. Messages of files that are the same as in
 * the last call are the same objects, so that what is derived from them is kept.
 *
 * @throws Error if a stored file is damaged, or lacks the message of a type
 */
export function buildEntries(files: readonly StoredFile[], types: readonly StoredType[]): CatalogueEntry[] {
  const current = new Map(files.map((file) => [file.path, decode(file)]));
  const built = new Map<string, Group>();
  const messages = new Map<string, DescMessage>();
  for (const paths of connected(current)) {
    const protos = paths.map((path) => (current.get(path) as Decoded).proto);
    const before = groups.get(paths[0] as string);
    const isSame =
      before?.files.length === protos.length && protos.every((each) => before.files.includes(each));
    const group = isSame && before ? before : { files: protos, built: buildFiles(protos) };
    for (const path of paths) built.set(path, group);
    for (const each of group.built) if (each.kind === "message") messages.set(each.typeName, each);
  }
  const entries = types.map(({ process, name, alias, message, deprecated }) => {
    const payload = messages.get(message);
    if (!payload) throw new Error(`no stored file declares ${message}, the message of event type ${process}`);
    return {
      number: process,
      name,
      ...(alias === null ? {} : { alias }),
      payload,
      ...(deprecated === null ? {} : { deprecated: true }),
    };
  });
  decoded = current;
  groups = built;
  return entries;
}

function decode({ path, descriptor }: StoredFile): Decoded {
  const before = decoded.get(path);
  if (before && Buffer.compare(before.descriptor, descriptor) === 0) return before;
  const proto = fromBinary(FileDescriptorProtoSchema, descriptor);
  // The same for all: there are as many as fields.
  for (const location of proto.sourceCodeInfo?.location ?? [])
    Object.assign(location, { span: SPAN, leadingDetachedComments: NONE });
  return { descriptor, proto };
}

/** The paths of files in groups: files of one group import none of another. */
function connected(files: ReadonlyMap<string, Decoded>): string[][] {
  const neighbours = new Map(Array.from(files.keys(), (path) => [path, new Set<string>()]));
  for (const [path, { proto }] of files)
    for (const imported of proto.dependency) {
      if (!files.has(imported)) continue;
      neighbours.get(path)?.add(imported);
      neighbours.get(imported)?.add(path);
    }
  const seen = new Set<string>();
  return [...files.keys()].flatMap((path) => {
    if (seen.has(path)) return [];
    const group = new Set([path]);
    // Iterating over a set includes items added meanwhile.
    for (const each of group) for (const near of neighbours.get(each) ?? []) group.add(near);
    for (const each of group) seen.add(each);
    return [[...group]];
  });
}
