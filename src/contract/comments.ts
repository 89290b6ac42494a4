import type {
  DescEnum,
  DescEnumValue,
  DescField,
  DescMessage,
  DescMethod,
  DescOneof,
  DescService,
} from "@bufbuild/protobuf";
import { comments } from "../../gen/comments.ts";

/** The declarations of proto files that can have a comment. */
export type Commented =
  | DescMessage
  | DescField
  | DescOneof
  | DescEnum
  | DescEnumValue
  | DescService
  | DescMethod;

/**
 * What the proto file says about something of the package webhook.v1: paragraphs of one line each, with an empty line
 * between them. Undefined when it says nothing.
 */
export function commentOf(desc: Commented): string | undefined {
  const name = "typeName" in desc ? desc.typeName : `${desc.parent.typeName}.${desc.name}`;
  return comments[name];
}

/** The first sentence of a comment, without its full stop. */
export function firstSentence(comment: string): string {
  return (/^.*?(?=\.(?:\s|$))/s.exec(comment)?.[0] ?? comment).replaceAll(/\s+/g, " ");
}
