import type {
  DescEnum,
  DescEnumValue,
  DescField,
  DescFile,
  DescMessage,
  DescMethod,
  DescOneof,
  DescService,
} from "@bufbuild/protobuf";
import { comments } from "../../gen/comments.ts";
import { commentsOf } from "./proto-comments.ts";

/** The declarations of proto files that can have a comment. */
export type Commented =
  | DescMessage
  | DescField
  | DescOneof
  | DescEnum
  | DescEnumValue
  | DescService
  | DescMethod;

/** The comments of the files of registered event types, by full name. */
const ofFiles = new WeakMap<DescFile, ReadonlyMap<string, string>>();

/**
 * What the proto file says about something of the package webhook.v1, or of a registered event type: paragraphs of one line each,
 * with an empty line between them. Undefined when it says nothing.
 */
export function commentOf(desc: Commented): string | undefined {
  const [name, { file }] =
    "typeName" in desc ? [desc.typeName, desc] : [`${desc.parent.typeName}.${desc.name}`, desc.parent];
  // Generated code has no source information.
  if (!file.proto.sourceCodeInfo) return comments[name];
  return ofFiles.getOrInsertComputed(file, () => commentsOf(file.proto)).get(name);
}

/** The first sentence of a comment, without its full stop. */
export function firstSentence(comment: string): string {
  return (/^.*?(?=\.(?:\s|$))/s.exec(comment)?.[0] ?? comment).replaceAll(/\s+/g, " ");
}
