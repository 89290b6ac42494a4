import { create, createFileRegistry, type FileRegistry } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorSetSchema,
  file_google_protobuf_timestamp,
} from "@bufbuild/protobuf/wkt";

/** Files in an order in which each is after those that it imports, and a circle of imports if they have one. */
export interface Ordered {
  files: FileDescriptorProto[];
  /** The paths of files that import each other, the first one again at the end. */
  circle?: string[];
}

/** Orders files by their imports. Imports of other files are ignored. */
export function inOrderOfImports(files: Iterable<FileDescriptorProto>): Ordered {
  const byPath = new Map(Array.from(files, (file) => [file.name, file]));
  const ordered = new Set<FileDescriptorProto>();
  for (const file of byPath.values()) {
    // The files that import each other, from the outermost on, each with the number of its imports that are done.
    const open = new Map([[file, 0]]);
    const stack = [file];
    for (let last = stack.at(-1); last; last = stack.at(-1)) {
      const index = open.get(last) ?? 0;
      const path = last.dependency[index];
      if (path === undefined || ordered.has(last)) {
        ordered.add(last);
        open.delete(last);
        stack.pop();
        continue;
      }
      open.set(last, index + 1);
      const imported = byPath.get(path);
      if (!imported || ordered.has(imported)) continue;
      if (open.has(imported)) {
        const circle = stack.slice(stack.indexOf(imported)).map(({ name }) => name);
        return { files: [], circle: [...circle, imported.name] };
      }
      open.set(imported, 0);
      stack.push(imported);
    }
  }
  return { files: [...ordered] };
}

/** Builds files that have no other imports than each other and timestamp.proto. @throws Error if a descriptor is not valid */
export function buildFiles(files: readonly FileDescriptorProto[]): FileRegistry {
  const { files: ordered, circle } = inOrderOfImports(files);
  if (circle) throw new Error(`these files import each other: ${circle.join(", ")}`);
  return createFileRegistry(
    create(FileDescriptorSetSchema, { file: [file_google_protobuf_timestamp.proto, ...ordered] }),
  );
}
