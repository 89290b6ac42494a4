import {
  create,
  createFileRegistry,
  type DescEnumValue,
  type DescField,
  type DescMessage,
  ScalarType,
} from "@bufbuild/protobuf";
import type { ReflectMessage } from "@bufbuild/protobuf/reflect";
import { FeatureSet_FieldPresence, FileDescriptorProtoSchema, type Timestamp } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { expect, test } from "vitest";
import { file_webhook_v1_api_key, RotateApiKeyRequestSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { file_webhook_v1_delivery } from "../../../gen/webhook/v1/delivery_pb.ts";
import { file_webhook_v1_event } from "../../../gen/webhook/v1/event_pb.ts";
import { file_webhook_v1_webhook } from "../../../gen/webhook/v1/webhook_pb.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { arbitraryMessage } from "./arbitrary-messages.ts";
import { arbitraryType } from "./arbitrary-types.ts";

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

const pascal = (name: string) =>
  name.replaceAll(/(?:^|_)(.)/g, (_match, letter: string) => letter.toUpperCase());

// biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
type Value = any;

/** The JSON of a message by protobuf's reflection, as the documents describe it. */
function expectedJson(message: ReflectMessage): string {
  const { desc } = message;
  if (desc.typeName === "google.protobuf.Timestamp") {
    const { seconds } = message.message as Timestamp;
    return `"${new Date(Number(seconds) * 1_000).toISOString().slice(0, "YYYY-MM-DDThh:mm:ss".length)}"`;
  }
  const members = desc.fields.map((field) => `"${pascal(field.name)}":${fieldJson(field, message)}`);
  return `{${members.join()}}`;
}

function fieldJson(field: DescField, message: ReflectMessage): string {
  const value: Value = message.get(field);
  if (field.fieldKind === "list") return `[${[...value].map((item) => valueJson(field, item)).join()}]`;
  if (field.fieldKind === "map")
    return `{${[...value].map(([key, each]) => `${JSON.stringify(String(key))}:${valueJson(field, each)}`).join()}}`;
  const isUnset = field.presence !== FeatureSet_FieldPresence.IMPLICIT && !message.isSet(field);
  return isUnset ? "null" : valueJson(field, value);
}

function valueJson({ message, enum: members, scalar }: DescField, value: Value): string {
  if (message) return expectedJson(value);
  if (members) {
    const { name } = members.value[value] as DescEnumValue;
    return `"${pascal(name.slice(members.sharedPrefix?.length ?? 0).toLowerCase())}"`;
  }
  if (scalar === ScalarType.STRING) return JSON.stringify(value);
  if (scalar === ScalarType.BYTES) return `"${Buffer.from(value).toString("base64")}"`;
  return Object.is(value, -0) ? "-0" : String(value);
}

/** Fails if a message of one of the types is not written as it should be. */
function expectWritten(types: fc.Arbitrary<DescMessage>, numRuns: number): void {
  const any = types.chain((desc) => arbitraryMessage(desc));
  const property = fc.property(any, (message) => {
    expect(jsonWriter(message.desc, "payload")(message.message)).toBe(expectedJson(message));
  });
  fc.assert(property, { numRuns });
}

test("any message of any type is JSON with the proto's keys in its order, and every value exactly", () => {
  expectWritten(arbitraryType, 200);
});

test.each(TYPED)("any %s is JSON with the proto's keys and every value", (desc) => {
  expectWritten(fc.constant(desc), 20);
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
