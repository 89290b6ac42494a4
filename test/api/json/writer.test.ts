import { create, createFileRegistry, type DescMessage, equals, type MessageShape } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { file_webhook_v1_api_key, RotateApiKeyRequestSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { file_webhook_v1_delivery } from "../../../gen/webhook/v1/delivery_pb.ts";
import { file_webhook_v1_event } from "../../../gen/webhook/v1/event_pb.ts";
import { file_webhook_v1_webhook } from "../../../gen/webhook/v1/webhook_pb.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { arbitraryMessage } from "./arbitrary-messages.ts";
import { arbitraryType } from "./arbitrary-types.ts";
import { readMessage } from "./reading.ts";

/** Of every type of the API, those of payloads included. */
const OURS = [
  file_webhook_v1_api_key,
  file_webhook_v1_delivery,
  file_webhook_v1_event,
  file_webhook_v1_webhook,
].flatMap((file) => file.messages);

/**
 * EventType holds JSON as text, which is written as it is. Requests to revoke and rotate keys, and results of published events,
 * which REST does not have, have fields of other types.
 */
const TYPED = OURS.filter(
  ({ typeName }) =>
    !/\.(EventType|ListProcessesResponse|(Revoke|Rotate)ApiKeyRequest)$/.test(typeName) &&
    !/\.(PublishError|PublishResult|PublishEventsResponse|PublishEventBatchResponse)$/.test(typeName),
);

function expectWrittenAndRead(desc: DescMessage, message: MessageShape<DescMessage>): void {
  const json = jsonWriter(desc, "payload")(message);
  const read = readMessage(desc, json);
  expect(equals(desc, read.message, message), json).toBe(true);
}

test("any message of any type is JSON with the proto's keys in its order, and reads back as the same message", () => {
  const any = arbitraryType.chain((desc) =>
    fc.record({ desc: fc.constant(desc), message: arbitraryMessage(desc).map((each) => each.message) }),
  );
  fc.assert(
    fc.property(any, ({ desc, message }) => expectWrittenAndRead(desc, message)),
    { numRuns: 200 },
  );
});

test.each(TYPED)("any %s is JSON that reads back as the same message", (desc) => {
  fc.assert(fc.property(arbitraryMessage(desc), ({ message }) => expectWrittenAndRead(desc, message)));
});

function typeWith(fieldNames: string[]): DescMessage {
  const file = create(FileDescriptorProtoSchema, {
    name: "fields.proto",
    package: "p",
    syntax: "proto3",
    messageType: [
      {
        name: "M",
        field: fieldNames.map((name, n) => ({ name, jsonName: name, number: n + 1, type: 9, label: 1 })),
      },
    ],
  });
  return createFileRegistry(file, () => undefined).getMessage("p.M") as DescMessage;
}

test("two fields that would have the same name in JSON are refused, each time, with both their names", () => {
  const desc = typeWith(["order_id", "orderId"]);
  const message = "p.M: order_id and orderId would both be OrderId in JSON; rename one of them";
  expect(() => jsonWriter(desc, "payload")).toThrow(message);
  expect(() => jsonWriter(desc, "payload")).toThrow(message);
});

test("a google.protobuf.Duration in a REST answer is an error that names the field", () => {
  expect(() => jsonWriter(RotateApiKeyRequestSchema, "rest")).toThrow(
    "webhook.v1.RotateApiKeyRequest.grace_period is a google.protobuf.Duration; of google.protobuf only Timestamp is allowed.",
  );
});

test("two types of one name are not taken for each other", () => {
  for (const name of ["first", "second"]) {
    const desc = typeWith([name]);
    expect(Object.keys(JSON.parse(jsonWriter(desc, "payload")(create(desc))))).toEqual([
      name === "first" ? "First" : "Second",
    ]);
  }
});
