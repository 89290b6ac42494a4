import { writeFile } from "node:fs/promises";
import path from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorSetSchema,
  file_google_protobuf_timestamp,
} from "@bufbuild/protobuf/wkt";
import { type Finding, inPrivateFolder, runBuf } from "./buf.ts";
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
  });
  const packages = new Map(after.map((file) => [file.name, file.package]));
  const renamed = new Set(found.filter(({ type }) => type === "FIELD_SAME_NAME").map(placeOf));
  for (const each of found) {
    // Another name has another name in JSON.
    if (each.type === "FIELD_SAME_JSON_NAME" && renamed.has(placeOf(each))) continue;
    problems.add({
      file: each.path ?? "",
      ...(each.start_line === undefined ? {} : { line: each.start_line }),
      subject: subjectOf(each, packages.get(each.path ?? "") ?? ""),
      problem: each.message,
      remedy: RULES[each.type ?? ""] ?? "Undo the change",
    });
  }
}

function placeOf({ path: file, start_line }: Finding): string {
  return `${file}:${start_line}`;
}

function imageOf(files: readonly FileDescriptorProto[]): Uint8Array {
  return toBinary(
    FileDescriptorSetSchema,
    create(FileDescriptorSetSchema, { file: [file_google_protobuf_timestamp.proto, ...files] }),
  );
}

/** `Field "4" with name "total" on message "InvoicePaid" changed type …` → `billing.v1.InvoicePaid.total` */
function subjectOf({ message }: Finding, scope: string): string {
  const declared = /\b(?:message|enum) "([^"]+)"/.exec(message)?.[1];
  const part = /\bwith name "([^"]+)"/.exec(message)?.[1];
  return [scope, declared, part].filter(Boolean).join(".");
}
