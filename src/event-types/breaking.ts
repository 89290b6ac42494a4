import { writeFile } from "node:fs/promises";
import path from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorSetSchema,
  file_google_protobuf_timestamp,
} from "@bufbuild/protobuf/wkt";
import { BufFailure, type Finding, inPrivateFolder, runBuf } from "./buf.ts";
import { type Declaration, ENUM_VALUES, IN_MESSAGE, placeOf } from "./declarations.ts";
import type { Problems } from "./model.ts";

const KEEP_FIELD = "Keep the field as it was, and add another one with another name and number";
const KEEP_VALUE = "Keep the value as it was, and add another one with another name and number";
const KEEP_RESERVED = "Keep what is reserved: another meaning would be read in its place";
/**
 * buf's rules for receivers, which read names in JSON, and for publishers, which write numbers. Each with what to do.
 * What only generated code of other languages notices is allowed.
 */
const RULES: Readonly<Record<string, string>> = {
  FIELD_NO_DELETE: "Keep the field, because receivers read it; say in its comment that it is no longer used",
  FIELD_SAME_NAME: KEEP_FIELD,
  FIELD_SAME_JSON_NAME: KEEP_FIELD,
  FIELD_SAME_TYPE: KEEP_FIELD,
  FIELD_SAME_CARDINALITY: KEEP_FIELD,
  FIELD_SAME_ONEOF: KEEP_FIELD,
  FIELD_SAME_DEFAULT: KEEP_FIELD,
  ONEOF_NO_DELETE: "Keep the oneof and its fields",
  ENUM_VALUE_NO_DELETE:
    "Keep the value, because receivers know it; say in its comment that it is no longer used",
  ENUM_VALUE_SAME_NAME: KEEP_VALUE,
  ENUM_SAME_TYPE: "Keep the syntax, edition and features of the enum's file",
  RESERVED_MESSAGE_NO_DELETE: KEEP_RESERVED,
  RESERVED_ENUM_NO_DELETE: KEEP_RESERVED,
};

/** Finds changes of files that break receivers or publishers, by `buf breaking`. */
export async function findBreakingChanges(
  before: readonly FileDescriptorProto[],
  after: readonly FileDescriptorProto[],
  symbols: ReadonlyMap<string, Declaration>,
  problems: Problems,
  signal?: AbortSignal,
): Promise<void> {
  const config = JSON.stringify({ version: "v2", breaking: { use: Object.keys(RULES) } });
  const found = await inPrivateFolder(async (folder) => {
    const [old, now] = [path.join(folder, "before.binpb"), path.join(folder, "after.binpb")];
    await Promise.all([writeFile(old, imageOf(before)), writeFile(now, imageOf(after))]);
    return runBuf(
      ["breaking", now, "--against", old, "--config", config, "--against-config", config],
      folder,
      signal,
    );
  }).catch((error: unknown) => {
    if (!(error instanceof BufFailure)) throw error;
    const problem = `the files could not be compared with the registered ones: ${error.message}`;
    problems.add({ file: "", subject: "", problem, remedy: "Try again, or register fewer files at once" });
    return [];
  });
  const packages = new Map(after.map((file) => [file.name, file.package]));
  const placed = found.map((each) => ({ ...each, ...placeOfFinding(each, packages, symbols) }));
  const renamed = new Set(
    placed.filter(({ type }) => type === "FIELD_SAME_NAME").map(({ subject }) => subject),
  );
  for (const { type, subject, message, ...place } of placed) {
    // A field with another name has another one in JSON, too.
    if (type === "FIELD_SAME_JSON_NAME" && renamed.has(subject)) continue;
    problems.add({ ...place, subject, problem: message, remedy: RULES[type ?? ""] ?? "Undo the change" });
  }
}

/** Where `Field "4" with name "total" on message "InvoicePaid" changed type …` is: the files that buf gets have no lines. */
function placeOfFinding(
  { path: file = "", message }: Finding,
  packages: ReadonlyMap<string, string>,
  symbols: ReadonlyMap<string, Declaration>,
): ReturnType<typeof placeOf> {
  const name = /\b(?:message|enum) "([^"]+)"/.exec(message)?.[1];
  const scope = packages.get(file);
  const subject = [scope, name].filter(Boolean).join(".");
  const declared = symbols.get(subject);
  if (!declared) return { file, subject };
  const number = Number(/^(?:Field|Enum value) "(\d+)"/.exec(message)?.[1]);
  const [parts, path] =
    declared.kind === "enum"
      ? [declared.proto.value, ENUM_VALUES]
      : [declared.proto.field, IN_MESSAGE.fields];
  const index = parts.findIndex((part) => part.number === number);
  const part = parts[index];
  return placeOf(declared, part && { name: part.name, path: [path, index] });
}

function imageOf(files: readonly FileDescriptorProto[]): Uint8Array {
  return toBinary(
    FileDescriptorSetSchema,
    create(FileDescriptorSetSchema, { file: [file_google_protobuf_timestamp.proto, ...files] }),
  );
}
