import { create, type Message } from "@bufbuild/protobuf";
import { protoCamelCase } from "@bufbuild/protobuf/reflect";
import {
  type DescriptorProto,
  DescriptorProtoSchema,
  type EnumDescriptorProto,
  EnumDescriptorProtoSchema,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  type SourceCodeInfo_Location,
  SourceCodeInfo_LocationSchema,
  SourceCodeInfoSchema,
} from "@bufbuild/protobuf/wkt";
import { event_type, example, raw_json, required, searchable } from "../../gen/webhook/v1/options_pb.ts";
import { TIMESTAMP } from "../contract/json/field-types.ts";
import { type Declaration, ENUM_VALUES, IN_FILE, IN_MESSAGE } from "./declarations.ts";
import { referenceOf } from "./reach.ts";
import type { SourceFile } from "./read-set.ts";

/** The options that are kept: the service reads no others. */
const OPTIONS: Readonly<Record<string, readonly number[]>> = {
  "google.protobuf.MessageOptions": [event_type.number],
  "google.protobuf.FieldOptions": [required, searchable, example, raw_json].map(({ number }) => number),
};
const TIMESTAMP_FILE = "google/protobuf/timestamp.proto";

/**
 * A file with nothing but what event types consist of, so that a change of anything else in it is none of the catalogue's. Its source
 * information has the comments of declarations.
 *
 * @param reached what event types consist of
 * @param symbols all declarations by full name
 * @param hasOptions whether the file's options are those of this service
 */
export function prune(
  file: SourceFile,
  reached: ReadonlySet<Declaration["proto"]>,
  symbols: ReadonlyMap<string, Declaration>,
  hasOptions: boolean,
): FileDescriptorProto {
  const isReached = (proto: DescriptorProto | EnumDescriptorProto) => reached.has(proto);
  const dependencies = new Set<string>();
  const location: SourceCodeInfo_Location[] = [];

  function locate(from: readonly number[], to: readonly number[]): void {
    const { leading = "", trailing = "" } = file.locations.get(from.join(".")) ?? {};
    if (leading === "" && trailing === "") return;
    // The lines are not kept, because a change of each shifts all that follow.
    const comments = { leadingComments: leading, trailingComments: trailing };
    location.push(create(SourceCodeInfo_LocationSchema, { path: [...to], span: [0, 0, 1], ...comments }));
  }

  function ownOptions<Options extends Message>(of: { options?: Options | undefined }): void {
    if (!of.options) return;
    const kept = hasOptions ? (OPTIONS[of.options.$typeName] ?? []) : [];
    const unknown = of.options.$unknown?.filter(({ no }) => kept.includes(no)) ?? [];
    if (unknown.length > 0) of.options.$unknown = unknown;
    else delete of.options.$unknown;
    (
      of.options as Partial<FileDescriptorProto["options"]> & Message as { uninterpretedOption?: unknown }
    ).uninterpretedOption = [];
  }

  function prunedEnum(proto: EnumDescriptorProto, from: readonly number[], to: readonly number[]) {
    ownOptions(proto);
    locate(from, to);
    for (const [index, value] of proto.value.entries()) {
      ownOptions(value);
      locate([...from, ENUM_VALUES, index], [...to, ENUM_VALUES, index]);
    }
    const { name, value, options, reservedName, reservedRange } = proto;
    return create(EnumDescriptorProtoSchema, {
      name,
      value,
      reservedName,
      reservedRange,
      ...(options ? { options } : {}),
    });
  }

  function prunedMessage(proto: DescriptorProto, from: readonly number[], to: readonly number[]) {
    const isWhole = isReached(proto);
    ownOptions(proto);
    locate(from, to);
    const { name, options } = proto;
    const pruned = create(DescriptorProtoSchema, { name, ...(options ? { options } : {}) });
    if (isWhole) {
      const { field, oneofDecl, reservedName, reservedRange } = proto;
      Object.assign(pruned, { field, oneofDecl, reservedName, reservedRange });
      for (const [index, each] of field.entries()) {
        ownOptions(each);
        each.jsonName ||= protoCamelCase(each.name);
        const reference = referenceOf(each);
        const path = reference === TIMESTAMP ? TIMESTAMP_FILE : symbols.get(reference ?? "")?.file.path;
        if (path !== undefined && path !== file.path) dependencies.add(path);
        locate([...from, IN_MESSAGE.fields, index], [...to, IN_MESSAGE.fields, index]);
      }
      for (const [index, each] of oneofDecl.entries()) {
        ownOptions(each);
        locate([...from, IN_MESSAGE.oneofs, index], [...to, IN_MESSAGE.oneofs, index]);
      }
    }
    takeAll(proto.nestedType, proto.enumType, pruned.nestedType, pruned.enumType, from, to, IN_MESSAGE);
    return pruned;
  }

  /** Whether a message is needed, or one in it. */
  function isKept(proto: DescriptorProto): boolean {
    return isReached(proto) || proto.enumType.some(isReached) || proto.nestedType.some(isKept);
  }

  function takeAll(
    messages: DescriptorProto[],
    enums: EnumDescriptorProto[],
    keptMessages: DescriptorProto[],
    keptEnums: EnumDescriptorProto[],
    from: readonly number[],
    to: readonly number[],
    numbers: { messages: number; enums: number },
  ): void {
    for (const [index, each] of messages.entries())
      if (isKept(each))
        keptMessages.push(
          prunedMessage(
            each,
            [...from, numbers.messages, index],
            [...to, numbers.messages, keptMessages.length],
          ),
        );
    for (const [index, each] of enums.entries())
      if (isReached(each))
        keptEnums.push(
          prunedEnum(each, [...from, numbers.enums, index], [...to, numbers.enums, keptEnums.length]),
        );
  }

  ownOptions(file.proto);
  const pruned: FileDescriptorProto = Object.assign(create(FileDescriptorProtoSchema), file.proto, {
    messageType: [],
    enumType: [],
    publicDependency: [],
  });
  takeAll(file.proto.messageType, file.proto.enumType, pruned.messageType, pruned.enumType, [], [], IN_FILE);
  pruned.dependency = [...dependencies].sort();
  pruned.sourceCodeInfo = create(SourceCodeInfoSchema, { location });
  return pruned;
}
