import type {
  DescriptorProto,
  EnumDescriptorProto,
  FileDescriptorProto,
  SourceCodeInfo_Location,
} from "@bufbuild/protobuf/wkt";

/** Field numbers of descriptor.proto, which form the paths of comments. */
const IN_FILE = { messages: 4, enums: 5, services: 6, extensions: 7 };
const IN_MESSAGE = { fields: 2, messages: 3, enums: 4, extensions: 6, oneofs: 8 };
const MEMBERS = 2;

/**
 * The comments of a proto file by full name, in the order of the file. Enum values are named by their enum and their
 * own name (`webhook.v1.WebhookProcess.WEBHOOK_PROCESS_ORDER_DISPATCHED`), fields by their message.
 */
export function commentsOf(file: FileDescriptorProto): Map<string, string> {
  return byName(
    file,
    ({ leadingComments, trailingComments }) => unwrapped(leadingComments || trailingComments) || undefined,
  );
}

/** The lines of the declarations of a proto file by full name, starting at 1. */
export function linesOf(file: FileDescriptorProto): Map<string, number> {
  return byName(file, ({ span: [line = 0] }) => line + 1);
}

function byName<Value>(
  file: FileDescriptorProto,
  read: (location: SourceCodeInfo_Location) => Value | undefined,
): Map<string, Value> {
  const values = new Map<string, Value>();
  for (const location of file.sourceCodeInfo?.location ?? []) {
    const value = read(location);
    if (value !== undefined) values.set(location.path.join("."), value);
  }
  const named = new Map<string, Value>();
  const within = (parent: string, name: string) => (parent === "" ? name : `${parent}.${name}`);
  const take = (path: number[], name: string) => {
    const value = values.get(path.join("."));
    if (value !== undefined) named.set(name, value);
  };
  const takeAll = (named: { name: string }[], path: number[], parent: string) => {
    for (const [index, { name }] of named.entries()) take([...path, index], within(parent, name));
  };

  function takeEnum(desc: EnumDescriptorProto, path: number[], parent: string): void {
    const name = within(parent, desc.name);
    take(path, name);
    takeAll(desc.value, [...path, MEMBERS], name);
  }

  function takeMessage(desc: DescriptorProto, path: number[], parent: string): void {
    const name = within(parent, desc.name);
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
    takeAll(method, [IN_FILE.services, index, MEMBERS], within(file.package, name));
  takeAll(file.extension, [IN_FILE.extensions], file.package);
  return named;
}

/**
 * Joins the lines of each paragraph and list item, because line breaks in proto comments have no meaning. Leaves control characters out,
 * which Python and HTML do not take.
 */
function unwrapped(comment: string): string {
  const lines = comment.split("\n").map((line) => line.replaceAll(/\p{Cc}/gu, " ").trim());
  return lines
    .join("\n")
    .trim()
    .split(/\n{2,}/)
    .map((paragraph) => paragraph.replaceAll(/\n(?!- )/g, " "))
    .join("\n\n");
}
