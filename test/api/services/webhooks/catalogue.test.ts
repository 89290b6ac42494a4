import { clone, create, createFileRegistry } from "@bufbuild/protobuf";
import {
  DescriptorProtoSchema,
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
import { file_webhook_v1_event, PublishEventRequestSchema } from "../../../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../../../gen/webhook/v1/notice_pb.ts";
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

test("event types that exist keep their numbers", () => {
  const known = [1, 2, 3, 10_001, 10_002, 10_003, 10_004];
  expect(
    catalogue.filter(({ number }) => known.includes(number)).map(({ number, name }) => [number, name]),
  ).toEqual([
    [1, "OrderDispatched"],
    [2, "DocumentCreated"],
    [3, "StockLevelChanged"],
    [10_001, "WebhookFailing"],
    [10_002, "WebhookRecovered"],
    [10_003, "WebhookDisabled"],
    [10_004, "DeliveryFailed"],
  ]);
});

const WELL_KNOWN = [
  file_google_protobuf_duration,
  file_google_protobuf_struct,
  file_google_protobuf_wrappers,
];

/** The catalogue of an event.proto that was changed. */
function catalogueOf(change: (file: FileDescriptorProto) => void) {
  const proto = clone(FileDescriptorProtoSchema, file_webhook_v1_event.proto);
  change(proto);
  const dependencies = [...file_webhook_v1_event.dependencies, ...WELL_KNOWN];
  const registry = createFileRegistry(proto, (name) => dependencies.find((file) => file.proto.name === name));
  const processes = registry.getEnum("webhook.v1.WebhookProcess");
  const request = registry.getMessage("webhook.v1.PublishEventRequest");
  if (!processes || !request) throw new Error("event.proto lacks a type");
  return readCatalogue(processes, request, NoticeSchema);
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

test("a number from 10001 is that of a notice: its payload is no member of the request to publish", () => {
  const change = (file: FileDescriptorProto) =>
    file.enumType[0]?.value.push(
      create(EnumValueDescriptorProtoSchema, { name: "WEBHOOK_PROCESS_ORDER_RETURNED", number: 10_099 }),
    );
  expect(() => catalogueOf(change)).toThrow(
    "WEBHOOK_PROCESS_ORDER_RETURNED has no payload: add a message order_returned to Notice.data",
  );
  const without = (file: FileDescriptorProto) => file.enumType[0]?.value.splice(4, 1);
  expect(() => catalogueOf(without)).toThrow(
    "Notice.data.webhook_failing has no event type: add WEBHOOK_PROCESS_WEBHOOK_FAILING, with a number from 10001, to WebhookProcess",
  );
});

/** The catalogue with a field of this type in the lines of an order, in a list or a map of them. */
function catalogueWith(typeName: string, inside: "list" | "map"): unknown {
  return catalogueOf((file) => {
    const line = file.messageType.find(({ name }) => name === "OrderLine");
    if (!line) throw new Error("event.proto has no OrderLine");
    const value = create(FieldDescriptorProtoSchema, {
      name: "more",
      jsonName: "more",
      number: 99,
      type: FieldDescriptorProto_Type.MESSAGE,
      typeName: `.${typeName}`,
      label: FieldDescriptorProto_Label.REPEATED,
    });
    if (inside === "map") {
      const key = { name: "key", jsonName: "key", number: 1, type: FieldDescriptorProto_Type.STRING };
      const field = [
        { ...key, label: FieldDescriptorProto_Label.OPTIONAL },
        { ...value, name: "value", jsonName: "value", number: 2, label: FieldDescriptorProto_Label.OPTIONAL },
      ];
      line.nestedType.push(
        create(DescriptorProtoSchema, { name: "MoreEntry", options: { mapEntry: true }, field }),
      );
      value.typeName = ".webhook.v1.OrderLine.MoreEntry";
    }
    line.field.push(value);
    file.dependency.push(...WELL_KNOWN.map((each) => each.proto.name));
  });
}

test.each([
  ["google.protobuf.Duration", "list"],
  ["google.protobuf.Struct", "map"],
  ["google.protobuf.StringValue", "list"],
] as const)(
  "a %s in a payload, at any depth, is an error that names the field and what to use",
  (typeName, inside) => {
    expect(() => catalogueWith(typeName, inside)).toThrow(
      `webhook.v1.OrderLine.more is a ${typeName}; of google.protobuf only Timestamp is allowed. ` +
        "Use a message, a map or a scalar instead, with `optional` if it can be null",
    );
  },
);

test.each(["list", "map"] as const)("a payload may have a %s of times", (inside) => {
  expect(catalogueWith("google.protobuf.Timestamp", inside)).toHaveLength(catalogue.length);
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
