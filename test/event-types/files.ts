import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import {
  planRegistration,
  type RegistrationPlan,
  type StoredFile,
  type StoredType,
} from "../../src/event-types/index.ts";
import { buildFileSet } from "../support/registered-types.ts";

/** What is registered. */
export interface Stored {
  files: StoredFile[];
  types: StoredType[];
}

export const NOTHING: Stored = { files: [], types: [] };

/** A proto file with event types. @param declarations what follows the imports */
export function protoFile(declarations: string, header = 'syntax = "proto3"; package billing.v1;'): string {
  return `${header}\nimport "webhook/v1/options.proto";\nimport "google/protobuf/timestamp.proto";\n${declarations}`;
}

/** A proto file with the event type InvoicePaid, number 1004. @param fields its fields */
export function invoicePaid(fields: string, options = "process: 1004"): string {
  return protoFile(`message InvoicePaid {\n  option (webhook.v1.event_type) = {${options}};\n${fields}\n}`);
}

/** Plans the registration of proto files. */
export function plan(
  files: string | Record<string, string>,
  stored: Stored = NOTHING,
): Promise<RegistrationPlan> {
  return planRegistration(
    stored,
    buildFileSet(typeof files === "string" ? { "billing.proto": files } : files),
  );
}

/** What is stored after proto files were registered. @throws Error if they are refused */
export async function registered(
  files: string | Record<string, string>,
  before: Stored = NOTHING,
): Promise<Stored> {
  return afterwards(before, await plan(files, before));
}

/** What is stored after a plan. Numbers that are left out follow each other from 1000 on. */
export function afterwards(before: Stored, { files, added, changed, problems }: RegistrationPlan): Stored {
  if (problems.length > 0) throw new Error(JSON.stringify(problems));
  const paths = new Set(files.map(({ path }) => path));
  const aliases = new Map(changed.map(({ type, alias }) => [type.process, alias]));
  let next = Math.max(999, ...before.types.map(({ process }) => process));
  return {
    files: [...before.files.filter(({ path }) => !paths.has(path)), ...files],
    types: [
      ...before.types.map((type) => ({ ...type, alias: aliases.get(type.process) ?? type.alias })),
      ...added.map(({ process, ...type }) => ({ process: process ?? ++next, ...type, deprecated: null })),
    ],
  };
}

/** A set with some files changed. */
export function changedSet(set: Uint8Array, change: (file: FileDescriptorProto) => void): Uint8Array {
  const { file } = fromBinary(FileDescriptorSetSchema, set);
  for (const each of file) change(each);
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
}

/** The bytes of a set of files that no compiler wrote. */
export function craftedSet(
  ...files: Parameters<typeof create<typeof FileDescriptorProtoSchema>>[1][]
): Uint8Array {
  const file = files.map((each) => create(FileDescriptorProtoSchema, each));
  return toBinary(FileDescriptorSetSchema, create(FileDescriptorSetSchema, { file }));
}
