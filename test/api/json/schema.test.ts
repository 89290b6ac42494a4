import { clone, createFileRegistry, type DescMessage, type Message, setExtension } from "@bufbuild/protobuf";
import { reflect } from "@bufbuild/protobuf/reflect";
import { type FieldOptions, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { ValidateFunction } from "ajv/dist/2020.js";
import fc from "fast-check";
import { expect, test } from "vitest";
import { DocumentCreatedSchema, file_webhook_v1_event } from "../../../gen/webhook/v1/event_pb.ts";
import { NoticeSchema } from "../../../gen/webhook/v1/notice_pb.ts";
import { example } from "../../../gen/webhook/v1/options_pb.ts";
import { findFieldViolations } from "../../../src/calls/required-fields.ts";
import { eventTypes, isNotice } from "../../../src/contract/catalogue.ts";
import { sampleMessage } from "../../../src/contract/event-types/sample.ts";
import { payloadSchema } from "../../../src/contract/event-types/schema.ts";
import { jsonWriter } from "../../../src/contract/json/writer.ts";
import { schemaValidator } from "../../support/schema-validator.ts";
import { arbitraryMessage } from "./arbitrary-messages.ts";
import { arbitraryType } from "./arbitrary-types.ts";

function validatorOf(desc: DescMessage): ValidateFunction {
  return schemaValidator(JSON.stringify(payloadSchema(desc)));
}

function expectValid(validate: ValidateFunction, json: string): void {
  validate(JSON.parse(json));
  expect(validate.errors, json).toBeNull();
}

test("the sample and any message of any type are valid under its schema, but none that lacks a key or has a wrong one", () => {
  const typed = arbitraryType.chain((desc) =>
    fc.record({
      desc: fc.constant(desc),
      validate: fc.constant(validatorOf(desc)),
      message: arbitraryMessage(desc),
      choice: fc.nat(),
    }),
  );
  fc.assert(
    fc.property(typed, ({ desc, validate, message, choice }) => {
      const write = jsonWriter(desc, "payload");
      expectValid(validate, write(sampleMessage(desc)));
      const json = write(message.message);
      expectValid(validate, json);
      const entries = Object.entries(JSON.parse(json));
      const [changed] = entries.splice(choice % Math.max(1, entries.length), 1);
      if (!changed) return;
      expect(validate(Object.fromEntries(entries))).toBe(false);
      expect(validate(Object.fromEntries([...entries, [changed[0], [[[]]]]]))).toBe(false);
    }),
    { numRuns: 100 },
  );
});

/** The sample of a type with some of its fields as they may be in any message. */
function halfArbitrary(desc: DescMessage): fc.Arbitrary<Message> {
  return fc.tuple(arbitraryMessage(desc), fc.subarray(desc.fields)).map(([other, fields]) => {
    const message = reflect(desc, sampleMessage(desc));
    for (const field of fields) {
      message.clear(field);
      // biome-ignore lint/suspicious/noExplicitAny: reflection has a type for each kind of field
      if (other.isSet(field)) message.set(field, other.get(field) as any);
    }
    return message.message;
  });
}

test.each(eventTypes())(
  "a payload of $name is valid exactly when publishing would take it",
  ({ payload }) => {
    const validate = validatorOf(payload);
    fc.assert(
      fc.property(halfArbitrary(payload), (message) => {
        const json = jsonWriter(payload, "payload")(message);
        const violations = findFieldViolations(payload, message);
        expect(validate(JSON.parse(json)), json).toBe(violations.length === 0);
      }),
      { numRuns: 300 },
    );
  },
);

test("a message with two members of a oneof is not valid, with any one of them it is", () => {
  const validate = validatorOf(NoticeSchema);
  const sampleOf = (desc: DescMessage) => JSON.parse(jsonWriter(desc, "payload")(sampleMessage(desc)));
  const notice = sampleOf(NoticeSchema);
  expect(validate(notice)).toBe(true);
  const [first, ...others] = eventTypes().filter(({ number }) => isNotice(number));
  for (const { name, payload } of others) {
    expect(validate({ ...notice, [name]: sampleOf(payload) })).toBe(false);
    expect(validate({ ...notice, [String(first?.name)]: null, [name]: sampleOf(payload) })).toBe(true);
  }
});

test("a schema names the members of an enum that may occur, and says what they mean", () => {
  expect(payloadSchema(DocumentCreatedSchema)).toMatchObject({
    properties: {
      Kind: {
        type: "string",
        // It is required, so nothing is Unspecified.
        enum: ["Invoice", "CreditNote", "DeliveryNote", "OrderConfirmation"],
        description: expect.stringContaining("\n\n- Invoice: "),
      },
      TotalMinor: { type: ["integer", "null"], format: "int64" },
      CreatedAt: { type: "string" },
    },
  });
});

test("an example that is no value of its field's type is an error that names the field", () => {
  const proto = clone(FileDescriptorProtoSchema, file_webhook_v1_event.proto);
  const payload = proto.messageType.find(({ name }) => name === "StockLevelChanged");
  const level = payload?.field.find(({ name }) => name === "level");
  setExtension(level?.options as FieldOptions, example, "plenty");
  const { dependencies } = file_webhook_v1_event;
  const registry = createFileRegistry(proto, (name) => dependencies.find((file) => file.proto.name === name));
  const changed = registry.getMessage("webhook.v1.StockLevelChanged") as DescMessage;
  expect(() => sampleMessage(changed)).toThrow(
    /webhook\.v1\.StockLevelChanged\.level .*plenty.*correct the option example/,
  );
});
