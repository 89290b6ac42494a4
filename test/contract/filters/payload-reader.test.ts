import { create, type DescMessage, equals, type MessageShape } from "@bufbuild/protobuf";
import fc from "fast-check";
import { expect, test } from "vitest";
import { OrderDispatchedSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { eventTypes } from "../../../src/contract/catalogue.ts";
import { readPayload } from "../../../src/contract/filters/payload-reader.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { arbitraryType } from "../../api/json/arbitrary-types.ts";

function expectReadBack(desc: DescMessage, message: MessageShape<DescMessage>): void {
  const payload = jsonWriter(desc, "payload")(message);
  expect(equals(desc, readPayload(desc, payload), message), payload).toBe(true);
}

test.each(eventTypes())(
  "any payload of $name reads back as the message that was published",
  ({ payload }) => {
    fc.assert(fc.property(arbitraryMessage(payload), ({ message }) => expectReadBack(payload, message)));
  },
);

test("so does a payload of any type that the catalogue may hold", () => {
  const any = arbitraryType.chain((desc) =>
    fc.record({ desc: fc.constant(desc), message: arbitraryMessage(desc).map((each) => each.message) }),
  );
  fc.assert(
    fc.property(any, ({ desc, message }) => expectReadBack(desc, message)),
    { numRuns: 300 },
  );
});

test("properties of later versions are ignored", () => {
  const payload = '{"OrderId":1,"Lines":[{"Sku":"a"},{"Sku":"b"},{"Sku":"c"}],"Priority":[1,2,3,4,5]}';
  expect(readPayload(OrderDispatchedSchema, payload)).toEqual(
    create(OrderDispatchedSchema, { orderId: 1n, lines: [{ sku: "a" }, { sku: "b" }, { sku: "c" }] }),
  );
});

test("a payload that is not one of the type is refused", () => {
  for (const payload of ['{"Lines":7}', "[]", '{"OrderId":"x"}', "{"]) {
    expect(() => readPayload(OrderDispatchedSchema, payload), payload).toThrow();
  }
});
