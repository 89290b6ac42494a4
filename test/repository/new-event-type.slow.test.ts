import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FIRST_NOTICE } from "../../src/contract/catalogue.ts";
import { schemaValidator } from "../support/schema-validator.ts";
import { read, root } from "./project.ts";

const copy = mkdtempSync(path.join(os.tmpdir(), "webhook-event-type-"));
const LEFT_OUT = ["node_modules", ".git", ".data", ".cache", "dist", "results"];

beforeAll(() => {
  cpSync(root, copy, { recursive: true, filter: (file) => !LEFT_OUT.includes(path.basename(file)) });
  symlinkSync(path.join(root, "node_modules"), path.join(copy, "node_modules"), "dir");
});
afterAll(() => rmSync(copy, { recursive: true, force: true }));

const { number, text: edited } = followContributing();

/** event.proto as CONTRIBUTING.md says to edit it; its example may take a number that is no longer free. */
function followContributing(): { number: number; text: string } {
  const section = /^## Adding an event type$.*?^## /ms.exec(read("CONTRIBUTING.md"))?.[0] ?? "";
  const [member, message, request] = [...section.matchAll(/^ *```proto\n(.*?)```$/gms)].map(
    ([, block = ""]) => block.replaceAll(/^ {3}/gm, ""),
  );
  const proto = read("proto/webhook/v1/event.proto");
  const enumBody = /^enum WebhookProcess \{.*?^\}/ms.exec(proto)?.[0] ?? "";
  const numbers = [...enumBody.matchAll(/= (\d+);/g)].map(([, each]) => Number(each));
  const next = Math.max(...numbers.filter((each) => each < FIRST_NOTICE)) + 1;
  const oneofBody = /^ {2}oneof data \{.*?^ {2}\}/ms.exec(proto)?.[0] ?? "";
  const nextField = Math.max(...[...oneofBody.matchAll(/= (\d+);/g)].map(([, each]) => Number(each))) + 1;
  const text = proto
    .replace(enumBody, enumBody.replace(/\}$/, `${within(member, 1, next)}}`))
    .replace(oneofBody, oneofBody.replace(/ {2}\}$/, `${within(request, 2, nextField)}  }`));
  return { number: next, text: `${text}\n${message}` };
}

/** The lines within so many braces, with a number that is free. */
function within(block = "", depth: number, free: number): string {
  const lines = block.trimEnd().split("\n").slice(depth, -depth);
  return `${lines.join("\n").replace(/= \d+;/, `= ${free};`)}\n`;
}

function run(...[program = "", ...args]: string[]): string {
  const { status, stdout, stderr } = spawnSync(program, args, { cwd: copy, encoding: "utf8" });
  expect(status, `${program} ${args.join(" ")}\n${stdout}${stderr}`).toBe(0);
  return stdout;
}

const PROTO = "proto/webhook/v1/event.proto";
const write = (file: string, text: string) => writeFileSync(path.join(copy, file), text);
/** What the service is made of. */
const CODE = { extends: "./tsconfig.json", include: ["src", "workflows", "gen", "scripts", "demo"] };

/** A program that makes stored events of the new type, and the same one as two clients write its map. */
const PROBE = `
import { create } from "@bufbuild/protobuf";
import { PublishEventRequestSchema } from "./gen/webhook/v1/event_pb.ts";
import { describeEventTypes } from "./src/webhooks/rpc/event-types.ts";
import { newEvent } from "./src/events/rpc/new-event.ts";

const eventOf = (labels) => newEvent("key", create(PublishEventRequestSchema, {
  idempotencyKey: "1",
  userId: "tenant-1",
  data: { case: "customerMoved", value: { customerId: 9007199254740993n, address: ["2 High Street", "Hull"], labels } },
}), true);
const { process, payload, searchable } = eventOf({ a: "1" });
const type = describeEventTypes().find((each) => each.number === process);
const hashes = [{ b: "1", a: "2" }, { a: "2", b: "1" }, { a: "1", b: "2" }].map((labels) => eventOf(labels).requestSha256);
console.log(JSON.stringify({ process, payload, searchable, type, hashes }));
`;
const MOVED_AT = "google.protobuf.Timestamp moved_at = 3";

test("an event type is added by one edit of one file, as CONTRIBUTING.md shows, and `npm run generate`", () => {
  // A map too, whose entries have no order.
  write(PROTO, edited.replace(MOVED_AT, `${MOVED_AT};\n  map<string, string> labels = 4`));
  run("npm", "run", "--silent", "generate");
  write("probe.ts", PROBE);
  const { process, payload, searchable, type, hashes } = JSON.parse(run("node", "probe.ts"));
  expect(process).toBe(number);
  expect(searchable).toEqual(["9007199254740993"]);
  expect(payload).toBe(
    '{"CustomerId":9007199254740993,"Address":["2 High Street","Hull"],"MovedAt":null,"Labels":{"a":"1"}}',
  );
  expect(type).toMatchObject({
    number,
    name: "CustomerMoved",
    description: "A customer has a new address.",
    sample: expect.stringMatching(
      /^\{"CustomerId":77,"Address":\["1 Harbour Road"\],"MovedAt":"2026-11-21T09:30:00"/,
    ),
  });
  const validate = schemaValidator(type.schema);
  expect(validate(JSON.parse(payload))).toBe(true);
  expect(validate({ ...JSON.parse(payload), CustomerId: 0 })).toBe(false);
  expect(hashes).toEqual([hashes[0], hashes[0], expect.not.stringMatching(hashes[0])]);

  const document = readFileSync(path.join(copy, "docs/events.md"), "utf8");
  expect(document).toContain("\n## CustomerMoved\n\nA customer has a new address.\n");
  // Nothing else has to change for the code to be right. Tests and the like say what there is today.
  write("tsconfig.code.json", JSON.stringify(CODE));
  run("tsc", "--noEmit", "--project", "tsconfig.code.json");
  run("buf", "lint");
});

test("a field that cannot be searchable is refused at the start", () => {
  write(PROTO, edited.replace(MOVED_AT, `${MOVED_AT} [(searchable) = true]`));
  run("buf", "generate");
  write("probe.ts", PROBE);
  const { stderr } = spawnSync("node", ["probe.ts"], { cwd: copy, encoding: "utf8" });
  expect(stderr).toContain(
    "webhook.v1.CustomerMoved.moved_at cannot be searchable; allowed are texts, integers and lists of them: remove the option",
  );
});
