import { CelScalar, celEnv, parse } from "@bufbuild/cel";
import { create, createRegistry } from "@bufbuild/protobuf";
import { file_google_protobuf_descriptor, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import {
  type DocumentCreated,
  DocumentCreatedSchema,
  DocumentKind,
  type OrderDispatched,
  OrderDispatchedSchema,
  WebhookProcess,
} from "../../../gen/webhook/v1/event_pb.ts";
import { compileFilter, filterEvent, MAX_FILTER_CHARACTERS } from "../../../src/contract/filters/filter.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { ExpressionError } from "../../../src/lib/cel/expression-error.ts";
import { typeOf } from "../../../src/lib/cel/type-check.ts";

const { ORDER_DISPATCHED, DOCUMENT_CREATED, WEBHOOK_FAILING } = WebhookProcess;

const order = create(OrderDispatchedSchema, {
  orderId: 9_007_199_254_740_993n,
  orderNumber: "SO-10056",
  dispatchedAt: timestampFromDate(new Date("2026-11-21T09:30:00Z")),
  carrier: "DHL",
  lines: [
    { productId: 7n, sku: "LAMP-01", quantity: 2 },
    { productId: 8n, sku: "DESK-02", quantity: 1 },
  ],
});
const invoice = create(DocumentCreatedSchema, {
  documentId: 5n,
  kind: DocumentKind.INVOICE,
  number: "INV-1",
  createdAt: timestampFromDate(new Date("2026-11-21T09:30:00Z")),
  totalMinor: 12_995n,
});

const ofOrder = (message: OrderDispatched = order) =>
  filterEvent(ORDER_DISPATCHED, jsonWriter(OrderDispatchedSchema, "payload")(message), "tenant-42");
const ofDocument = (message: DocumentCreated = invoice) =>
  filterEvent(DOCUMENT_CREATED, jsonWriter(DocumentCreatedSchema, "payload")(message), "tenant-42");

test.each(
  Object.entries({
    'event.carrier == "DHL"': true,
    'event.carrier != "DHL"': false,
    "event.order_id == 9007199254740993": true,
    "event.order_id == 9007199254740992": false,
    'event.order_number.startsWith("SO-")': true,
    'event.order_number.matches("^SO-[0-9]+$")': true,
    'event.order_number in ["SO-1", "SO-10056"]': true,
    'user_id == "tenant-42"': true,
    'event.lines.exists(line, line.sku == "DESK-02" && line.quantity >= 1)': true,
    "event.lines.all(line, line.quantity > 1)": false,
    'event.lines.map(line, line.sku).exists(sku, sku == "LAMP-01")': true,
    "event.lines.filter(line, line.quantity > 1).size() == 1": true,
    'event.lines[0].sku == "LAMP-01"': true,
    'event.dispatched_at > timestamp("2026-11-21T09:29:59Z")': true,
    "event.dispatched_at.getFullYear() == 2026": true,
    'event.dispatched_at.getHours("Asia/Tokyo") == 18 && event.dispatched_at.getHours("-02:00") == 7': true,
    'event.dispatched_at - timestamp("2026-11-21T09:00:00+00:00") == duration("30m")': true,
    "has(event.carrier) && !has(event.tracking_number)": true,
    'event.tracking_number == ""': true,
    "size(event.lines) > 1 ? true : false": true,
    true: true,
    'event.order_number.matches("^[A-Z]{2}-[0-9]{1,8}$")': true,
    '!user_id.matches("^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")': true,
    'event.carrier.matches("(?i)^[a-zà-ÿ]+$") && event.carrier.matches("^[\\\\p{L}\\\\p{N} .-]{1,100}$")': true,
    [`event.order_number.matches("${Array.from({ length: 100 }, (_, n) => `SO-100${n}`).join("|")}")`]: true,
    [`user_id != "${"(".repeat(100)}"`]: true,
    [`user_id != r'''${"'(".repeat(50)}'''`]: true,
  }),
)("of an order, %s is %s", (expression, expected) => {
  expect(compileFilter(ORDER_DISPATCHED, expression).matches(ofOrder())).toBe(expected);
});

test.each(
  Object.entries({
    "event.kind == DocumentKind.DOCUMENT_KIND_INVOICE": true,
    "event.kind in [DocumentKind.DOCUMENT_KIND_CREDIT_NOTE, DocumentKind.DOCUMENT_KIND_DELIVERY_NOTE]": false,
    "event.total_minor >= 10000": true,
    "event.total_minor > 129.95": true,
    "has(event.order_id)": false,
  }),
)("of an invoice, %s is %s", (expression, expected) => {
  expect(compileFilter(DOCUMENT_CREATED, expression).matches(ofDocument())).toBe(expected);
});

test.each([
  ['event.webhook.host == "shop.example"', true],
  ["event.health_before == WebhookHealth.WEBHOOK_HEALTH_DEGRADED", true],
  ["event.health_before == WebhookHealth.WEBHOOK_HEALTH_HEALTHY", false],
])("of a notice, with enums of other proto files, %s is %s", (expression, expected) => {
  const payload =
    '{"Webhook":{"Id":7,"Host":"shop.example"},"HealthBefore":"Degraded","Since":"2026-11-21T09:30:00"}';
  const event = filterEvent(WEBHOOK_FAILING, payload, "service");
  expect(compileFilter(WEBHOOK_FAILING, expression).matches(event)).toBe(expected);
});

test.each(
  Object.entries({
    "event.Carrier == 'DHL'": /^at character 6: OrderDispatched has no field Carrier; its fields: order_id, /,
    "order.carrier == 'DHL'": /^at character 1: there is no order; allowed: event, user_id$/,
    "event.carrier": /^must be true or false for each event, but is string$/,
    "event.carrier == 7": /does not take string and int/,
    "event.carrier == null":
      /^at character 15: == does not take string and null; an unset field has its default value: use has, such as has\(event\.carrier\)/,
    "event.carrier in [null]": /in does not take string and list of null; an unset field/,
    "event.order_id + 'x' == 'y'": /\+ does not take int and string/,
    "event.lines.exists(line, line.price > 1)":
      /OrderLine has no field price; its fields: product_id, sku, quantity$/,
    "event.lines.exists(line, item.sku == 'X')": /there is no item; allowed: line, event, user_id$/,
    "event.carrier.exists(c, true)": /string is no list/,
    "event.carrier[0] == 'D'": /\[ \] does not take string and int/,
    "event.carrier.upper() == 'X'": /there is no function upper/,
    "event.carrier.startsWith(7)": /startsWith does not take string and int/,
    "event.dispatched_at.seconds > 1": /Timestamp has no fields/,
    "event.order_number.matches(event.carrier)": /matches takes a regular expression in quotes/,
    'event.order_number.matches("^(?!TEST-).*$")':
      /^the regular expression \^\(\?!TEST-\)\.\*\$ is not valid: .*; use the syntax of RE2, which has no lookahead/,
    'event.dispatched_at > timestamp("2026-11-21")':
      /^at character 23: timestamp does not take "2026-11-21"; allowed: a time such as "2026-11-21T09:30:00Z"$/,
    'event.dispatched_at + duration("1 h") > timestamp(0)':
      /duration does not take "1 h"; allowed: a duration such/,
    'event.dispatched_at.getHours("Europe/Berlinn") > 8':
      /getHours does not take "Europe\/Berlinn"; allowed: a time zone such as "Europe\/Berlin" or "\+01:00"$/,
    "event.carrier ==": /^is not a valid expression/,
    "event.carrier == 'DHL": /^is not a valid expression/,
    "": /^is not a valid expression: it ends too early$/,
    "event.carrier = 'DHL Express Worldwide'":
      /^is not a valid expression: it cannot be read from character 15 on: = 'DHL Express World$/,
    "OrderLine{sku: 'x'} == event.lines[0]": /messages cannot be made/,
    [`user_id == "${"x".repeat(MAX_FILTER_CHARACTERS)}"`]:
      /^has 1013 characters, more than the 1000 allowed$/,
  }),
)("%s is refused for orders", (expression, message) => {
  expect(() => compileFilter(ORDER_DISPATCHED, expression)).toThrow(ExpressionError);
  expect(() => compileFilter(ORDER_DISPATCHED, expression)).toThrow(message);
});

test("an enum compared with a text is refused with a hint at its values", () => {
  expect(() => compileFilter(DOCUMENT_CREATED, "event.kind == 'Invoice'")).toThrow(
    /an enum is compared with a value such as DocumentKind\.DOCUMENT_KIND_INVOICE/,
  );
  expect(() => compileFilter(DOCUMENT_CREATED, "event.kind == DocumentKind.INVOICE")).toThrow(
    /DocumentKind has no INVOICE; its values: DOCUMENT_KIND_UNSPECIFIED, DOCUMENT_KIND_INVOICE, /,
  );
});

test("an enum within a message can be named with its package, too", () => {
  const registry = createRegistry(file_google_protobuf_descriptor);
  const env = celEnv({ registry, namespace: "google.protobuf" });
  for (const name of ["FieldOptions.CType.CORD", "google.protobuf.FieldOptions.CType.CORD"])
    expect(typeOf(env, parse(`${name} == 1`)), name).toBe(CelScalar.BOOL);
});

test("a filter that fails for an event says why", () => {
  const filter = compileFilter(ORDER_DISPATCHED, "1 / event.lines[0].quantity > 0");
  expect(filter.matches(ofOrder())).toBe(false);
  const zero = create(OrderDispatchedSchema, { lines: [{ quantity: 0 }] });
  expect(() => filter.matches(ofOrder(zero))).toThrow(ExpressionError);
  expect(() => filter.matches(ofOrder(zero))).toThrow(/divide by zero/);
  expect(() => filter.matches(ofOrder(create(OrderDispatchedSchema, {})))).toThrow(ExpressionError);
});
