import { expect, test } from "vitest";
import { plan, protoFile, registered } from "./files.ts";

/** A file with an event type, line 4, whose fields start at line 6, and an enum. */
function fileOf(
  fields: readonly string[],
  values = "KIND_UNSPECIFIED = 0; KIND_CARD = 1;",
  more = "",
): string {
  const [first, ...lines] = [
    "message InvoicePaid {",
    "  option (webhook.v1.event_type) = {process: 1004};",
    ...fields,
    "}",
    `enum Kind { ${values} }`,
    `message Money { int64 units = 1; ${more} }`,
  ];
  return protoFile([first, ...lines].join("\n"));
}

const FIELDS = [
  "string id = 1 [(webhook.v1.required) = true];",
  "Money total = 2;",
  "optional Kind kind = 3;",
  "repeated string notes = 4;",
  "oneof payer { string person = 5; string company = 6; }",
];

function withField(index: number, field: string): string {
  return fileOf(FIELDS.with(index, field));
}

test.each<[string, string, object]>([
  [
    "a field is removed",
    withField(3, ""),
    { problem: /"notes"/, line: 4, subject: "billing.v1.InvoicePaid" },
  ],
  [
    "a field is reserved",
    withField(3, 'reserved 4; reserved "notes";'),
    { problem: /"notes"/, line: 4, subject: "billing.v1.InvoicePaid" },
  ],
  [
    "a field is renamed",
    withField(3, "repeated string remarks = 4;"),
    { problem: /changed name/, line: 9, subject: "billing.v1.InvoicePaid.remarks" },
  ],
  [
    "a field has another type",
    withField(3, "repeated bytes notes = 4;"),
    { problem: /changed type/, line: 9 },
  ],
  ["a list is one value", withField(3, "string notes = 4;"), { problem: /changed cardinality/, line: 9 }],
  [
    "a field cannot be null any more",
    withField(2, "Kind kind = 3;"),
    { problem: /changed cardinality/, line: 8 },
  ],
  [
    "an enum value is removed",
    fileOf(FIELDS, "KIND_UNSPECIFIED = 0;"),
    { problem: /enum value "1"/, subject: "billing.v1.Kind" },
  ],
  [
    "an enum value is renamed",
    fileOf(FIELDS, "KIND_UNSPECIFIED = 0; KIND_CASH = 1;"),
    { problem: /changed name/, subject: "billing.v1.Kind.KIND_CASH" },
  ],
  [
    "a required field is added",
    fileOf([...FIELDS, "string due_date = 7 [(webhook.v1.required) = true];"]),
    { problem: /a new field is required/, line: 11, subject: "billing.v1.InvoicePaid.due_date" },
  ],
  [
    "a required field is added to a message in it",
    fileOf(FIELDS, undefined, "string currency = 2 [(webhook.v1.required) = true];"),
    { problem: /a new field is required/, subject: "billing.v1.Money.currency" },
  ],
  [
    "a field becomes required",
    withField(1, "Money total = 2 [(webhook.v1.required) = true];"),
    { problem: /was not required and is now/, line: 7 },
  ],
  [
    "a field is no longer required",
    withField(0, "string id = 1;"),
    { problem: /was required and is not any more/, line: 6, subject: "billing.v1.InvoicePaid.id" },
  ],
])("a change is refused if %s", async (_what, after, expected) => {
  const { problems, files } = await plan(after, await registered(fileOf(FIELDS)));
  const { problem, ...place } = expected as { problem: RegExp };
  const found = problems.find((each) => problem.test(each.problem));
  expect(found, JSON.stringify(problems)).toMatchObject({ file: "billing.proto", ...place });
  expect(found?.remedy).not.toBe("");
  expect(files).toEqual([]);
});

test("all changes that break something are listed", async () => {
  const after = fileOf(["string id = 1;", "repeated string notes = 4;"], "KIND_UNSPECIFIED = 0;");
  const { problems } = await plan(after, await registered(fileOf(FIELDS)));
  expect(problems.length).toBeGreaterThanOrEqual(5);
});

test("what breaks nobody is allowed", async () => {
  const after = fileOf(
    [
      ...FIELDS,
      "string due_date = 7;",
      "message Line { string sku = 1 [(webhook.v1.required) = true]; } repeated Line lines = 8;",
    ],
    "KIND_UNSPECIFIED = 0; KIND_CARD = 1; KIND_CASH = 2;",
  ).replace("package billing.v1;", 'package billing.v1; option go_package = "example.com/billing";');
  const { problems, changed } = await plan(after, await registered(fileOf(FIELDS)));
  expect(problems).toEqual([]);
  expect(changed[0]?.changes).toEqual([
    "field due_date added",
    "field lines added",
    "Kind: value KIND_CASH added",
  ]);
});
