import {
  create,
  type DescField,
  type DescMessage,
  fromJsonString,
  ScalarType,
  toBinary,
  toJsonString,
} from "@bufbuild/protobuf";
import { type ReflectMessage, reflect } from "@bufbuild/protobuf/reflect";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import {
  JsonEventSchema,
  type PublishEventRequest,
  PublishEventRequestSchema,
} from "../../../gen/webhook/v1/event_pb.ts";
import { type CatalogueEntry, setRegisteredTypes } from "../../../src/contract/catalogue.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { exactText } from "../../../src/contract/json/exact-text.ts";
import { newEvent } from "../../../src/events/rpc/new-event.ts";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { arbitraryType } from "../../api/json/arbitrary-types.ts";

afterAll(() => setRegisteredTypes([]));

const IDS = { idempotencyKey: "1", userId: "tenant-1" };
const stored = (data: PublishEventRequest["data"]) => {
  const { payload, requestSha256, searchable, process } = newEvent(
    { id: "key", customer: null },
    create(PublishEventRequestSchema, { ...IDS, data }),
    true,
  );
  return { payload, requestSha256, searchable, process };
};
const asAny = (typeName: string, value: Uint8Array, prefix = "type.googleapis.com/") =>
  stored({ case: "event", value: create(AnySchema, { typeUrl: prefix + typeName, value }) });
const asText = (process: string, payload: string) =>
  stored({ case: "jsonEvent", value: create(JsonEventSchema, { process, payload }) });
/** As a request in JSON is read. */
const asRequest = (data: string) => {
  const text = exactText(PublishEventRequestSchema, `{"idempotencyKey":"1","userId":"tenant-1",${data}}`);
  return stored(fromJsonString(PublishEventRequestSchema, text).data);
};

/** A message as an encoder may write it that has another order of fields and splits lists. */
function otherBytes(desc: DescMessage, message: ReflectMessage): Uint8Array {
  const parts = [...desc.fields].reverse().map((field) => {
    if (!message.isSet(field)) return new Uint8Array();
    const alone = reflect(desc);
    if (field.fieldKind === "list") for (const item of message.get(field)) alone.get(field).add(item);
    else if (field.fieldKind === "map")
      for (const [key, value] of [...message.get(field)].reverse()) alone.get(field).set(key, value);
    else alone.set(field, message.get(field));
    return toBinary(desc, alone.message);
  });
  return Buffer.concat(parts);
}

/** JSON with the names of each object in the reverse order. */
function reversed(text: string): string {
  return JSON.stringify(JSON.parse(text), (_name, value) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).reverse())
      : value,
  );
}

const entryOf = (payload: DescMessage): CatalogueEntry => ({
  number: 1_004,
  name: "OwnEvent",
  alias: "own.event",
  message: payload.typeName,
  payload,
});

/** The library writes -0 as 0 in JSON. */
const withoutMinusZero = (field: DescField) =>
  field.scalar === ScalarType.DOUBLE || field.scalar === ScalarType.FLOAT
    ? fc.float({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0)
    : undefined;
const typed = arbitraryType.chain((desc) =>
  arbitraryMessage(desc, 0, withoutMinusZero).map((message) => ({ desc, message })),
);

test("an event is stored alike however it is published, in every encoding and order, and counts as the same request", () => {
  fc.assert(
    fc.property(typed, ({ desc, message }) => {
      setRegisteredTypes([entryOf(desc)]);
      const bytes = toBinary(desc, message.message);
      const first = asAny(desc.typeName, bytes);
      const json = toJsonString(desc, message.message);
      const names = toJsonString(desc, message.message, { useProtoFieldName: true, enumAsInteger: true });
      const packed = `{"@type":"type.googleapis.com/${desc.typeName}"${json === "{}" ? "" : ","}${json.slice(1)}`;
      const ways: [string, () => object][] = [
        ["another prefix", () => asAny(desc.typeName, bytes, "example.com/types/")],
        ["another encoder", () => asAny(desc.typeName, otherBytes(desc, message))],
        ["JSON", () => asText("OwnEvent", json)],
        ["JSON in another order", () => asText("own.event", reversed(names))],
        ["inline", () => asRequest(`"jsonEvent": {"process":"any.v1.M","payload" : ${json}}`)],
        [
          "inline, in another order",
          () => asRequest(`"json_event":{"payload":${reversed(json)}, "process":"OwnEvent"}`),
        ],
        ["packed in JSON", () => asRequest(`"event": ${packed}`)],
        ["packed in JSON, the type last", () => asRequest(`"event": ${reversed(packed)}`)],
      ];
      for (const [way, publish] of ways) expect(publish(), way).toEqual(first);
    }),
  );
});

const changed = fc.record({
  place: fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true }),
  by: fc.oneof(
    fc.uint8Array({ maxLength: 6 }),
    fc
      .constantFrom('"', "{", "[", "1e999", "null", "\\ud800", "__proto__", '"a":1,', "9".repeat(30))
      .map((text) => Buffer.from(text)),
  ),
  removed: fc.nat(4),
});

test("no bytes and no JSON are an error of the service, nor stored as something else than a payload", () => {
  fc.assert(
    fc.property(typed, fc.array(changed, { minLength: 1, maxLength: 3 }), ({ desc, message }, changes) => {
      setRegisteredTypes([entryOf(desc)]);
      const apply = (bytes: Uint8Array) =>
        changes.reduce<Uint8Array>((sum, { place, by, removed }) => {
          const at = Math.floor(place * sum.length);
          return Buffer.concat([sum.subarray(0, at), by, sum.subarray(at + removed)]);
        }, bytes);
      const bytes = apply(toBinary(desc, message.message));
      const json = Buffer.from(apply(Buffer.from(toJsonString(desc, message.message)))).toString();
      for (const publish of [() => asAny(desc.typeName, bytes), () => asText("OwnEvent", json)]) {
        try {
          JSON.parse(publish().payload);
        } catch (error) {
          expect(error).toBeInstanceOf(DomainError);
          expect(error).toMatchObject({ code: "INVALID_ARGUMENT" });
        }
      }
    }),
    { numRuns: 300 },
  );
});
