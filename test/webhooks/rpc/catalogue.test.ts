import { clone, create, createFileRegistry } from "@bufbuild/protobuf";
import {
  EnumValueDescriptorProtoSchema,
  FieldDescriptorProto_Label,
  FieldDescriptorProto_Type,
  FieldDescriptorProtoSchema,
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  file_google_protobuf_duration,
  file_google_protobuf_struct,
  file_google_protobuf_wrappers,
} from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { file_webhook_v1_event, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../../gen/webhook/v1/notice_pb.ts";
import { eventTypes, payloadFields, processName, readCatalogue } from "../../../src/contract/catalogue.ts";
import { commentOf } from "../../../src/contract/comments.ts";
import { describeEventTypes } from "../../../src/webhooks/rpc/event-types.ts";

test("payloads have the names that REST gives their event types, and are the members of the request to publish", () => {
  for (const { name, payload } of eventTypes()) expect(payload.name).toBe(name);
  const members = PublishEventRequestSchema.fields.filter((field) => field.oneof).map((field) => field.name);
  expect(members.sort()).toEqual([...payloadFields].sort());
});

test("event types that exist keep their numbers", () => {
  const numbers = Object.fromEntries(eventTypes().map(({ name, number }) => [name, number]));
  expect(numbers).toMatchObject({
    OrderDispatched: 1,
    DocumentCreated: 2,
    StockLevelChanged: 3,
    WebhookFailing: 10_001,
    WebhookRecovered: 10_002,
    WebhookDisabled: 10_003,
    DeliveryFailed: 10_004,
  });
});

const WELL_KNOWN = [
  file_google_protobuf_duration,
  file_google_protobuf_struct,
  file_google_protobuf_wrappers,
];

/** The catalogue of an event.proto that was changed. */
function catalogueOf(change: (file: FileDescriptorProto) => unknown) {
  const proto = clone(FileDescriptorProtoSchema, file_webhook_v1_event.proto);
  change(proto);
  const dependencies = [...file_webhook_v1_event.dependencies, ...WELL_KNOWN];
  const registry = createFileRegistry(proto, (name) => dependencies.find((file) => file.proto.name === name));
  const processes = registry.getEnum("webhook.v1.WebhookProcess");
  const request = registry.getMessage("webhook.v1.PublishEventRequest");
  if (!processes || !request) throw new Error("event.proto lacks a type");
  return readCatalogue(processes, request, NoticeSchema);
}

/** Adds an event type without a payload. */
const withType = (number: number) => (file: FileDescriptorProto) =>
  file.enumType[0]?.value.push(
    create(EnumValueDescriptorProtoSchema, { name: "WEBHOOK_PROCESS_ORDER_RETURNED", number }),
  );
const withoutType = (place: number) => (file: FileDescriptorProto) =>
  file.enumType[0]?.value.splice(place, 1);

test.each<[string, (file: FileDescriptorProto) => unknown]>([
  [
    "WEBHOOK_PROCESS_ORDER_RETURNED has no payload: add a message order_returned to PublishEventRequest.data",
    withType(99),
  ],
  [
    "PublishEventRequest.data.document_created has no event type: add WEBHOOK_PROCESS_DOCUMENT_CREATED to WebhookProcess",
    withoutType(2),
  ],
  [
    "WEBHOOK_PROCESS_ORDER_RETURNED has no payload: add a message order_returned to Notice.data",
    withType(10_099),
  ],
  [
    "Notice.data.webhook_failing has no event type: add WEBHOOK_PROCESS_WEBHOOK_FAILING, with a number from 10001, to WebhookProcess",
    withoutType(4),
  ],
])("an incomplete catalogue is an error that says what to add: %s", (message, change) => {
  expect(() => catalogueOf(change)).toThrow(message);
});

/** The catalogue with a list of this type in the lines of an order. */
function catalogueWith(typeName: string): unknown {
  return catalogueOf((file) => {
    const line = file.messageType.find(({ name }) => name === "OrderLine");
    const type = { type: FieldDescriptorProto_Type.MESSAGE, typeName: `.${typeName}` };
    const field = { name: "more", jsonName: "more", number: 99, label: FieldDescriptorProto_Label.REPEATED };
    line?.field.push(create(FieldDescriptorProtoSchema, { ...field, ...type }));
    file.dependency.push(...WELL_KNOWN.map((each) => each.proto.name));
  });
}

test.each(["Duration", "Struct", "StringValue"])(
  "a google.protobuf.%s in a payload, at any depth, is an error that names the field and what to use",
  (name) => {
    expect(() => catalogueWith(`google.protobuf.${name}`)).toThrow(
      `webhook.v1.OrderLine.more is a google.protobuf.${name}; of google.protobuf only Timestamp is allowed. ` +
        "Use a message, a map or a scalar instead, with `optional` if it can be null",
    );
    expect(catalogueWith("google.protobuf.Timestamp")).toHaveLength(eventTypes().length);
  },
);

test("every event type and every property of its payload says what it means", () => {
  for (const { description } of describeEventTypes()) expect(description).not.toBe("");
  const messages = new Set(eventTypes().map((entry) => entry.payload));
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
