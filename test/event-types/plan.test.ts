import { describe, expect, test } from "vitest";
import { afterwards, invoicePaid, plan, protoFile, registered, type Stored } from "./files.ts";

const ID = "  string id = 1;";

test("a message with the option event_type is added, with its number, name and alias", async () => {
  const { added, files, problems } = await plan(
    protoFile(`
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, name: "Paid", alias: "invoice.paid"};
  string id = 1;
}
message InvoiceSent {
  option (webhook.v1.event_type) = {};
  string id = 1;
}
message NoEvent {}`),
  );
  expect(problems).toEqual([]);
  expect(added).toEqual([
    { process: 1004, name: "Paid", alias: "invoice.paid", message: "billing.v1.InvoicePaid" },
    { name: "InvoiceSent", alias: null, message: "billing.v1.InvoiceSent" },
  ]);
  expect(files.map(({ path }) => path)).toEqual(["billing.proto"]);
});

test("lines, services and messages of no event type may change without a change of the catalogue", async () => {
  const stored = await registered(invoicePaid(ID));
  const { files, unchanged, problems } = await plan(
    `${invoicePaid(`\n\n${ID}`)}\nmessage Request {}\nservice Billing { rpc Pay(Request) returns (Request); }`,
    stored,
  );
  expect({ files, unchanged, problems }).toEqual({ files: [], unchanged: stored.types, problems: [] });
});

test("changes are listed in words", async () => {
  const before = `
// A line.
message Line { string sku = 1; }
enum Kind { KIND_UNSPECIFIED = 0; }
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004};
  string id = 1 [(webhook.v1.example) = "1"];
  repeated Line lines = 2;
  Kind kind = 3;
  // Who paid.
  string payer = 4;
}`;
  const after = `
// A line of an invoice.
message Line { string sku = 1; int32 count = 2; }
enum Kind { KIND_UNSPECIFIED = 0; KIND_CARD = 1; }
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, alias: "invoice.paid"};
  string id = 1 [(webhook.v1.example) = "2", (webhook.v1.searchable) = true];
  repeated Line lines = 2;
  Kind kind = 3;
  // The person who paid.
  string payer = 4;
  string due_date = 5;
}`;
  const stored = await registered(protoFile(before));
  const { changed, problems } = await plan(protoFile(after), stored);
  expect(problems).toEqual([]);
  expect(changed).toEqual([
    {
      type: stored.types[0],
      alias: "invoice.paid",
      changes: [
        "alias invoice.paid added",
        "field id: searchable changed",
        "field id: example changed",
        "field payer: description changed",
        "field due_date added",
        "Line: description changed",
        "Line: field count added",
        "Kind: value KIND_CARD added",
      ],
    },
  ]);
});

test("files that are not given stay, and a given file replaces the stored one of its path", async () => {
  const money = (more: string) =>
    `syntax = "proto3"; package money.v1; message Money { int64 units = 1; ${more} }`;
  const user = (name: string) =>
    `syntax = "proto3"; package ${name.toLowerCase()}.v1; import "webhook/v1/options.proto"; import "money.proto";
     message ${name} { option (webhook.v1.event_type) = {}; money.v1.Money total = 1; }`;
  const first = await registered({ "money.proto": money(""), "paid.proto": user("Paid") });
  const second = await plan(
    { "money.proto": money("string currency = 2;"), "sent.proto": user("Sent") },
    first,
  );
  expect(second.problems).toEqual([]);
  expect(second.files.map(({ path }) => path).sort()).toEqual(["money.proto", "sent.proto"]);
  expect(second.changed.map(({ type, changes }) => [type.name, changes])).toEqual([
    ["Paid", ["Money: field currency added"]],
  ]);
  const stored = afterwards(first, second);
  const older = await plan({ "money.proto": money(""), "sent.proto": user("Sent") }, stored);
  expect(older.problems).toMatchObject([{ subject: "money.v1.Money", file: "money.proto", line: 1 }]);
});

test("a message may move to another file", async () => {
  const stored = await registered(invoicePaid(ID));
  const result = await plan({ "invoices.proto": invoicePaid(ID) }, stored);
  expect(result).toMatchObject({ problems: [], unchanged: stored.types });
  const moved = afterwards(stored, result);
  expect(await plan({ "invoices.proto": invoicePaid(ID) }, moved)).toMatchObject({ files: [], problems: [] });
});

describe("a set is refused with", () => {
  test.each<[string, string, object]>([
    ["no event type", protoFile("message A {}"), { problem: expect.stringContaining("no message") }],
    [
      "a number of the service",
      invoicePaid(ID, "process: 999"),
      {
        file: "billing.proto",
        line: 4,
        subject: "billing.v1.InvoicePaid",
        problem: /999 is not in 1000 to 10000/,
      },
    ],
    ["a number of notices", invoicePaid(ID, "process: 10001"), { problem: /10001 is not in/ }],
    ["a negative number", invoicePaid(ID, "process: -5"), { problem: /-5 is not in/ }],
    ["a name with an underscore", invoicePaid(ID, 'name: "Invoice_Paid"'), { problem: /name Invoice_Paid/ }],
    ["a name in lower case", invoicePaid(ID, 'name: "invoicePaid"'), { problem: /name invoicePaid/ }],
    ["a name of 101 characters", invoicePaid(ID, `name: "I${"x".repeat(100)}"`), { problem: /at most 100/ }],
    [
      "a built-in name",
      invoicePaid(ID, 'name: "ORDERDispatched"'),
      { problem: /taken by webhook.v1.OrderDispatched/ },
    ],
    ["the name of a notice", invoicePaid(ID, 'name: "DeliveryFailed"'), { problem: /taken by webhook.v1/ }],
    [
      "an alias in capitals",
      invoicePaid(ID, 'alias: "Invoice"'),
      { problem: /alias Invoice is not allowed/ },
    ],
    ["an alias of digits", invoicePaid(ID, 'alias: "1005"'), { problem: /alias 1005/ }],
    ["an alias of 101 characters", invoicePaid(ID, `alias: "${"a".repeat(101)}"`), { problem: /1 to 100/ }],
    [
      "an alias that is a built-in name",
      invoicePaid(ID, 'alias: "orderdispatched"'),
      { problem: /taken by/ },
    ],
    [
      "raw JSON",
      invoicePaid("string data = 1 [(webhook.v1.raw_json) = true];"),
      { subject: "billing.v1.InvoicePaid.data", line: 6, problem: /raw_json/ },
    ],
    [
      "a searchable number with a fraction",
      invoicePaid("double total = 1 [(webhook.v1.searchable) = true];"),
      { subject: "billing.v1.InvoicePaid.total", problem: /cannot be searchable/ },
    ],
    [
      "an example of another type",
      invoicePaid('int32 count = 1 [(webhook.v1.example) = "many"];'),
      { subject: "billing.v1.InvoicePaid.count", line: 6, problem: /example does not fit/ },
    ],
    [
      "an example that JSON cannot have",
      invoicePaid('double rate = 1 [(webhook.v1.example) = "NaN"];'),
      { problem: /example does not fit.*finite/ },
    ],
    [
      "an example that is no time",
      invoicePaid('google.protobuf.Timestamp at = 1 [(webhook.v1.example) = "today"];'),
      { problem: /example does not fit/ },
    ],
    [
      "fields with one JSON name",
      protoFile(
        "message InvoicePaid { option (webhook.v1.event_type) = {}; int32 a_b = 1; int32 a__b = 2; }",
        'syntax = "proto2"; package billing.v1;',
      ).replaceAll("int32", "optional int32"),
      { problem: /a_b and a__b would both be AB in JSON/ },
    ],
    [
      "a required field of proto2",
      protoFile(
        "message A { option (webhook.v1.event_type) = {}; required int32 a = 1; }",
        'syntax = "proto2"; package a;',
      ),
      { subject: "a.A.a", problem: /label required/ },
    ],
    [
      "a type of google.protobuf",
      `${invoicePaid("google.protobuf.Any any = 1;")}\nimport "google/protobuf/any.proto";`,
      { subject: "billing.v1.InvoicePaid.any", line: 6, problem: /is a google.protobuf.Any; of google/ },
    ],
    [
      "a type of this service",
      invoicePaid("webhook.v1.Permission permission = 1;"),
      { problem: /is a webhook.v1.Permission; .* only Timestamp/ },
    ],
    [
      "a package of this service",
      protoFile("message A { option (event_type) = {}; }", 'syntax = "proto3"; package webhook.v1;'),
      { problem: /belongs to this service/ },
    ],
    [
      "an example that is no boolean",
      invoicePaid('bool paid = 1 [(webhook.v1.example) = "yes"];'),
      { problem: /example does not fit/ },
    ],
    [
      "a field whose name has no letter",
      invoicePaid("string _ = 1;"),
      { subject: "billing.v1.InvoicePaid._", line: 6, problem: /would be "" in JSON/ },
    ],
    [
      "a field whose name starts with a digit",
      invoicePaid("string _2fa_on = 1;"),
      { problem: /would be "2faOn" in JSON/ },
    ],
    [
      "an enum value whose name has no letter",
      invoicePaid("Kind kind = 1; enum Kind { _ = 0; }"),
      { subject: "billing.v1.InvoicePaid.Kind._", problem: /has no letter/ },
    ],
    [
      "a required member of a oneof",
      invoicePaid("oneof by { string card = 1 [(webhook.v1.required) = true]; string account = 2; }"),
      { subject: "billing.v1.InvoicePaid.card", problem: /at most one member of a oneof/ },
    ],
    [
      "a required field that contains itself",
      protoFile(`
message A { option (webhook.v1.event_type) = {}; B b = 1; InNone other = 2; }
message B { option (webhook.v1.event_type) = {}; C c = 1 [(webhook.v1.required) = true]; }
message C { repeated B b = 1 [(webhook.v1.required) = true]; }
message InNone { D d = 1 [(webhook.v1.required) = true]; }
message D { InNone again = 1; }`),
      { subject: "billing.v1.C.b", line: 7, problem: /is required within itself/ },
    ],
    [
      "messages nested 65 levels deep",
      protoFile(
        `message A { option (webhook.v1.event_type) = {}; M1 m = 1; }\n${Array.from({ length: 64 }, (_, n) => `message M${n + 1} { ${n === 63 ? "string s" : `M${n + 2} m`} = 1; }`).join("\n")}`,
      ),
      { subject: "billing.v1.A", problem: /deeper than the 64/ },
    ],
    [
      "messages that contain each other too often",
      protoFile(
        `message A { option (webhook.v1.event_type) = {}; ${Array.from({ length: 12 }, (_, n) => `M${n} m${n} = ${n + 1};`).join(" ")} }\n${Array.from({ length: 12 }, (_, n) => `message M${n} { ${Array.from({ length: 12 }, (_, m) => `M${m} m${m} = ${m + 1};`).join(" ")} }`).join("\n")}`,
      ),
      { problem: /more than 10000 fields/ },
    ],
  ])("%s", async (_what, file, problem) => {
    const { problems } = await plan(file);
    const [first] = problems;
    expect(problems).toHaveLength(1);
    const { problem: text, ...place } = problem as { problem: RegExp | object };
    expect(first).toMatchObject(place);
    expect(first?.problem).toEqual(text instanceof RegExp ? expect.stringMatching(text) : text);
    expect(first?.remedy).not.toBe("");
  });
});

describe("of a registered event type", () => {
  const options = 'process: 1004, name: "Paid", alias: "invoice.paid"';
  const before = invoicePaid(ID, options);
  test.each<[string, string | Record<string, string>, RegExp]>([
    ["the number cannot change", invoicePaid(ID, options.replace("1004", "1005")), /process is 1005/],
    ["the name cannot change", invoicePaid(ID, options.replace("Paid", "Payed")), /name is Payed/],
    ["the alias cannot change", invoicePaid(ID, options.replace(".", "_")), /alias is invoice_paid/],
    ["the alias cannot be removed", invoicePaid(ID, 'process: 1004, name: "Paid"'), /alias is left out/],
    [
      "the option cannot be removed",
      protoFile(`message InvoicePaid {\n${ID}\n}\nmessage Other { option (webhook.v1.event_type) = {}; }`),
      /event type Paid is missing: its message has no option/,
    ],
    [
      "the message cannot be removed",
      protoFile("message Other { option (webhook.v1.event_type) = {}; }"),
      /event type Paid is missing: the file no longer declares/,
    ],
    ...(
      ["process: 1004", 'name: "PAID"', 'name: "Other", alias: "invoice.paid"', 'alias: "paid"'] as const
    ).map((other): [string, Record<string, string>, RegExp] => [
      `another cannot have {${other}}`,
      {
        "other.proto": protoFile(
          `message Other { option (webhook.v1.event_type) = {${other}}; }`,
          'syntax = "proto3"; package other;',
        ),
      },
      /is taken by billing.v1.InvoicePaid/,
    ]),
  ])("%s", async (_what, files, problem) => {
    for (const deprecated of [null, new Date()]) {
      const { files: storedFiles, types } = await registered(before);
      const stored: Stored = { files: storedFiles, types: types.map((type) => ({ ...type, deprecated })) };
      const { problems } = await plan(files, stored);
      expect(problems).toEqual([expect.objectContaining({ problem: expect.stringMatching(problem) })]);
    }
  });

  test("an alias can be added, and the number and name left out", async () => {
    const stored = await registered(invoicePaid(ID));
    const { changed, problems } = await plan(invoicePaid(ID, 'alias: "invoice.paid"'), stored);
    expect(problems).toEqual([]);
    expect(changed).toMatchObject([{ alias: "invoice.paid", changes: ["alias invoice.paid added"] }]);
  });
});

test("numbers, names and aliases are unique in a set", async () => {
  const { problems } = await plan(
    protoFile(`
message A { option (webhook.v1.event_type) = {process: 1000, alias: "x"}; }
message B { option (webhook.v1.event_type) = {process: 1000, alias: "x", name: "a"}; }
message C { option (webhook.v1.event_type) = {name: "A"}; }`),
  );
  expect(problems.map(({ line, problem }) => [line, problem.split(" is taken")[0]])).toEqual([
    [6, "the process 1000"],
    [6, expect.stringContaining("name a is not allowed")],
    [6, "the name a"],
    [6, "the alias x"],
    [7, "the name A"],
  ]);
});

test("100 problems are listed, and the number of the others", async () => {
  const messages = Array.from(
    { length: 103 },
    (_, n) => `message M${n} { option (webhook.v1.event_type) = {process: 1}; }`,
  );
  const { problems } = await plan(protoFile(messages.join("\n")));
  expect(problems).toHaveLength(101);
  expect(problems.at(-1)?.problem).toMatch(/^and \d+ more$/);
});
