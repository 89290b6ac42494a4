import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { planRegistration, readEventTypesFrom } from "../../src/event-types/index.ts";
import { buildFileSet } from "../support/registered-types.ts";
import { invoicePaid, NOTHING } from "./files.ts";

const PAID = invoicePaid("string id = 1;");
const { TMPDIR } = process.env;

let around: string;
let folder: string;
beforeEach(() => {
  around = mkdtempSync(path.join(os.tmpdir(), "read-event-types-"));
  folder = path.join(around, "events");
  mkdirSync(folder);
  mkdirSync(path.join(around, "temporary"));
  process.env.TMPDIR = path.join(around, "temporary");
});
afterEach(() => {
  const left = readdirSync(path.join(around, "temporary"));
  if (TMPDIR === undefined) delete process.env.TMPDIR;
  else process.env.TMPDIR = TMPDIR;
  rmSync(around, { recursive: true });
  expect(left).toEqual([]);
});

function write(files: Record<string, string | Uint8Array>): void {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), content);
  }
}

async function typesRead(given = folder): Promise<string[]> {
  const { added, problems } = await planRegistration(NOTHING, await readEventTypesFrom(given));
  expect(problems).toEqual([]);
  return added.map(({ name }) => name);
}

test("a .binpb file is read as it is", async () => {
  const set = buildFileSet({ "billing.proto": PAID });
  write({ "events.binpb": set });
  expect(Buffer.from(await readEventTypesFrom(path.join(folder, "events.binpb"))).equals(set)).toBe(true);
});

test("a folder is compiled with this service's options, whatever else is in it", async () => {
  write({
    "billing.proto": PAID,
    "README.md": "Events",
    "buf.yaml": "version: v9",
    "buf.gen.yaml": "nonsense",
    "webhook/v1/options.proto": "nonsense",
    "google/protobuf/timestamp.proto": "nonsense",
    ".git/x.proto": "nonsense",
    "deep/er/sent.proto": invoicePaid("string id = 1;", 'name: "Sent"').replace("billing.v1", "sent.v1"),
  });
  expect(await typesRead()).toEqual(["InvoicePaid", "Sent"]);
});

test("the comments and lines of a folder's files are kept", async () => {
  write({ "billing.proto": invoicePaid("string data = 1 [(webhook.v1.raw_json) = true];") });
  const { problems } = await planRegistration(NOTHING, await readEventTypesFrom(folder));
  expect(problems).toMatchObject([{ file: "billing.proto", line: 6 }]);
});

test("a ConfigMap, whose files and folders are links, is compiled", async () => {
  write({ "..2026_11_29/billing.proto": PAID, "..2026_11_29/shared/money.proto": 'syntax = "proto3";' });
  symlinkSync("..2026_11_29", path.join(folder, "..data"));
  symlinkSync("..data/billing.proto", path.join(folder, "billing.proto"));
  symlinkSync("..data/shared", path.join(folder, "shared"));
  expect(await typesRead()).toEqual(["InvoicePaid"]);
  const linked = path.join(around, "linked");
  symlinkSync("events", linked);
  expect(await typesRead(linked)).toEqual(["InvoicePaid"]);
});

test("a folder that contains a link to itself is compiled", async () => {
  write({ "a/billing.proto": PAID });
  symlinkSync("..", path.join(folder, "a/again"));
  expect(await typesRead()).toEqual(["InvoicePaid"]);
});

test.each<[string, () => void, RegExp]>([
  ["without proto files", () => write({ "README.md": "" }), /has no \.proto files; declare event types/],
  [
    "with a link to a file elsewhere",
    () => {
      writeFileSync(path.join(around, "secret"), "secret");
      symlinkSync("../secret", path.join(folder, "secret.proto"));
    },
    /events\/secret\.proto is a link to .*secret, outside of the folder; copy/,
  ],
  [
    "with a link to a folder elsewhere",
    () => symlinkSync("../temporary", path.join(folder, "more")),
    /events\/more is a link to .*temporary, outside of the folder/,
  ],
  [
    "with a link to nothing",
    () => symlinkSync("nothing", path.join(folder, "a.proto")),
    /a\.proto is a link to a file that does not exist/,
  ],
  [
    "of more than 1 MiB",
    () => write({ "a.proto": `${PAID}// ${"x".repeat(1_024 * 1_024)}` }),
    /more than the 1048576 bytes allowed/,
  ],
  [
    "with errors",
    () =>
      write({
        "billing.proto": PAID.replace("string id", "strin id"),
        "sub/b.proto": 'syntax = "proto3"; message {}',
      }),
    /^the event types in .*events cannot be compiled:\n.*events\/(billing|sub\/b)\.proto:\d+: .+/,
  ],
  [
    "with an import that it lacks",
    () => write({ "a.proto": `${PAID}\nimport "b.proto";` }),
    /a\.proto:\d+: imported file does not exist/,
  ],
])("a folder %s is refused", async (_what, prepare, message) => {
  prepare();
  await expect(readEventTypesFrom(folder)).rejects.toThrow(message);
});

test("what is neither a folder nor a .binpb file is refused", async () => {
  write({ "events.json": "{}" });
  await expect(readEventTypesFrom(path.join(folder, "events.json"))).rejects.toThrow(
    "is not a folder of .proto files, or a .binpb file",
  );
  await expect(readEventTypesFrom(path.join(folder, "none"))).rejects.toThrow(
    "cannot be read (ENOENT); EVENT_TYPES is",
  );
  write({ "large.binpb": new Uint8Array(16 * 1_024 * 1_024 + 1) });
  await expect(readEventTypesFrom(path.join(folder, "large.binpb"))).rejects.toThrow(
    "more than the 16777216 allowed",
  );
});
