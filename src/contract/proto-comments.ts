import type { DescriptorProto, EnumDescriptorProto, FileDescriptorProto } from "@bufbuild/protobuf/wkt";

/** Field numbers of descriptor.proto, which form the paths of comments. */
const IN_FILE = { messages: 4, enums: 5, services: 6, extensions: 7 };
const IN_MESSAGE = { fields: 2, messages: 3, enums: 4, extensions: 6, oneofs: 8 };
const MEMBERS = 2;

/**
 * The comments of a proto file by full name, in the order of the file. Enum values are named by their enum and their
 * own name (`webhook.v1.WebhookProcess.WEBHOOK_PROCESS_ORDER_DISPATCHED`), fields by their message.
 */
export function commentsOf(file: FileDescriptorProto): Map<string, string> {
  const texts = new Map<string, string>();
  for (const { path, leadingComments, trailingComments } of file.sourceCodeInfo?.location ?? []) {
    const text = unwrapped(leadingComments || trailingComments);
    if (text !== "") texts.set(path.join("."), text);
  }
  const comments = new Map<string, string>();
  const take = (path: number[], name: string) => {
    const text = texts.get(path.join("."));
    if (text !== undefined) comments.set(name, text);
  };
  const takeAll = (named: { name: string }[], path: number[], parent: string) => {
    for (const [index, { name }] of named.entries()) take([...path, index], `${parent}.${name}`);
  };

  function takeEnum(desc: EnumDescriptorProto, path: number[], parent: string): void {
    const name = `${parent}.${desc.name}`;
    take(path, name);
    takeAll(desc.value, [...path, MEMBERS], name);
  }

  function takeMessage(desc: DescriptorProto, path: number[], parent: string): void {
    const name = `${parent}.${desc.name}`;
    take(path, name);
    takeAll(desc.field, [...path, IN_MESSAGE.fields], name);
    takeAll(desc.oneofDecl, [...path, IN_MESSAGE.oneofs], name);
    takeAll(desc.extension, [...path, IN_MESSAGE.extensions], name);
    for (const [index, each] of desc.enumType.entries())
      takeEnum(each, [...path, IN_MESSAGE.enums, index], name);
    for (const [index, each] of desc.nestedType.entries())
      takeMessage(each, [...path, IN_MESSAGE.messages, index], name);
  }

  for (const [index, each] of file.messageType.entries())
    takeMessage(each, [IN_FILE.messages, index], file.package);
  for (const [index, each] of file.enumType.entries()) takeEnum(each, [IN_FILE.enums, index], file.package);
  takeAll(file.service, [IN_FILE.services], file.package);
  for (const [index, { name, method }] of file.service.entries())
    takeAll(method, [IN_FILE.services, index, MEMBERS], `${file.package}.${name}`);
  takeAll(file.extension, [IN_FILE.extensions], file.package);
  return comments;
}

/** Joins the lines of each paragraph and list item, because line breaks in proto comments have no meaning. */
function unwrapped(comment: string): string {
  const lines = comment.split("\n").map((line) => line.trim());
  return lines
    .join("\n")
    .trim()
    .split(/\n{2,}/)
    .map((paragraph) => paragraph.replaceAll(/\n(?!- )/g, " "))
    .join("\n\n");
}
