import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { commentOf } from "../../src/contract/comments.ts";
import { buildEntries } from "../../src/event-types/index.ts";
import { afterwards, invoicePaid, plan, protoFile, registered } from "./files.ts";

test("an entry has the number, name, alias, message and comments of its type", async () => {
  const { files, types } = await registered(
    protoFile(`
// An invoice was paid.
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, alias: "invoice.paid"};
  // The invoice.
  string invoice_id = 1;
}
message Unused {}`),
  );
  const [entry] = buildEntries(files, types);
  expect(entry).toMatchObject({ number: 1_004, name: "InvoicePaid", alias: "invoice.paid" });
  expect(entry?.deprecated).toBeUndefined();
  expect(entry?.payload.typeName).toBe("billing.v1.InvoicePaid");
  expect(entry && commentOf(entry.payload)).toBe("An invoice was paid.");
  expect(entry?.payload.fields.map((field) => commentOf(field))).toEqual(["The invoice."]);
  expect(entry?.payload.file.messages).toHaveLength(1);
  const deprecated = types.map((type) => ({ ...type, deprecated: new Date() }));
  expect(buildEntries(files, deprecated)[0]?.deprecated).toBe(true);
});

test("messages of files that have not changed are the same objects", async () => {
  const stored = await registered(invoicePaid("string id = 1;"));
  const more = afterwards(
    stored,
    await plan(
      {
        "other.proto": protoFile(
          "message Other { option (webhook.v1.event_type) = {}; }",
          'syntax = "proto3"; package other;',
        ),
      },
      stored,
    ),
  );
  const [before] = buildEntries(stored.files, stored.types);
  const [after, other] = buildEntries(
    more.files.map((file) => ({ ...file, descriptor: Buffer.from(file.descriptor) })),
    more.types,
  );
  expect(after?.payload).toBe(before?.payload);
  expect(other).toMatchObject({ number: 1_005, name: "Other" });
  const changed = afterwards(more, await plan(invoicePaid("string id = 1; string b = 2;"), more));
  const [third, fourth] = buildEntries(changed.files, changed.types);
  expect(third?.payload).not.toBe(before?.payload);
  expect(third?.payload.fields).toHaveLength(2);
  expect(fourth?.payload).toBe(other?.payload);
});

const MONEY =
  'syntax = "proto3"; package money; message Money { Part whole = 1; message Part { int64 units = 1; } }';
const withMoney = (name: string, more = "") =>
  protoFile(
    `import "money.proto";\nmessage ${name} { option (webhook.v1.event_type) = {}; money.Money total = 1; ${more} }`,
    `syntax = "proto3"; package ${name.toLowerCase()};`,
  );

test("a message is built with its file and what that imports; files that import the same share it", async () => {
  const stored = await registered({
    "money.proto": MONEY,
    "paid.proto": withMoney("Paid"),
    "sent.proto": withMoney("Sent"),
    "due.proto": withMoney("Due"),
  });
  const broken = stored.files.map((file) =>
    file.path === "due.proto" ? { ...file, descriptor: damaged(file.descriptor) } : file,
  );
  const entries = buildEntries(broken, stored.types);
  const messageOf = (name: string, of = entries) => of.find((entry) => entry.name === name)?.payload;
  expect(() => messageOf("Due")).toThrow("money.Nothing not found");
  const [paid, sent] = [messageOf("Paid"), messageOf("Sent")];
  expect(paid?.fields[0]?.message?.fields[0]?.message?.typeName).toBe("money.Money.Part");
  expect(sent?.fields[0]?.message).toBe(paid?.fields[0]?.message);
  expect(sent?.file.dependencies).toEqual([paid?.fields[0]?.message?.file]);
  expect(buildEntries(stored.files, stored.types)).toHaveLength(3);

  const sentMore = { "money.proto": MONEY, "sent.proto": withMoney("Sent", "string id = 2;") };
  const changed = afterwards(stored, await plan(sentMore, stored));
  const later = buildEntries(changed.files, changed.types);
  expect(messageOf("Paid", later)).toBe(paid);
  expect(messageOf("Sent", later)).not.toBe(sent);
  expect(messageOf("Sent", later)?.fields[0]?.message).toBe(paid?.fields[0]?.message);
  const grownMoney = MONEY.replace("int64 units = 1;", "int64 units = 1; int32 nanos = 2;");
  const grown = afterwards(changed, await plan({ ...sentMore, "money.proto": grownMoney }, changed));
  const last = messageOf("Paid", buildEntries(grown.files, grown.types));
  expect(last?.fields[0]?.message?.fields[0]?.message?.fields).toHaveLength(2);
});

test("files that import each other in very many ways are built at once", async () => {
  const name = (n: number) => `M${n}`;
  const files = Array.from({ length: 60 }, (_, n) => {
    const imports = [n + 1, n + 2].filter((each) => each < 60);
    const parts = imports.map((each, index) => `message Own${index} { m${each}.${name(each)} m = 1; }`);
    return [
      `m${n}.proto`,
      `syntax = "proto3"; package m${n}; import "webhook/v1/options.proto";
${imports.map((each) => `import "m${each}.proto";`).join("")}
message ${name(n)} { ${n % 20 === 0 ? `option (webhook.v1.event_type) = {};` : ""} string id = 1; ${parts.join(" ")} }`,
    ];
  });
  const { files: stored, types } = await registered(Object.fromEntries(files));
  expect(buildEntries(stored, types).map(({ payload }) => payload.fields.length)).toEqual([1, 1, 1]);
});

/** A file whose field `total` has a type that does not exist. */
function damaged(descriptor: Uint8Array): Uint8Array {
  const file = fromBinary(FileDescriptorProtoSchema, descriptor);
  for (const field of file.messageType[0]?.field ?? [])
    if (field.name === "total") field.typeName = ".money.Nothing";
  return toBinary(FileDescriptorProtoSchema, file);
}

test("messages without a package and within others are found", async () => {
  const { files, types } = await registered(
    protoFile(
      `
message Paid {
  option (webhook.v1.event_type) = {};
  Part part = 1;
  message Part { option (webhook.v1.event_type) = {}; Deep deep = 1; message Deep { string id = 1; } }
}`,
      'syntax = "proto3";',
    ),
  );
  const entries = buildEntries(files, types);
  expect(entries.map(({ payload }) => payload.typeName)).toEqual(["Paid", "Paid.Part"]);
});

test("a type whose message is not stored is an error", async () => {
  const { types } = await registered(invoicePaid("string id = 1;"));
  expect(() => buildEntries([], types)).toThrow("no stored file declares billing.v1.InvoicePaid");
});
