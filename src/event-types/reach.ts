import {
  type FieldDescriptorProto,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";
import { TIMESTAMP } from "../contract/json/field-types.ts";
import {
  type Declaration,
  type DeclaredEnum,
  type DeclaredMessage,
  ENUM_VALUES,
  placeOf,
  placeOfField,
} from "./declarations.ts";
import type { Problems } from "./model.ts";
import type { SourceFile } from "./read-set.ts";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
/** The maximum length of full names, in characters. */
const MAX_NAME = 500;
const MAX_FIELD_NUMBER = 2 ** 29 - 1;
const REFERENCES: ReadonlySet<Type> = new Set([Type.MESSAGE, Type.GROUP, Type.ENUM]);
const NO_MAP_KEY: ReadonlySet<Type> = new Set([...REFERENCES, Type.FLOAT, Type.DOUBLE, Type.BYTES]);
const COMPILE = "Compile the files with `buf build -o` or `protoc --include_imports --descriptor_set_out`";

/** The message or enum that a field has the type of, by its full name. Undefined for scalars. */
export function referenceOf({ type, typeName }: FieldDescriptorProto): string | undefined {
  return REFERENCES.has(type) ? typeName.replace(/^\./, "") : undefined;
}

/**
 * Finds the messages and enums that event types consist of, and checks that their descriptors are what compilers write: descriptors are
 * data of others, and code is built from them.
 *
 * @param files all files by path
 */
export function reach(
  roots: readonly DeclaredMessage[],
  symbols: ReadonlyMap<string, Declaration>,
  files: ReadonlyMap<string, SourceFile>,
  problems: Problems,
): Set<Declaration> {
  const reached = new Set<Declaration>(roots);
  // Iterating over a set includes items added meanwhile.
  for (const declared of reached) {
    if (declared.kind === "enum") checkEnum(declared, problems);
    else for (const found of checkMessage(declared, symbols, files, problems)) reached.add(found);
  }
  return reached;
}

function checkEnum(declared: DeclaredEnum, problems: Problems): void {
  const { value } = declared.proto;
  checkNames(declared, value, ENUM_VALUES, problems);
  if (value.length === 0)
    problems.add({ ...placeOf(declared), problem: "the enum has no values", remedy: COMPILE });
}

/** Checks the name of a declaration, and that its parts have names, each once. */
function checkNames(
  declared: Declaration,
  parts: readonly { name: string }[],
  number: number,
  problems: Problems,
): void {
  const { name } = declared;
  if (name.length > MAX_NAME || !name.split(".").every((each) => NAME.test(each)))
    problems.add({
      ...placeOf(declared),
      problem: `the name has characters that names cannot have, or more than ${MAX_NAME}`,
      remedy: COMPILE,
    });
  const seen = new Set<string>();
  for (const [index, part] of parts.entries()) {
    if (NAME.test(part.name) && part.name.length <= MAX_NAME && !seen.has(part.name)) {
      seen.add(part.name);
      continue;
    }
    const place = placeOf(declared, { name: part.name, path: [number, index] });
    problems.add({ ...place, problem: "the name is no name, or is taken twice", remedy: COMPILE });
  }
}

/** @returns what its fields have the types of */
function checkMessage(
  declared: DeclaredMessage,
  symbols: ReadonlyMap<string, Declaration>,
  files: ReadonlyMap<string, SourceFile>,
  problems: Problems,
): Declaration[] {
  const { proto } = declared;
  checkNames(declared, [...proto.field, ...proto.oneofDecl], 2, problems);
  const numbers = new Set<number>();
  const found: Declaration[] = [];
  for (const field of proto.field) {
    const add = (problem: string, remedy = COMPILE) =>
      problems.add({ ...placeOfField(declared, field), problem, remedy });
    if (field.number < 1 || field.number > MAX_FIELD_NUMBER || numbers.has(field.number))
      add(`the number ${field.number} is none that a field can have, or is taken twice`);
    numbers.add(field.number);
    if (!Object.hasOwn(field, "type")) add("the field has no type");
    if (Object.hasOwn(field, "oneofIndex") && !proto.oneofDecl[field.oneofIndex])
      add(`the message has no oneof ${field.oneofIndex}`);
    const name = referenceOf(field);
    if (name === undefined || name === TIMESTAMP) continue;
    const target = symbols.get(name);
    if (target) {
      found.push(target);
      const problem = mismatch(declared, field, target);
      if (problem) add(problem);
    } else if (name.startsWith("google.protobuf."))
      add(
        `is a ${name}; of google.protobuf only Timestamp is allowed`,
        "Use a message, a map or a scalar instead, with `optional` if it can be null",
      );
    else if (name.startsWith("webhook.v1."))
      add(`is a ${name}, which belongs to this service`, "Declare a message in a package of your own");
    else {
      const missing = declared.file.proto.dependency.filter(
        (path) => !files.has(path) && !/^(?:google\/protobuf|webhook\/v1)\//.test(path),
      );
      const files_ = missing.length === 0 ? "" : `; the set lacks ${missing.join(", ")}`;
      add(
        `is a ${name}, which no file declares${files_}`,
        "Add the imported files to the set: `protoc --include_imports`, or `buf build` without --exclude-imports",
      );
    }
  }
  return found;
}

/** What is wrong with the type of a field. Undefined if nothing is. */
function mismatch(
  declared: DeclaredMessage,
  field: FieldDescriptorProto,
  target: Declaration,
): string | undefined {
  if ((target.kind === "enum") !== (field.type === Type.ENUM))
    return `is no ${target.kind}, but ${target.name} is one`;
  if (target.kind === "enum" || !target.proto.options?.mapEntry) return undefined;
  const [key, value] = target.proto.field;
  const isMap =
    field.type === Type.MESSAGE &&
    field.label === Label.REPEATED &&
    target.parent === declared &&
    target.proto.field.length === 2 &&
    key?.number === 1 &&
    key.label === Label.OPTIONAL &&
    !NO_MAP_KEY.has(key.type) &&
    value?.number === 2 &&
    value.label === Label.OPTIONAL;
  return isMap ? undefined : `${target.name} is no entry of a map`;
}
