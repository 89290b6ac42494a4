import type { DescEnum, DescExtension, DescFile, DescMessage, DescService } from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";

/** An index of file descriptors and their imports, for the requests of server reflection. */
export interface DescriptorIndex {
  /** A file by its path, such as `webhook/v1/event.proto`. */
  file(path: string): DescFile | undefined;
  /** The file that declares a message, enum, service, method, field, oneof, enum value or extension, by full name. */
  fileOfSymbol(name: string): DescFile | undefined;
  /** The file that declares the extension of a message with a field number. */
  fileOfExtension(typeName: string, number: number): DescFile | undefined;
  /** The numbers of a message's extensions in ascending order; undefined for an unknown message. */
  extensionNumbers(typeName: string): number[] | undefined;
}

/** Indexes the files and all their imports. */
export function indexDescriptors(roots: Iterable<DescFile>): DescriptorIndex {
  const files = new Map<string, DescFile>();
  for (const root of roots) for (const file of withImports(root)) files.set(file.proto.name, file);

  const symbols = new Map<string, DescFile>();
  const messages = new Set<string>();
  const extensions = new Map<string, Map<number, DescFile>>();
  for (const file of files.values()) {
    for (const type of nestedTypes(file)) {
      for (const name of namesIn(type)) symbols.set(name, file);
      if (type.kind === "message") messages.add(type.typeName);
      if (type.kind === "extension") {
        const extendee = type.extendee.typeName;
        const numbers = extensions.get(extendee) ?? new Map<number, DescFile>();
        extensions.set(extendee, numbers.set(type.number, file));
      }
    }
  }
  return {
    file: (path) => files.get(path),
    fileOfSymbol: (name) => symbols.get(name),
    fileOfExtension: (typeName, number) => extensions.get(typeName)?.get(number),
    extensionNumbers: (typeName) =>
      messages.has(typeName)
        ? [...(extensions.get(typeName)?.keys() ?? [])].sort((a, b) => a - b)
        : undefined,
  };
}

/** A file and all its imports, each once. */
export function withImports(file: DescFile): Set<DescFile> {
  const found = new Set([file]);
  // Iterating over a set includes items added meanwhile.
  for (const each of found) for (const imported of each.dependencies) found.add(imported);
  return found;
}

function namesIn(type: DescMessage | DescEnum | DescExtension | DescService): string[] {
  const { typeName } = type;
  switch (type.kind) {
    case "message":
      return [typeName, ...[...type.fields, ...type.oneofs].map(({ name }) => `${typeName}.${name}`)];
    case "service":
      return [typeName, ...type.methods.map(({ name }) => `${typeName}.${name}`)];
    case "enum": {
      // Enum values are siblings of their enum, as in C++.
      const scope = typeName.slice(0, typeName.lastIndexOf(".") + 1);
      return [typeName, ...type.values.map(({ name }) => scope + name)];
    }
    case "extension":
      return [typeName];
  }
}
