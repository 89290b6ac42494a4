import { create } from "@bufbuild/protobuf";
import { type Timestamp, TimestampSchema, timestampFromDate } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  DocumentCreatedSchema,
  DocumentKind,
  PublishEventRequestSchema,
  StockLevelChangedSchema,
} from "../../../gen/webhook/v1/event_pb.ts";
import { findFieldViolations } from "../../../src/calls/required-fields.ts";
import { parseExactJson, repeatedName } from "../../../src/contract/json/exact-json.ts";
import { sortableTime } from "../../../src/contract/json/timestamp.ts";
import { type JsonAudience, jsonWriter } from "../../../src/contract/json/writer.ts";

const at = (seconds: bigint, nanos = 0): Timestamp => create(TimestampSchema, { seconds, nanos });

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
