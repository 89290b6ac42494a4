import { create, setExtension } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FieldDescriptorProto_Label as Label,
  MessageOptionsSchema,
  type FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { EventTypeOptionsSchema, event_type } from "../../gen/webhook/v1/options_pb.ts";
import { buildEntries, planRegistration } from "../../src/event-types/index.ts";
import { prepare } from "../../src/event-types/prepare.ts";
import { buildFileSet } from "../support/registered-types.ts";
import { afterwards, changedSet, craftedSet, NOTHING, protoFile } from "./files.ts";

const SET = buildFileSet({
  "common/money.proto":
    'syntax = "proto3"; package common; message Money { int64 units = 1; string currency = 2; }',
  "billing.proto": protoFile(
    `import "common/money.proto";
// Paid.
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, alias: "invoice.paid"};
  string id = 1 [(webhook.v1.required) = true, (webhook.v1.example) = "I-1"];
  common.Money total = 2;
  map<string, Line> lines = 3;
  Kind kind = 4;
  oneof payer { string person = 5; string company = 6; }
  InvoicePaid previous = 7;
  message Line { google.protobuf.Timestamp at = 1; optional int32 count = 2; }
  enum Kind { KIND_UNSPECIFIED = 0; KIND_CARD = 1; }
}`,
  ),
});

function paid({ messageType: [message] }: FileDescriptorProto): NonNullable<typeof message> | undefined {
  return message?.name === "InvoicePaid" ? message : undefined;
}

/** Changes InvoicePaid. */
function withPaid(change: (message: NonNullable<ReturnType<typeof paid>>) => void): Uint8Array {
  return changedSet(SET, (file) => {
    const message = paid(file);
    if (message) change(message);
  });
}

/** An option event_type whose field `process` is a text. */
const OF_WRONG_TYPE = (() => {
  const options = create(MessageOptionsSchema);
  options.$unknown = [{ no: event_type.number, wireType: 2, data: Uint8Array.of(4, 0x0a, 0x7f, 1, 2) }];
  return options;
})();

const EVENT = (() => {
  const options = create(MessageOptionsSchema);
  setExtension(options, event_type, create(EventTypeOptionsSchema));
  return options;
})();

/** A file `a.proto` of 8 million empty messages. */
const HUGE = (() => {
  const file = Buffer.alloc(16_000_000, Uint8Array.of(0x22, 0));
  file.write("\n\u0008/a.proto", 0);
  return Buffer.concat([Uint8Array.of(0x0a, 0x80, 0xc8, 0xd0, 0x07), file]);
})();

function eventFile(name: string, dependency: string[], field: object[] = []): object {
  const messageType = [{ name: name.toUpperCase(), options: EVENT, field }];
  return {
    name: `${name}.proto`,
    package: name,
    syntax: "proto3",
    dependency: ["webhook/v1/options.proto", ...dependency],
    messageType,
  };
}

test.each<[string, Uint8Array, RegExp]>([
  ["no bytes", new Uint8Array(), /no message of the files is an event type/],
  ["text", Buffer.from('syntax = "proto3"; message A {}'), /no FileDescriptorSet/],
  ["more than 16 MiB", new Uint8Array(16 * 1_024 * 1_024 + 1), /more than the 16777216 allowed/],
  ["half a set", SET.subarray(0, SET.length / 2), /no FileDescriptorSet/],
  ["a length beyond the end", Uint8Array.of(0x0a, 0xff, 0xff, 0xff, 0x7f, 1), /no FileDescriptorSet/],
  ["a field of another wire type", Uint8Array.of(0x0a, 0x04, 0x22, 0x02, 0x08, 0x01), /no FileDescriptorSet/],
  ["a file without a path", craftedSet({}), /path of 1 to 500/],
  ["two files of one path", Buffer.concat([SET, SET]), /two files of this path/],
  [
    "imports in a circle",
    craftedSet(eventFile("a", ["b.proto"]), eventFile("b", ["a.proto"])),
    /import each other: a.proto, b.proto, a.proto/,
  ],
  [
    "a file that imports itself",
    craftedSet(eventFile("a", ["a.proto"])),
    /import each other: a.proto, a.proto/,
  ],
  [
    "a missing import",
    changedSet(SET, (file) => {
      if (file.name === "common/money.proto") Object.assign(file, { name: "other.proto", package: "other" });
    }),
    /common\.Money not found; the set lacks common\/money\.proto/,
  ],
  [
    "5,001 files",
    craftedSet(...Array.from({ length: 5_001 }, (_, n) => ({ name: `${n}.proto` }))),
    /more than 5000 files/,
  ],
  [
    "10,001 enum values",
    withPaid(({ enumType: [kind] }) => {
      kind?.value.push(
        ...Array.from({ length: 10_000 }, () => ({ ...kind.value[0] }) as (typeof kind.value)[0]),
      );
    }),
    /more than 10000 values/,
  ],
  [
    "a million empty messages",
    craftedSet({ name: "a.proto", messageType: Array.from({ length: 600_001 }, () => ({})) }),
    /more than 600000 declarations/,
  ],
  ["more messages than fit into memory", HUGE, /too large: it takes more than 512 MiB/],
  [
    "messages declared in each other 70 levels deep",
    craftedSet({
      name: "a.proto",
      messageType: [
        Array.from({ length: 70 }).reduce<object>((inner) => ({ name: "A", nestedType: [inner] }), {
          name: "A",
        }),
      ],
    }),
    /nested deeper than the 64/,
  ],
  [
    "an option that cannot be read",
    withPaid((message) => {
      message.options = OF_WRONG_TYPE;
    }),
    /event_type\) cannot be read|no message of the files/,
  ],
  [
    "a name that is none",
    withPaid(({ field: [id] }) => {
      if (id) id.name = 'id":"","admin';
    }),
    /invalid field name/,
  ],
  [
    "a message's name that is none",
    withPaid((message) => {
      message.name = "Invoice Paid";
    }),
    /invalid message name/,
  ],
  [
    "a field's number twice",
    withPaid(({ field: [, total] }) => {
      if (total) total.number = 1;
    }),
    /has conflicting fields: "total" with "id"/,
  ],
  [
    "a field of type 99",
    withPaid(({ field: [id] }) => {
      if (id) id.type = 99 as Type;
    }),
    /invalid kind: 99/,
  ],
  [
    "a oneof that is none",
    withPaid(({ field: [id] }) => {
      if (id) id.oneofIndex = 9;
    }),
    /oneof #9 for field #1 not found/,
  ],
  [
    "a map entry in a field that is no map",
    withPaid(({ field }) => {
      for (const each of field) if (each.name === "lines") each.label = Label.OPTIONAL;
    }),
    /InvoicePaid.LinesEntry not found/,
  ],
  [
    "an enum where a message is",
    withPaid(({ field: [, total] }) => {
      if (total) total.typeName = ".billing.v1.InvoicePaid.Kind";
    }),
    /Kind not found/,
  ],
  [
    "an enum without values",
    withPaid(({ enumType: [kind] }) => {
      if (kind) kind.value = [];
    }),
    /must contain at least one value/,
  ],
  [
    "enum values with one JSON name",
    withPaid(({ enumType: [kind] }) => {
      if (kind?.value[1]) kind.value[1].name = "KIND_unspecified";
    }),
    /would both be Unspecified in JSON/,
  ],
  [
    "a message declared twice",
    changedSet(SET, (file) => {
      if (paid(file)) file.messageType.push(...file.messageType);
    }),
    /declares it too/,
  ],
  [
    "an edition of the future",
    changedSet(SET, (file) => {
      if (paid(file)) Object.assign(file, { syntax: "editions", edition: 7_000 });
    }),
    /unsupported edition/,
  ],
])("a set is refused with %s", async (_what, set, problem) => {
  const { problems, files, added } = await planRegistration(NOTHING, set);
  expect(problems.map((each) => each.problem).join("\n")).toMatch(problem);
  expect({ files, added }).toEqual({ files: [], added: [] });
  for (const each of problems) expect(each.remedy).not.toBe("");
});

test("options of other files with the same numbers are not read", async () => {
  const set = changedSet(SET, (file) => {
    const [money] = file.name === "common/money.proto" ? file.messageType : [];
    if (money) money.options = EVENT;
  });
  const { added, problems } = await planRegistration(NOTHING, set);
  expect(problems).toEqual([]);
  expect(added.map(({ message }) => message)).toEqual(["billing.v1.InvoicePaid"]);
});

test("whatever a set has as google/protobuf and options.proto, this service's own are used", async () => {
  const set = changedSet(SET, (file) => {
    if (/^google|^webhook/.test(file.name)) file.messageType = [];
  });
  expect((await planRegistration(NOTHING, set)).problems).toEqual([]);
});

test("proto2 and editions are read as proto3 is", async () => {
  for (const header of ['syntax = "proto2"; package a;', 'edition = "2023"; package a;']) {
    const label = header.startsWith("syntax") ? "optional" : "";
    const set = buildFileSet({
      "a.proto": protoFile(
        `message A { option (webhook.v1.event_type) = {}; ${label} string id = 1; repeated int32 n = 2; }`,
        header,
      ),
    });
    const result = await planRegistration(NOTHING, set);
    const { files, types } = afterwards(NOTHING, result);
    expect(buildEntries(files, types)[0]?.payload.fields.map(({ name }) => name)).toEqual(["id", "n"]);
  }
});

test("a file of edition 2024 may import the options for their use only", async () => {
  const text = `edition = "2024"; package a; import option "webhook/v1/options.proto";
    message A { option (webhook.v1.event_type) = {}; string id = 1 [(webhook.v1.required) = true]; }`;
  const { added, problems } = await planRegistration(NOTHING, buildFileSet({ "a.proto": text }));
  expect({ problems, names: added.map(({ name }) => name) }).toEqual({ problems: [], names: ["A"] });
});

/** Changes of a set's bytes: another byte, some left out, some repeated. */
const mutation = fc.record({
  at: fc.double({ min: 0, max: 1, noNaN: true }),
  kind: fc.constantFrom("replace", "remove", "repeat"),
  byte: fc.nat(255),
  length: fc.integer({ min: 1, max: 40 }),
});

test("changed bytes are planned or refused, and what is planned can be built", async () => {
  const stored = afterwards(NOTHING, await planRegistration(NOTHING, SET));
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 5 }), (mutations) => {
      let bytes = Buffer.from(SET);
      for (const { at, kind, byte, length } of mutations) {
        const from = Math.floor(at * (bytes.length - 1));
        const end = Math.min(bytes.length, from + length);
        if (kind === "replace") bytes[from] = byte;
        else
          bytes = Buffer.concat([
            bytes.subarray(0, kind === "repeat" ? end : from),
            bytes.subarray(kind === "repeat" ? from : end),
          ]);
      }
      const { plan } = prepare(NOTHING, bytes);
      if (plan.problems.length > 0) return;
      const { files, types } = afterwards(NOTHING, plan);
      expect(buildEntries(files, types).map(({ payload }) => payload)).toHaveLength(types.length);
    }),
    { numRuns: 300 },
  );
  expect(buildEntries(stored.files, stored.types)).toHaveLength(1);
});

test("descriptors whose parts are changed are planned or refused", () => {
  const texts = fc.constantFrom(
    "",
    "a",
    "A",
    ".a.A",
    ".billing.v1.InvoicePaid",
    ".common.Money",
    "id",
    "\u0000",
    "é",
    "__proto__",
  );
  const numbers = fc.constantFrom(-1, 0, 1, 2, 3, 9, 10, 11, 14, 99, 2 ** 29, 2 ** 31 - 1);
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.nat(500), texts, numbers), { minLength: 1, maxLength: 3 }),
      (changes) => {
        const set = changedSet(SET, (file) => {
          if (/^google|^webhook/.test(file.name)) return;
          const parts: [Record<string, unknown>, string][] = [];
          collectParts(file, parts);
          for (const [at, text, number] of changes) {
            const [owner, key] = parts[at % parts.length] as [Record<string, unknown>, string];
            owner[key] =
              typeof owner[key] === "string" ? text : typeof owner[key] === "number" ? number : owner[key];
          }
        });
        const { plan } = prepare(NOTHING, set);
        if (plan.problems.length > 0) return;
        const { files, types } = afterwards(NOTHING, plan);
        expect(buildEntries(files, types).map(({ payload }) => payload)).toHaveLength(types.length);
      },
    ),
    { numRuns: 300 },
  );
});

/** The texts and numbers of a descriptor, each by its owner and name. */
function collectParts(value: unknown, parts: [Record<string, unknown>, string][]): void {
  if (typeof value !== "object" || value === null || value instanceof Uint8Array) return;
  for (const [key, each] of Object.entries(value)) {
    if (key === "sourceCodeInfo" || key.startsWith("$")) continue;
    if (typeof each === "string" || typeof each === "number")
      parts.push([value as Record<string, unknown>, key]);
    else collectParts(each, parts);
  }
}
