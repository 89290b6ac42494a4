import { create } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  DocumentCreatedSchema,
  DocumentKind,
  OrderDispatchedSchema,
  PublishEventRequestSchema,
  StockLevelChangedSchema,
} from "../../../gen/webhook/v1/event_pb.ts";
import { EventTypeSchema, WebhookSchema } from "../../../gen/webhook/v1/webhook_pb.ts";
import { findFieldViolations } from "../../../src/api/services/required-fields.ts";
import { parseExactJson, repeatedName } from "../../../src/contract/json/exact-json.ts";
import { sortableTime } from "../../../src/contract/json/timestamp.ts";
import { type JsonAudience, jsonWriter } from "../../../src/contract/json/writer.ts";

const at = (seconds: bigint, nanos = 0): Timestamp => create(TimestampSchema, { seconds, nanos });

test("a payload has PascalCase names in the order of the proto, nested messages, and null for what is unset", () => {
  const json = jsonWriter(
    OrderDispatchedSchema,
    "payload",
  )(
    create(OrderDispatchedSchema, {
      orderId: 7n,
      orderNumber: 'SO-"7"',
      dispatchedAt: at(1_790_000_000n),
      trackingNumber: "",
      lines: [{ productId: 1n, sku: "ä", quantity: -2 }, {}],
    }),
  );
  expect(json).toBe(
    '{"OrderId":7,"OrderNumber":"SO-\\"7\\"","DispatchedAt":"2026-09-21T14:13:20","Carrier":null,"TrackingNumber":"",' +
      '"Lines":[{"ProductId":1,"Sku":"ä","Quantity":-2},{"ProductId":0,"Sku":"","Quantity":0}]}',
  );
});

test("enums are written by name; a number without a name is refused in payloads and shown in REST answers", () => {
  const kindOf = (kind: number, audience: JsonAudience = "payload") =>
    JSON.parse(
      jsonWriter(
        DocumentCreatedSchema,
        audience,
      )(create(DocumentCreatedSchema, { kind: kind as DocumentKind })),
    ).Kind;
  expect(kindOf(DocumentKind.CREDIT_NOTE)).toBe("CreditNote");
  expect(kindOf(0)).toBe("Unspecified");
  expect(() => kindOf(99)).toThrow(/^kind is 99, which is no DocumentKind; allowed: DOCUMENT_KIND_INVOICE, /);
  expect(kindOf(99, "rest")).toBe(99);
});

test("text that is JSON itself is embedded as it is, and null when it is empty", () => {
  const write = jsonWriter(EventTypeSchema, "rest");
  const written = write(create(EventTypeSchema, { sample: '{"Id":9007199254740993}' }));
  expect(written).toBe(
    '{"Number":0,"Name":"","Description":"","Sample":{"Id":9007199254740993},"Schema":null}',
  );
});

test("§2.3: every time in the years 0001 to 9999 is written as YYYY-MM-DDThh:mm:ss, in UTC, rounded down", () => {
  expect(sortableTime(at(-1n, 999_999_999))).toBe("1969-12-31T23:59:59");
  expect(sortableTime(at(-62_135_596_800n))).toBe("0001-01-01T00:00:00");
  expect(sortableTime(at(253_402_300_799n, 999_999_999))).toBe("9999-12-31T23:59:59");
  fc.assert(
    fc.property(
      fc.date({ min: new Date("0001-01-01"), max: new Date("9999-12-31"), noInvalidDate: true }),
      (date) => {
        const written = sortableTime(timestampFromDate(date));
        expect(written).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d$/);
        expect(Date.parse(`${written}Z`)).toBe(Math.floor(date.getTime() / 1_000) * 1_000);
      },
    ),
  );
  expect(() => sortableTime(at(253_402_300_800n))).toThrow(RangeError);
});

test("fields marked rest_omitted are left out of REST answers and kept in payloads", () => {
  const webhook = create(WebhookSchema, { id: 1n, apiKeyId: "k", applicationName: "a" });
  expect(Object.keys(JSON.parse(jsonWriter(WebhookSchema, "rest")(webhook)))).toEqual([
    "Id",
    "Created",
    "Modified",
    "WebhookProcess",
    "Url",
    "Application",
  ]);
  expect(jsonWriter(WebhookSchema, "payload")(webhook)).toContain('"ApiKeyId":"k"');
});

test("exact JSON rounds no whole number and leaves all else to JSON.parse", () => {
  fc.assert(
    fc.property(fc.bigInt(-(2n ** 63n), 2n ** 63n - 1n), (level) => {
      const json = jsonWriter(StockLevelChangedSchema, "payload")(create(StockLevelChangedSchema, { level }));
      expect(BigInt((parseExactJson(json) as { Level: number | bigint }).Level)).toBe(level);
    }),
  );
  expect(parseExactJson("[9007199254740993, 1.5, 1e3, 12]")).toEqual([9007199254740993n, 1.5, 1000, 12]);
  expect(() => parseExactJson("{")).toThrow(SyntaxError);
});

test("a name given twice at the top of an object is found, however it is escaped; nested ones do not count", () => {
  expect(repeatedName('{"a": 1, "b": {"a": 2, "a": 3}, "c": "\\"a\\":"}')).toBeUndefined();
  expect(repeatedName('{"a": [1, {"x": "}"}], "\\u0061": 2}')).toBe("a");
});

test("every missing required field and every time out of range is found, with its path, at any depth", () => {
  const request = create(PublishEventRequestSchema, {
    userId: "u",
    time: at(-62_135_596_801n),
    data: { case: "orderDispatched", value: { orderNumber: "1", lines: [{ productId: 1n, sku: "s" }, {}] } },
  });
  expect(findFieldViolations(PublishEventRequestSchema, request).map((violation) => violation.field)).toEqual(
    [
      "idempotency_key",
      "time",
      "order_dispatched.order_id",
      "order_dispatched.dispatched_at",
      "order_dispatched.lines[1].product_id",
      "order_dispatched.lines[1].sku",
    ],
  );
});
