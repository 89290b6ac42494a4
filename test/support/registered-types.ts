import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createFileRegistry, type DescMessage, fromBinary, getOption, hasOption } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { event_type } from "../../gen/webhook/v1/options_pb.ts";
import { type CatalogueEntry, FIRST_REGISTERED } from "../../src/contract/catalogue.ts";

const PROTO = new URL("../../proto/webhook/v1/options.proto", import.meta.url);

/**
 * Compiles proto files as an operator does, by `buf build` with `webhook/v1/options.proto` beside them.
 *
 * @param files their texts by path
 * @returns a FileDescriptorSet with imports and source information
 */
export function buildFileSet(files: Readonly<Record<string, string>>): Uint8Array {
  const folder = mkdtempSync(path.join(os.tmpdir(), "webhook-events-"));
  try {
    mkdirSync(path.join(folder, "webhook/v1"), { recursive: true });
    cpSync(PROTO, path.join(folder, "webhook/v1/options.proto"));
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
      writeFileSync(path.join(folder, name), text);
    }
    return execFileSync("buf", ["build", folder, "-o", "-"], { maxBuffer: 64 * 1_024 * 1_024 });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The event types of proto files, as a process knows them that has registered them. Numbers that are left out follow each other. */
export function registeredTypes(files: Readonly<Record<string, string>>): CatalogueEntry[] {
  let next = FIRST_REGISTERED;
  return messagesOf(buildFileSet(files)).flatMap((payload) => {
    if (!hasOption(payload, event_type)) return [];
    const { process, name, alias } = getOption(payload, event_type);
    const number = process === 0 ? next : process;
    next = Math.max(next, number + 1);
    return [
      { number, name: name || payload.name, ...(alias ? { alias } : {}), message: payload.typeName, payload },
    ];
  });
}

function messagesOf(set: Uint8Array): DescMessage[] {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, set));
  return [...registry].filter((desc) => desc.kind === "message");
}

/**
 * The text of a proto file with one event type.
 *
 * @param options of the event type beside its name, such as `process: 1004`
 * @param fields the fields of its message. Defaults to an id and a text
 */
export function eventTypeProto(
  name: string,
  options = "",
  fields = `int64 id = 1 [(webhook.v1.required) = true];
    string label = 2 [(webhook.v1.searchable) = true, (webhook.v1.example) = "A-7"];`,
): string {
  return `syntax = "proto3";
    package test.${name.toLowerCase()};
    import "webhook/v1/options.proto";
    // The event ${name}.
    message ${name} {
      option (webhook.v1.event_type) = { name: "${name}" ${options} };
      ${fields}
    }`;
}
