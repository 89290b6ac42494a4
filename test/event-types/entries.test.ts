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
