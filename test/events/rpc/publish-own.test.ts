import { randomUUID } from "node:crypto";
import { create, type DescMessage, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { AnySchema, anyPack } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterAll, expect, onTestFinished, test } from "vitest";
import {
  type PublishEventRequest,
  PublishEventRequestSchema,
  StockLevelChangedSchema,
} from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookFailingSchema } from "../../../gen/webhook/v1/notice_pb.ts";
import { audited, OPERATOR } from "../../../src/audit/audit-log.ts";
import { eventTypeNamed, setRegisteredTypes } from "../../../src/contract/catalogue.ts";
import { registerEventTypes } from "../../../src/event-types/registry.ts";
import { watchEventTypes } from "../../../src/event-types/watch.ts";
import { newEvent } from "../../../src/events/rpc/new-event.ts";
import { failure } from "../../support/failure.ts";
import { enveloped } from "../../support/hostile-messages.ts";
import { expectRefused } from "../../support/refusals.ts";
import { buildFileSet, eventTypeProto, registeredTypes } from "../../support/registered-types.ts";
import { useApi } from "../../support/test-api.ts";
import { callGrpc, callHttp } from "../../support/wire.ts";

const MANY = Array.from({ length: 200 }, (_, n) => `  int64 field_${n} = ${n + 1};`).join("\n");
const types = registeredTypes({
  "billing/v1/billing.proto": `syntax = "proto3";
package billing.v1;
import "google/protobuf/timestamp.proto";
import "webhook/v1/options.proto";

enum Kind { KIND_UNSPECIFIED = 0; KIND_FIRST = 1; KIND_OTHER = 2; }
message Money { string currency = 1 [(webhook.v1.required) = true]; int64 units = 2; int32 nanos = 3; }
message Line { string sku = 1 [(webhook.v1.required) = true]; Money price = 2; repeated Kind kinds = 3; double weight = 4; Line part = 5; }
message InvoicePaid {
  option (webhook.v1.event_type) = {process: 1004, name: "InvoicePaid", alias: "invoice.paid"};
  int64 invoice_id = 1 [(webhook.v1.required) = true, (webhook.v1.searchable) = true];
  Money total = 2;
  google.protobuf.Timestamp paid_at = 3;
  repeated Line lines = 4;
  map<string, Money> taxes = 5;
  map<int64, string> notes = 6;
  Kind kind = 7;
  optional int64 previous = 8;
  bytes document = 9;
  repeated google.protobuf.Timestamp reminders = 10;
  repeated int64 numbers = 11;
  oneof by { string card = 12; string account = 13; }
}
message Old { option (webhook.v1.event_type) = {process: 1005, name: "Old"}; string text = 1; }
message Tree { option (webhook.v1.event_type) = {process: 1006, name: "Tree"}; repeated Tree children = 1; Tree next = 2; map<string, Tree> named = 3; }
message Wide { option (webhook.v1.event_type) = {process: 1007, name: "Wide"}; repeated Wide items = 201;
${MANY}
}
`,
  "legacy/v1/legacy.proto": `syntax = "proto2";
package legacy.v1;
import "webhook/v1/options.proto";
enum Size { SMALL = 1; LARGE = 2; }
message Parcel { option (webhook.v1.event_type) = {process: 1008, name: "Parcel"}; required string code = 1; optional Size size = 2; }
`,
}).map((entry) => (entry.name === "Old" ? { ...entry, deprecated: true } : entry));
setRegisteredTypes(types);
afterAll(() => setRegisteredTypes([]));

const api = await useApi();
const { events } = api;
const { db } = api.context;

const payloadOf = (name: string) => eventTypeNamed(name)?.payload as DescMessage;
const INVOICE = payloadOf("InvoicePaid");
const INVOICE_URL = `type.googleapis.com/${INVOICE.typeName}`;
const fields = { idempotencyKey: "", userId: "tenant-1" };
const request = (data: PublishEventRequest["data"]) => ({ ...fields, idempotencyKey: randomUUID(), data });
const asAny = (name: string, value: Uint8Array) =>
  request({
    case: "event",
    value: create(AnySchema, { typeUrl: `type.googleapis.com/${payloadOf(name).typeName}`, value }),
  });
const asJson = (process: string, payload: unknown) =>
  request({
    case: "jsonEvent",
    value: { process, payload: typeof payload === "string" ? payload : JSON.stringify(payload) },
  } as PublishEventRequest["data"]);
const eventOf = async ({ eventId }: { eventId: string }) => db("events").where("id", eventId).first();
const invoice: JsonObject = {
  invoiceId: "9223372036854775807",
  total: { currency: "EUR", units: "-9223372036854775808" },
  paidAt: "2026-11-21T10:30:00.5+01:00",
  lines: [{ sku: "Ünïcode 🧾", kinds: ["KIND_OTHER", 1], weight: -0.5 }],
  taxes: { b: { currency: "EUR" }, a: { currency: "USD" }, __proto__: { currency: "CHF" } },
  kind: "KIND_FIRST",
  document: "AQI=",
  card: "4242",
};
const STORED =
  '{"InvoiceId":9223372036854775807,"Total":{"Currency":"EUR","Units":-9223372036854775808,"Nanos":0},"PaidAt":"2026-11-21T09:30:00",' +
  '"Lines":[{"Sku":"Ünïcode 🧾","Price":null,"Kinds":["Other","First"],"Weight":-0.5,"Part":null}],' +
  '"Taxes":{"a":{"Currency":"USD","Units":0,"Nanos":0},"b":{"Currency":"EUR","Units":0,"Nanos":0}},"Notes":{},"Kind":"First","Previous":null,' +
  '"Document":"AQI=","Reminders":[],"Numbers":[],"Card":"4242","Account":null}';
const bytes = toBinary(INVOICE, fromJson(INVOICE, invoice));

async function* stream(event: ReturnType<typeof request>) {
  yield { events: [event] };
}
const resultOf = ({ results }: { results: { result: { value?: unknown } }[] }) =>
  results[0]?.result.value as { eventId: string };
const WAYS: [string, (event: ReturnType<typeof request>) => Promise<{ eventId: string }>][] = [
  ["PublishEvent", (event) => events.publishEvent(event)],
  ["PublishEventBatch", async (event) => resultOf(await events.publishEventBatch({ events: [event] }))],
  ["PublishEvents", async (event) => resultOf(await events.publishEvents(stream(event)))],
];

test.each(WAYS)(
  "%s takes an event of a registered type as a message and as JSON, and delivers it",
  async (_way, publish) => {
    const webhook = await api.register({ process: 1004 as never });
    for (const event of [
      asAny("InvoicePaid", bytes),
      ...["InvoicePaid", "invoice.paid", "billing.v1.InvoicePaid"].map((name) => asJson(name, invoice)),
    ]) {
      const answer = await publish(event);
      expect(await eventOf(answer)).toMatchObject({ process: 1004, payload: STORED });
      expect(await db("queue").where({ event_id: answer.eventId, webhook_id: webhook })).toHaveLength(1);
    }
  },
);

const rawInvoice = (more = "") =>
  `{"invoice_id": 9223372036854775807, "total": {"currency":"EUR","units":-9223372036854775808},"paidAt":"2026-11-21T09:30:00.5Z",
   "taxes":{"b":{"currency":"EUR"},"a":{"currency":"USD"}},"lines":[{"weight":-5e-1,"kinds":["KIND_OTHER",1],"sku":"Ünïcode \\ud83e\\uddfe"}],
   "kind":1,"document":"AQI","card":"4242"${more}}`;
const REQUESTS: [string, string][] = [
  ["inline", `"jsonEvent":{"process":"invoice.paid","payload":${rawInvoice()}}`],
  [
    "inline with proto names, the payload first",
    `"json_event" : { "payload" :\n${rawInvoice()} ,"process":"InvoicePaid"}`,
  ],
  ["inline with an escaped name", `"jsonEvent":{"process":"invoice.paid","p\\u0061yload":${rawInvoice()}}`],
  ["as a text", `"jsonEvent":{"process":"InvoicePaid","payload":${JSON.stringify(rawInvoice())}}`],
  ["packed", `"event":${rawInvoice(',"@type":"type.googleapis.com/billing.v1.InvoicePaid"')}`],
];

test.each(REQUESTS)("in a request in JSON a payload keeps all its digits: %s", async (_way, data) => {
  const body = () => `{"idempotencyKey":"${randomUUID()}","userId":"u",${data}}`;
  const answers = [
    (await callHttp(api, "EventService/PublishEvent", { body: body() })).json,
    (await callHttp(api, "EventService/PublishEventBatch", { body: `{"events":[${body()}]}` })).json
      .results[0].published,
  ];
  for (const answer of answers) expect((await eventOf(answer)).payload).toBe(STORED);
  const call = { type: "application/grpc+json", body: enveloped(Buffer.from(body())) };
  expect((await callGrpc(api, "EventService/PublishEvent", call)).status).toBe(0);
});

test("an error of an event that is packed in JSON names the path as it was sent", async () => {
  const problem = async (event: string) => {
    const body = `{"idempotencyKey":"${randomUUID()}","userId":"u","event":${event}}`;
    return (await callHttp(api, "EventService/PublishEvent", { body })).json.message;
  };
  const type = `"@type":"${INVOICE_URL}"`;
  expect(await problem(`{${type},"lines":[{"sku":1}]}`)).toBe("event.lines[0].sku must be a string");
  expect(await problem('{"@type":"x/y.Z"}')).toMatch(/^event\.@type names no event type: y\.Z; allowed: /);
  expect(await problem('{"invoiceId":1}')).toMatch(/^Any must be an object whose "@type" is the full name/);
  expect(await problem(`{"@type":5}`)).toMatch(/^Any must be an object whose "@type" is the full name/);
  expect(await problem("{}")).toBe(
    'event.typeUrl is required: the event type, such as type.googleapis.com/webhook.v1.OrderDispatched; in JSON, send it as "@type"',
  );
});

test("the same event counts as repeated whichever way it is sent; another one is refused with the paths that differ", async () => {
  const first = asAny("InvoicePaid", bytes);
  const { eventId } = await events.publishEvent(first);
  const again = { idempotencyKey: first.idempotencyKey };
  expect(await events.publishEvent({ ...asJson("invoice.paid", invoice), ...again })).toMatchObject({
    eventId,
    duplicate: true,
  });
  for (const [event, fields] of [
    [
      asJson("InvoicePaid", { ...invoice, card: "1", lines: [{ sku: "B" }] }),
      "json_event.payload.lines[0].sku, json_event.payload.lines[0].kinds, json_event.payload.lines[0].weight and 1 more",
    ],
    [
      asAny("InvoicePaid", toBinary(INVOICE, fromJson(INVOICE, { ...invoice, kind: "KIND_OTHER" }))),
      "event.kind",
    ],
    [asAny("Old", new Uint8Array()), "data"],
  ] as const)
    await expectRefused(
      events.publishEvent({ ...event, ...again }),
      Code.AlreadyExists,
      `they differ in ${fields};`,
    );
});

test("an event of a built-in type is the same whether it is sent by its own member, packed or as JSON", async () => {
  const stock = {
    productId: "9007199254740993",
    sku: "A",
    location: "Oslo",
    changedAt: "2026-09-21T13:33:20Z",
  };
  const message = fromJson(StockLevelChangedSchema, stock);
  const first = request({ case: "stockLevelChanged", value: message });
  const { eventId } = await events.publishEvent(first);
  for (const data of [
    { case: "event", value: anyPack(StockLevelChangedSchema, message) },
    asJson("StockLevelChanged", stock).data,
  ] as PublishEventRequest["data"][])
    expect(await events.publishEvent({ ...first, data })).toMatchObject({ eventId, duplicate: true });
});

test.each(WAYS)(
  "%s takes an event of a type that another process has just registered",
  async (way, publish) => {
    const watch = watchEventTypes(db, api.context.log);
    onTestFinished(() => {
      watch.close();
      setRegisteredTypes(types);
    });
    await watch.refresh();
    const fileDescriptorSet = buildFileSet({ [`${way}.proto`]: eventTypeProto(`Late${way}`) });
    await registerEventTypes(db, fileDescriptorSet, { audit: (change) => audited(db, OPERATOR, change) });
    expect((await eventOf(await publish(asJson(`Late${way}`, { id: 7 })))).payload).toBe(
      '{"Id":7,"Label":""}',
    );
  },
);

test("an event of a deprecated type is published", async () => {
  expect((await eventOf(await events.publishEvent(asJson("Old", { text: "x" })))).payload).toBe(
    '{"Text":"x"}',
  );
});

/** Bytes that a writer makes. */
function written(write: (writer: BinaryWriter) => unknown): Uint8Array {
  const writer = new BinaryWriter();
  write(writer);
  return writer.finish();
}
const withBytes = (more: Uint8Array) => asAny("InvoicePaid", Buffer.concat([bytes, more]));
/** An invoice with a second line of these bytes. */
const withLine = (write: (writer: BinaryWriter) => BinaryWriter) =>
  withBytes(written((writer) => write(writer.tag(4, WireType.LengthDelimited).fork()).join()));
const line = (json: JsonObject) =>
  asJson("InvoicePaid", { ...invoice, lines: [{ sku: "A" }, { sku: "B", ...json }] });
const deep = (levels: number) => `${'{"next":'.repeat(levels - 1)}{}${"}".repeat(levels - 1)}`;

const REFUSED: [string, ReturnType<typeof request>, string | RegExp][] = [
  [
    "no type",
    request({ case: "event", value: create(AnySchema) }),
    'event.type_url is required: the event type, such as type.googleapis.com/webhook.v1.OrderDispatched; in JSON, send it as "@type"',
  ],
  [
    "an unknown message",
    request({ case: "event", value: create(AnySchema, { typeUrl: "x/billing.v1.Nothing" }) }),
    /^event\.type_url names no event type: billing\.v1\.Nothing; allowed: OrderDispatched, .*InvoicePaid.*\. Register another one with RegisterEventTypes$/,
  ],
  [
    "a part of a payload",
    request({ case: "event", value: create(AnySchema, { typeUrl: "x/billing.v1.Line" }) }),
    "event.type_url names no event type: billing.v1.Line",
  ],
  [
    "a notice",
    request({ case: "event", value: anyPack(WebhookFailingSchema, create(WebhookFailingSchema)) }),
    "event.type_url is WebhookFailing, a notice, which only the service publishes",
  ],
  ["a notice as JSON", asJson("WebhookFailing", {}), "json_event.process is WebhookFailing, a notice"],
  ["an unknown name", asJson("NoEvent", {}), "json_event.process names no event type: NoEvent; allowed:"],
  ["a name that is no name", asJson("<secret>", {}), /^json_event\.process names no event type; allowed:/],
  ["no name", asJson("", {}), "json_event.process is required and must not be empty"],
  ["no payload", asJson("InvoicePaid", ""), "json_event.payload is required and must not be empty"],
  ["bytes of another kind", asAny("InvoicePaid", Buffer.from("no message")), /^event/],
  [
    "bytes that end early",
    asAny("InvoicePaid", bytes.subarray(0, -1)),
    "event does not hold a billing.v1.InvoicePaid in Protobuf's binary format",
  ],
  [
    "a length that lies",
    withBytes(Uint8Array.of(0x22, 0xff, 0xff, 0x03)),
    "event does not hold a billing.v1.InvoicePaid",
  ],
  [
    "a field of another number",
    withBytes(written((writer) => writer.tag(99, WireType.Varint).int32(1))),
    "event has a field 99, which billing.v1.InvoicePaid does not have; allowed: 1 (invoice_id), 2 (total),",
  ],
  [
    "a field of another number in a line",
    withLine((writer) => writer.tag(6, WireType.Varint).int32(1)),
    "event.lines[1] has a field 6, which billing.v1.Line does not have; allowed: 1 (sku), 2 (price), 3 (kinds), 4 (weight), 5 (part)",
  ],
  [
    "a field of another type in a line",
    withLine((writer) => writer.tag(1, WireType.Varint).int32(1)),
    "event.lines[1].sku (field 1) has another type than in billing.v1.Line; generate code from the registered proto file",
  ],
  ["a group", withBytes(Uint8Array.of(0x23, 0x24)), "event.lines (field 4) has another type"],
  [
    "an enum number without a name in a line",
    withLine((writer) => writer.tag(3, WireType.LengthDelimited).fork().int32(1).int32(9).join()),
    "event.lines[1].kinds is 9, which is no Kind; allowed: KIND_FIRST, KIND_OTHER",
  ],
  [
    "a number that is infinite",
    withLine((writer) => writer.tag(4, WireType.Bit64).double(Number.POSITIVE_INFINITY)),
    "event.lines[1].weight is Infinity, which JSON cannot represent; send a finite number",
  ],
  [
    "a text that is not UTF-8",
    withLine((writer) => writer.tag(1, WireType.LengthDelimited).bytes(Uint8Array.of(0xff))),
    "event.lines[1].sku is not UTF-8; send Unicode text",
  ],
  [
    "a required field that is missing",
    withLine((writer) => writer),
    "event.lines[1].sku is required and must not be empty",
  ],
  [
    "a time after the year 9999",
    withBytes(
      written((writer) =>
        writer.tag(3, WireType.LengthDelimited).fork().tag(1, WireType.Varint).int64(253_402_300_800n).join(),
      ),
    ),
    "event.paid_at must lie in the years 0001 to 9999",
  ],
  ["no JSON", asJson("InvoicePaid", "{"), "json_event.payload is not valid JSON"],
  ["JSON that is no object", asJson("InvoicePaid", []), "json_event.payload must be an object"],
  [
    "a name that the type lacks",
    line({ skuu: 1 }),
    "json_event.payload.lines[1].skuu is no field of billing.v1.Line; allowed: sku, price, kinds, weight, part",
  ],
  [
    "a type in a payload",
    asJson("InvoicePaid", { ...invoice, "@type": "x" }),
    "json_event.payload.@type is no field of billing.v1.InvoicePaid",
  ],
  ["a number for a text", line({ sku: 5 }), "json_event.payload.lines[1].sku must be a string"],
  ["a text for a message", line({ price: "5" }), "json_event.payload.lines[1].price must be an object"],
  [
    "an integer with a fraction",
    line({ price: { currency: "EUR", nanos: 0.5 } }),
    "json_event.payload.lines[1].price.nanos must be a whole number of 32 bits",
  ],
  [
    "an integer beyond 64 bits",
    asJson("InvoicePaid", '{"invoiceId":9223372036854775808}'),
    "json_event.payload.invoice_id must be a whole number of 64 bits",
  ],
  [
    "an enum name of no member",
    line({ kinds: ["KIND_OTHER", "KIND_X"] }),
    "json_event.payload.lines[1].kinds must be a list, each item one of: KIND_FIRST, KIND_OTHER",
  ],
  [
    "an enum number of no member",
    line({ kinds: [9] }),
    "json_event.payload.lines[1].kinds is 9, which is no Kind; allowed: KIND_FIRST, KIND_OTHER",
  ],
  [
    "an infinite number as JSON",
    line({ weight: "Infinity" }),
    "json_event.payload.lines[1].weight is Infinity, which JSON cannot represent",
  ],
  [
    "an item that is null",
    asJson("InvoicePaid", { ...invoice, lines: [null] }),
    "json_event.payload.lines[0] must be an object",
  ],
  [
    "a wrong value in a map",
    asJson("InvoicePaid", { ...invoice, taxes: { 'a"b': { units: "x" } } }),
    'json_event.payload.taxes["a\\"b"].units must be a whole number of 64 bits',
  ],
  [
    "a wrong key of a map",
    asJson("InvoicePaid", { ...invoice, notes: { x: "y" } }),
    "json_event.payload.notes must be an object, each value a string",
  ],
  [
    "a day that does not exist",
    asJson("InvoicePaid", { ...invoice, reminders: ["2026-02-30T00:00:00Z"] }),
    "json_event.payload.reminders is 2026-02-30T00:00:00Z, but 2026-02 has 28 days",
  ],
  [
    "a time in another format",
    asJson("InvoicePaid", { ...invoice, paidAt: "yesterday" }),
    "json_event.payload.paid_at must be a time with a time zone, of the years 0001 to 9999",
  ],
  [
    "a name twice",
    asJson("InvoicePaid", '{"invoiceId":1,"invoiceId":1}'),
    "json_event.payload does not fit: InvoicePaid has a field twice; send it once",
  ],
  [
    "two members of a oneof",
    asJson("InvoicePaid", { ...invoice, account: "1" }),
    /^json_event\.payload does not fit: .*is set by both card and account; send one of them$/,
  ],
  [
    "half of a surrogate pair",
    asJson("InvoicePaid", '{"invoiceId":1,"card":"\\ud800"}'),
    "json_event.payload.card holds half of a surrogate pair",
  ],
  [
    "half of a surrogate pair in a key",
    asJson("InvoicePaid", '{"invoiceId":1,"taxes":{"\\ud800":{"currency":"EUR"}}}'),
    "json_event.payload",
  ],
  ["a field that proto2 requires", asAny("Parcel", new Uint8Array()), "event.code is required"],
  ["a field that proto2 requires, as JSON", asJson("Parcel", {}), "json_event.payload.code is required"],
  [
    "a number that a closed enum lacks",
    asAny(
      "Parcel",
      written((writer) =>
        writer.tag(1, WireType.LengthDelimited).string("x").tag(2, WireType.Varint).int32(3),
      ),
    ),
    "event.size is 3, which is no Size",
  ],
  ["65 levels", asJson("Tree", deep(65)), "json_event.payload is nested more than 64 levels deep"],
  ["many levels", asJson("Tree", deep(20_000)), "json_event.payload is nested more than 64 levels deep"],
  [
    "many levels of messages",
    asAny(
      "Tree",
      Array.from({ length: 5_000 }).reduce<Uint8Array>(
        (inner) => written((writer) => writer.tag(2, WireType.LengthDelimited).bytes(inner)),
        new Uint8Array(),
      ),
    ),
    "event is nested more than 64 levels deep",
  ],
  [
    "a million items",
    asAny(
      "InvoicePaid",
      written((writer) => writer.tag(11, WireType.LengthDelimited).bytes(new Uint8Array(990_000))),
    ),
    "event holds more than 100000 fields and list items",
  ],
  [
    "half a million items as JSON",
    asJson("InvoicePaid", `{"numbers":[${"1,".repeat(490_000)}1]}`),
    "json_event.payload holds more than 100000 fields and list items",
  ],
  [
    "many messages of many fields",
    asAny(
      "Wide",
      written((writer) => {
        for (let n = 0; n < 50_000; n += 1) writer.tag(201, WireType.LengthDelimited).bytes(new Uint8Array());
      }),
    ),
    "event has more bytes as JSON than the 262144 allowed",
  ],
  [
    "many objects of many fields",
    asJson("Wide", `{"items":[${"{},".repeat(45_000)}{}]}`),
    "json_event.payload has more bytes as JSON than the 262144 allowed",
  ],
  [
    "a payload that is too large",
    asJson("Old", { text: "x".repeat(262_144 - '{"Text":""}'.length + 1) }),
    "json_event.payload is 262145 bytes as JSON, more than the 262144 allowed",
  ],
  [
    "a text that is too large",
    asJson("Old", " ".repeat(1_000_001)),
    "json_event.payload is 1000001 bytes, more than the 1000000 allowed",
  ],
];

test.each(REFUSED)("%s is refused with its path and what is allowed", async (_case, event, problem) => {
  const refused = await failure(events.publishEvent(event));
  expect([refused?.code, refused?.rawMessage]).toEqual([
    Code.InvalidArgument,
    typeof problem === "string" ? expect.stringContaining(problem) : expect.stringMatching(problem),
  ]);
  if (typeof problem === "string") expect(refused?.rawMessage.startsWith(problem.slice(0, 5))).toBe(true);
});

test.each<[string, () => Uint8Array, string]>([
  ["objects", () => Buffer.from(deep(64)), ""],
  ["lists", () => Buffer.from(`${'{"children":['.repeat(31)}{}${"]}".repeat(31)}`), ""],
  ["maps", () => Buffer.from(`${'{"named":{"a":'.repeat(31)}{}${"}}".repeat(31)}`), ""],
])("a payload of 64 levels of %s is stored, and one more is refused", async (_what, json) => {
  const text = json().toString();
  const desc = payloadOf("Tree");
  // A list of children is written also if it is empty, which is a level, too.
  const inner = text.startsWith('{"next"') ? text.replace('{"next":', "").replace(/}$/, "") : text;
  const { payload } = await eventOf(await events.publishEvent(asJson("Tree", inner)));
  let [depth, most] = [0, 0];
  for (const [token] of payload.matchAll(/[[{\]}]/g)) {
    depth += token === "{" || token === "[" ? 1 : -1;
    most = Math.max(most, depth);
  }
  expect(most).toBe(64);
  const more = `{"next":${inner}}`;
  await expectRefused(events.publishEvent(asJson("Tree", more)), Code.InvalidArgument, "nested more than 64");
  const packed = asAny("Tree", toBinary(desc, fromJson(desc, JSON.parse(more))));
  await expectRefused(events.publishEvent(packed), Code.InvalidArgument, "nested more than 64");
});

test("the hash of an event in the member of its type is that of earlier releases, which compare repeated requests beside this one", () => {
  const { requestSha256 } = newEvent(
    { id: "key", customer: null },
    create(PublishEventRequestSchema, {
      idempotencyKey: "1",
      userId: "tenant-1",
      data: {
        case: "orderDispatched",
        value: {
          orderId: 1001n,
          orderNumber: "SO-1001",
          dispatchedAt: { seconds: 1_790_000_000n },
          lines: [{ productId: 7n, sku: "LAMP-01", quantity: 2 }],
        },
      },
    }),
    false,
  );
  expect(requestSha256).toBe("aca52f94f0349324e365888ba10307adaf3047a7bfbb91185126ba26a4b8814a");
});
