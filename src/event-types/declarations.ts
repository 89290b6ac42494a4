import { getExtension, hasExtension } from "@bufbuild/protobuf";
import type { DescriptorProto, EnumDescriptorProto, FieldDescriptorProto } from "@bufbuild/protobuf/wkt";
import { type EventTypeOptions, event_type } from "../../gen/webhook/v1/options_pb.ts";
import type { CatalogueProblem, Problems } from "./model.ts";
import { OPTIONS_FILE, type SourceFile } from "./read-set.ts";

interface Declared<Kind, Proto> {
  kind: Kind;
  /** The full name. */
  name: string;
  proto: Proto;
  file: SourceFile;
  /** The path in the file's descriptor: field numbers and indexes. */
  path: readonly number[];
  parent: DeclaredMessage | undefined;
}

export type DeclaredMessage = Declared<"message", DescriptorProto>;
export type DeclaredEnum = Declared<"enum", EnumDescriptorProto>;
export type Declaration = DeclaredMessage | DeclaredEnum;

/** Field numbers of descriptor.proto, which form the paths of declarations. */
export const IN_FILE = { messages: 4, enums: 5 };
export const IN_MESSAGE = { fields: 2, messages: 3, enums: 4, oneofs: 8 };
export const ENUM_VALUES = 2;

/** The messages and enums of a file, nested ones included. */
export function declarationsOf(file: SourceFile): Declaration[] {
  const declared: Declaration[] = [];
  const { proto } = file;
  const take = (
    within: { messages: DescriptorProto[]; enums: EnumDescriptorProto[] },
    numbers: { messages: number; enums: number },
    path: readonly number[],
    parent: DeclaredMessage | undefined,
  ) => {
    const scope = parent ? `${parent.name}.` : proto.package && `${proto.package}.`;
    const common = (name: string, ...last: number[]) => ({
      name: scope + name,
      file,
      path: [...path, ...last],
      parent,
    });
    for (const [index, each] of within.enums.entries())
      declared.push({ kind: "enum", proto: each, ...common(each.name, numbers.enums, index) });
    for (const [index, each] of within.messages.entries()) {
      const message: DeclaredMessage = {
        kind: "message",
        proto: each,
        ...common(each.name, numbers.messages, index),
      };
      declared.push(message);
      take({ messages: each.nestedType, enums: each.enumType }, IN_MESSAGE, message.path, message);
    }
  };
  take({ messages: proto.messageType, enums: proto.enumType }, IN_FILE, [], undefined);
  return declared;
}

/** The messages and enums of files by full name. Of given and stored files with the same one, that of the given file counts. */
export function symbolsOf(files: readonly SourceFile[], problems: Problems): Map<string, Declaration> {
  const symbols = new Map<string, Declaration>();
  for (const declared of files
    .toSorted((a, b) => Number(b.isGiven) - Number(a.isGiven))
    .flatMap(declarationsOf)) {
    const other = symbols.get(declared.name);
    if (!other) symbols.set(declared.name, declared);
    else if (declared.file.isGiven)
      problems.add({
        ...placeOf(declared),
        problem: `${other.file.path} declares it too`,
        remedy: "Declare it once",
      });
  }
  return symbols;
}

/** Where a declaration, or a part of it, is. @param part the part's name, for the subject, and the end of its path */
export function placeOf(
  declared: Declaration,
  part?: { name: string; path: readonly number[] },
): Pick<CatalogueProblem, "file" | "line" | "subject"> {
  const { file, name, path } = declared;
  const { line } = file.locations.get([...path, ...(part?.path ?? [])].join(".")) ?? {};
  return {
    file: file.path,
    ...(line === undefined ? {} : { line }),
    subject: part ? `${name}.${part.name}` : name,
  };
}

/** Where a field of a message is. */
export function placeOfField(
  message: DeclaredMessage,
  field: FieldDescriptorProto,
): ReturnType<typeof placeOf> {
  const index = message.proto.field.indexOf(field);
  return placeOf(message, { name: field.name, path: [IN_MESSAGE.fields, index] });
}

/**
 * Whether a file imports the options of event types. Others may have options with the same numbers.
 *
 * @param files all files by path
 */
export function importsOptions(file: SourceFile, files: ReadonlyMap<string, SourceFile>): boolean {
  const seen = new Set(file.proto.dependency);
  // Iterating over a set includes items added meanwhile.
  for (const path of seen) {
    if (path === OPTIONS_FILE) return true;
    const { dependency = [], publicDependency = [] } = files.get(path)?.proto ?? {};
    for (const index of publicDependency) {
      const imported = dependency[index];
      if (imported !== undefined) seen.add(imported);
    }
  }
  return false;
}

/** The option that makes a message an event type. @throws Error if it cannot be read */
export function eventTypeOption({ options }: DescriptorProto): EventTypeOptions | undefined {
  return options && hasExtension(options, event_type) ? getExtension(options, event_type) : undefined;
}
