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
import { RotateApiKeyRequestSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { eventTypes } from "../../../src/contract/catalogue.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { arbitraryMessage } from "./arbitrary-messages.ts";
import { arbitraryType } from "./arbitrary-types.ts";

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

test.each(eventTypes())(
  "any payload of $name is JSON with the proto's keys and every value",
  ({ payload }) => {
    expectWritten(fc.constant(payload), 100);
  },
);

function typeWith(fieldNames: string[]): DescMessage {
  const field = fieldNames.map((name, n) => ({ name, jsonName: name, number: n + 1, type: 9, label: 1 }));
  const messageType = [{ name: "M", field }];
  const file = create(FileDescriptorProtoSchema, { name: "a", package: "p", syntax: "proto3", messageType });
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
