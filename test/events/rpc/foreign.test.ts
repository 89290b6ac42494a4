import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { create } from "@bufbuild/protobuf";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { afterAll, expect, test } from "vitest";
import { setRegisteredTypes } from "../../../src/contract/catalogue.ts";
import { registeredTypes } from "../../support/registered-types.ts";
import { useApi } from "../../support/test-api.ts";

const file = (name: string) => readFileSync(new URL(`foreign/${name}`, import.meta.url), "utf8");
setRegisteredTypes(registeredTypes({ "invoice.proto": file("invoice.proto") }));
afterAll(() => setRegisteredTypes([]));

const { events } = await useApi();
/** The event as other languages encode it: foreign/record.sh. */
const encoded: Record<string, string> = JSON.parse(file("encoded.json"));

test("an event has the same hash however another language encodes it", async () => {
  const request = { idempotencyKey: randomUUID(), userId: "tenant-1" };
  const { eventId } = await events.publishEvent({
    ...request,
    data: {
      case: "jsonEvent",
      value: { process: "ForeignInvoice", payload: file("invoice.json") },
    },
  });
  expect(new Set(Object.values(encoded)).size).toBe(Object.keys(encoded).length);
  for (const [language, base64] of Object.entries(encoded)) {
    const value = create(AnySchema, {
      typeUrl: "type.googleapis.com/foreign.v1.ForeignInvoice",
      value: Buffer.from(base64, "base64"),
    });
    const again = await events.publishEvent({ ...request, data: { case: "event", value } });
    expect(again, language).toMatchObject({ eventId, duplicate: true });
  }
});
