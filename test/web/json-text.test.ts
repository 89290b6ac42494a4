import fc from "fast-check";
import { expect, test } from "vitest";
import { layOutJson } from "../../web/src/parts/text/json-text.ts";

test("JSON is laid out as JSON.stringify does it", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      expect(layOutJson(JSON.stringify(value))).toBe(JSON.stringify(value, null, 2));
    }),
  );
});

test("numbers beyond what a double holds stay as they are written", () => {
  expect(layOutJson('{"OrderId":9223372036854775807,"Weight":1.50}')).toBe(
    '{\n  "OrderId": 9223372036854775807,\n  "Weight": 1.50\n}',
  );
});

test("JSON nested thousands deep is laid out with a bounded indentation", () => {
  const depth = 16_000;
  const laidOut = layOutJson("[".repeat(depth) + "]".repeat(depth));
  expect(laidOut.length).toBeLessThan(100 * 2 * depth);
  expect(laidOut.replaceAll(/\s/g, "")).toBe("[".repeat(depth) + "]".repeat(depth));
});
