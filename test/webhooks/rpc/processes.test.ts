import { randomUUID } from "node:crypto";
import { create, type MessageShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import fc from "fast-check";
import { expect, test } from "vitest";
import { type PublishEventRequest, PublishEventRequestSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { findFieldViolations } from "../../../src/calls/required-fields.ts";
import { type CatalogueEntry, eventTypes, isNotice } from "../../../src/contract/catalogue.ts";
import { sampleMessage } from "../../../src/contract/event-types/sample.ts";
import { arbitraryMessage } from "../../api/json/arbitrary-messages.ts";
import { expectRefused } from "../../support/refusals.ts";
import { schemaValidator } from "../../support/schema-validator.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();

const listed = async () => (await api.webhooks.listProcesses({})).processes;

test("the catalogue has every event type by number and name, with a description, a sample and a schema", async () => {
  const processes = await listed();
  expect(processes.map(({ number, name }) => ({ number, name }))).toEqual(
    eventTypes().map(({ number, name }) => ({ number, name })),
  );
  for (const { name, description, sample, schema } of processes) {
    expect(description).toMatch(/\.$/);
    expect(JSON.parse(sample)).toEqual(expect.any(Object));
    expect(JSON.parse(schema)).toMatchObject({
      $schema: "https://json-schema.org/draft/2020-12/schema",
      title: name,
      description,
    });
  }
});

test.each(["/api", "/api/v1", "/api/v2"])(
  "REST has the catalogue at %s/webhook/processes, with samples and schemas as objects",
  async (prefix) => {
    const { status, text, envelope } = await api.rest("GET", `${prefix}/webhook/processes`);
    const processes = await listed();
    expect([status, envelope.Data]).toEqual([
      200,
      processes.map(({ number, name, description, sample, schema }) => ({
        Number: number,
        Name: name,
        Description: description,
        Sample: JSON.parse(sample),
        Schema: JSON.parse(schema),
      })),
    ]);
    // To the letter: numbers with every digit, keys in their order.
    for (const { sample, schema } of processes)
      expect(text).toContain(`"Sample":${sample},"Schema":${schema}}`);
  },
);

test("each event type that is listed can be registered for, by its number", async () => {
  for (const { number, name } of await listed()) {
    const url = `https://receiver.example/${name}`;
    const { envelope } = await api.rest("POST", "/api/webhook", { json: { process: number, url } });
    expect(envelope.Data.WebhookProcess).toBe(name);
  }
});

test("the catalogue marks notices, and callers cannot publish them: the error names the events that they publish", async () => {
  const notices = (await listed()).filter(({ notice }) => notice).map(({ name }) => name);
  expect(notices).toEqual([
    "WebhookFailing",
    "WebhookRecovered",
    "WebhookDisabled",
    "DeliveryFailed",
    "WebhookFilterStopped",
    "IncidentOpened",
    "IncidentClosed",
  ]);
  for (const field of ["webhookFailing", "webhook_recovered", "webhookDisabled", "deliveryFailed"]) {
    const response = await fetch(`${api.url}/webhook.v1.EventService/PublishEvent`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-service-key": api.adminKey },
      body: JSON.stringify({ idempotencyKey: randomUUID(), userId: "u", [field]: { lastError: "made up" } }),
    });
    const message = `${field}.*; only the service publishes notices; allowed: .*orderDispatched, documentCreated, stockLevelChanged, event, jsonEvent$`;
    const expected = { code: "invalid_argument", message: expect.stringMatching(message) };
    expect(await response.json()).toMatchObject(expected);
  }
});

function requestOf({ field }: CatalogueEntry, value: unknown): PublishEventRequest {
  const member = PublishEventRequestSchema.fields.find((each) => each.name === field);
  return create(PublishEventRequestSchema, {
    idempotencyKey: randomUUID(),
    userId: "tenant-1",
    data: { case: member?.localName, value } as MessageShape<typeof PublishEventRequestSchema>["data"],
  });
}

/** The event types that callers publish. */
const publishable = eventTypes().filter(({ number }) => !isNotice(number));

/** Publishes an event, and reads the body that its receivers would be sent. */
async function published(request: PublishEventRequest): Promise<string> {
  const { eventId } = await api.events.publishEvent(request);
  return (await api.context.db("events").where("id", eventId).first()).payload;
}

test("an event like the sample is sent as the sample, to the letter", async () => {
  const processes = await listed();
  for (const entry of publishable) {
    const sample = processes.find(({ number }) => number === entry.number)?.sample;
    expect(await published(requestOf(entry, sampleMessage(entry.payload)))).toBe(sample);
  }
});

test("whatever is published is valid under the schema that is listed for it", async () => {
  const processes = await listed();
  for (const entry of publishable) {
    const validate = schemaValidator(processes.find(({ number }) => number === entry.number)?.schema ?? "");
    const acceptable = arbitraryMessage(entry.payload)
      .map(({ message }) => requestOf(entry, message))
      .filter((request) => findFieldViolations(PublishEventRequestSchema, request).length === 0);
    await fc.assert(
      fc.asyncProperty(acceptable, async (request) => {
        validate(JSON.parse(await published(request)));
        expect(validate.errors).toBeNull();
      }),
      { numRuns: 50 },
    );
  }
});

test("a member of an enum that has no name is refused, since receivers are promised names", async () => {
  const entry = eventTypes().find(({ name }) => name === "DocumentCreated") as CatalogueEntry;
  const call = published(requestOf(entry, { ...sampleMessage(entry.payload), kind: 99 }));
  const message = "kind is 99, which is no DocumentKind; allowed: DOCUMENT_KIND_";
  await expectRefused(call, Code.InvalidArgument, message);
});
