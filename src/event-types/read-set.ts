import { create, fromBinary } from "@bufbuild/protobuf";
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import {
  type DescriptorProto,
  type EnumDescriptorProto,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  SourceCodeInfoSchema,
} from "@bufbuild/protobuf/wkt";
import { event_type, example, raw_json, required, searchable } from "../../gen/webhook/v1/options_pb.ts";
import { linesOf } from "../contract/proto-comments.ts";
import { OPTIONS_FILE, OWN_FILES } from "./build.ts";
import { Refusal } from "./model.ts";

/** The maximum size of a set of files, in bytes. */
export const MAX_SET_BYTES = 16 * 1_024 * 1_024;
const MAX_FILES = 5_000;
/** The maximum number of messages, fields, enum values and the like in a set: each takes memory in every process. */
const MAX_ELEMENTS = 600_000;
const MAX_ENUM_VALUES = 10_000;
/** The maximum depth of declarations within each other. */
const MAX_DEPTH = 64;
const SPLIT = "Register fewer files, or simpler ones";
/** The options that are kept: the service reads no others. */
const OPTIONS = new Set([event_type, required, searchable, example, raw_json].map(({ number }) => number));

/** Reads a FileDescriptorSet without the files of the service and of Protobuf itself. @returns also lines by full name @throws Refusal */
export function readSet(set: Uint8Array): { files: FileDescriptorProto[]; lines: Map<string, number> } {
  if (set.length > MAX_SET_BYTES)
    throw new Refusal("", `the set has ${set.length} bytes, more than the ${MAX_SET_BYTES} allowed`, SPLIT);
  const files = new Map<string, FileDescriptorProto>();
  const lines = new Map<string, number>();
  let elements = 0;
  for (const file of filesOf(set)) {
    if (OWN_FILES.test(file.name)) continue;
    if (!/^\P{Cc}{1,500}$/u.test(file.name))
      throw new Refusal("", "a file needs a path of 1 to 500 characters");
    if (files.has(file.name)) throw new Refusal(file.name, "the set has two files of this path");
    files.set(file.name, file);
    for (const [name, line] of linesOf(file)) lines.set(name, line);
    // Compilers write several times as many locations: of types, numbers and options.
    const location = file.sourceCodeInfo?.location.filter(
      (each) => each.leadingComments || each.trailingComments,
    );
    const sourceCodeInfo = create(SourceCodeInfoSchema, { location: location ?? [] });
    Object.assign(file, { service: [], extension: [], sourceCodeInfo });
    for (const part of partsOf(file)) {
      elements += "reservedRange" in part ? 1 + part.reservedRange.length + part.reservedName.length : 1;
      if (elements > MAX_ELEMENTS)
        throw new Refusal(file.name, `the set has more than ${MAX_ELEMENTS} declarations`, SPLIT);
      if ("value" in part && part.value.length > MAX_ENUM_VALUES)
        throw new Refusal(file.name, `${part.name} has more than ${MAX_ENUM_VALUES} values`, "Use a text");
    }
  }
  if (files.size > MAX_FILES)
    throw new Refusal("", `the set has more than ${MAX_FILES} files, the most allowed`, SPLIT);
  for (const file of files.values()) {
    // Editions since 2024 can import a file for its options only.
    const imported = new Set([...file.dependency, ...file.optionDependency]);
    // Iterating over a set includes items added meanwhile.
    for (const path of imported) for (const each of files.get(path)?.dependency ?? []) imported.add(each);
    // Other companies may have options with the same numbers.
    takeOwnOptions(file, imported.has(OPTIONS_FILE));
  }
  return { files: [...files.values()], lines };
}

function* filesOf(set: Uint8Array): Generator<FileDescriptorProto> {
  const reader = new BinaryReader(set);
  while (reader.pos < reader.len) {
    const [no, wireType] = reader.tag();
    if (no === 1 && wireType === WireType.LengthDelimited)
      yield fromBinary(FileDescriptorProtoSchema, reader.bytes());
    else reader.skip(wireType, no);
  }
}

type Part =
  | DescriptorProto
  | EnumDescriptorProto
  | DescriptorProto["field" | "oneofDecl"][number]
  | EnumDescriptorProto["value"][number];

/** The messages and enums of a file, and what they consist of. */
function* partsOf(file: FileDescriptorProto): Generator<Part> {
  function* within(part: DescriptorProto | EnumDescriptorProto, depth: number): Generator<Part> {
    if (depth > MAX_DEPTH)
      throw new Refusal(
        file.name,
        `declarations are nested deeper than the ${MAX_DEPTH} levels allowed`,
        SPLIT,
      );
    yield part;
    if ("value" in part) return yield* part.value;
    yield* part.field;
    yield* part.oneofDecl;
    for (const inner of [...part.enumType, ...part.nestedType]) yield* within(inner, depth + 1);
  }
  for (const part of [...file.enumType, ...file.messageType]) yield* within(part, 0);
}

function takeOwnOptions(file: FileDescriptorProto, isKept: boolean): void {
  for (const part of partsOf(file)) {
    if ("extensionRange" in part) Object.assign(part, { extension: [], extensionRange: [] });
    if ("jsonName" in part) part.jsonName ||= protoCamelCase(part.name);
    if (!part.options) continue;
    const kept = part.options.$unknown?.filter(({ no }) => isKept && OPTIONS.has(no)) ?? [];
    Object.assign(part.options, { $unknown: kept, uninterpretedOption: [] });
  }
}
