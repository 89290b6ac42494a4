import { expect, test } from "vitest";
import { PublishEventRequestSchema, WebhookProcessSchema } from "../../gen/webhook/v1/event_pb.ts";
import { catalogue, payloadFields, processName, processOfField } from "../../src/catalogue.ts";

test("every event type has a payload member of its own name, and every payload member an event type", () => {
  expect(catalogue.map((entry) => entry.field).sort()).toEqual([...payloadFields].sort());
  expect(catalogue).toHaveLength(WebhookProcessSchema.values.length - 1);
});

test("a payload message has the name that REST gives its event type", () => {
  for (const field of PublishEventRequestSchema.oneofs[0]?.fields ?? []) {
    const number = processOfField(field.name) as number;
    expect(field.message?.name).toBe(processName(number));
  }
});

test("the catalogue ships with three event types under fixed numbers", () => {
  expect(catalogue.map(({ number, name }) => [number, name])).toEqual([
    [1, "OrderDispatched"],
    [2, "DocumentCreated"],
    [3, "StockLevelChanged"],
  ]);
});

test("a number that no member has is named by itself", () => {
  expect(processName(4711)).toBe("4711");
});
