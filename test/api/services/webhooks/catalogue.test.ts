import { clone, create, createFileRegistry } from "@bufbuild/protobuf";
import {
  EnumValueDescriptorProtoSchema,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
} from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { file_webhook_v1_event, PublishEventRequestSchema } from "../../../../gen/webhook/v1/event_pb.ts";
import { describeEventTypes } from "../../../../src/api/services/webhooks/event-types.ts";
import { catalogue, payloadFields, processName, readCatalogue } from "../../../../src/contract/catalogue.ts";
import { commentOf } from "../../../../src/contract/comments.ts";

test("a payload message has the name that REST gives its event type", () => {
  for (const { name, payload } of catalogue) expect(payload.name).toBe(name);
});

test("the members of the request to publish are those of the catalogue", () => {
  const members = PublishEventRequestSchema.fields.filter((field) => field.oneof).map((field) => field.name);
  expect(members.sort()).toEqual([...payloadFields].sort());
});

test("the catalogue has three event types under fixed numbers, and whatever came after them", () => {
  expect(catalogue.slice(0, 3).map(({ number, name }) => [number, name])).toEqual([
    [1, "OrderDispatched"],
    [2, "DocumentCreated"],
    [3, "StockLevelChanged"],
  ]);
});

/** The catalogue of an event.proto that was changed. */
function catalogueOf(change: (file: FileDescriptorProto) => void) {
  const proto = clone(FileDescriptorProtoSchema, file_webhook_v1_event.proto);
  change(proto);
  const { dependencies } = file_webhook_v1_event;
  const registry = createFileRegistry(proto, (name) => dependencies.find((file) => file.proto.name === name));
  const processes = registry.getEnum("webhook.v1.WebhookProcess");
  const request = registry.getMessage("webhook.v1.PublishEventRequest");
  if (!processes || !request) throw new Error("event.proto lacks a type");
  return readCatalogue(processes, request);
}

test("an event type without a payload is an error that says what to add", () => {
  const change = (file: FileDescriptorProto) =>
    file.enumType[0]?.value.push(
      create(EnumValueDescriptorProtoSchema, { name: "WEBHOOK_PROCESS_ORDER_RETURNED", number: 99 }),
    );
  expect(() => catalogueOf(change)).toThrow(
    "WEBHOOK_PROCESS_ORDER_RETURNED has no payload: add a message order_returned to PublishEventRequest.data",
  );
});

test("a payload without an event type is an error that says what to add", () => {
  const change = (file: FileDescriptorProto) => file.enumType[0]?.value.splice(2, 1);
  expect(() => catalogueOf(change)).toThrow(
    "PublishEventRequest.data.document_created has no event type: add WEBHOOK_PROCESS_DOCUMENT_CREATED to WebhookProcess",
  );
});

test("every event type and every property of its payload says what it means", () => {
  for (const { description } of describeEventTypes()) expect(description).not.toBe("");
  const messages = new Set(catalogue.map((entry) => entry.payload));
  for (const message of messages) {
    for (const field of message.fields) {
      expect(commentOf(field), String(field)).toBeDefined();
      if (field.message && field.message.file === message.file) messages.add(field.message);
    }
  }
});

test("a number that no member has is named by itself", () => {
  expect(processName(4711)).toBe("4711");
});
