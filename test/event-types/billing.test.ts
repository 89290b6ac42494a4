import { readFileSync } from "node:fs";
import { afterAll, expect, test } from "vitest";
import { setRegisteredTypes } from "../../src/contract/catalogue.ts";
import { planRegistration } from "../../src/event-types/plan.ts";
import { readEventTypesFrom } from "../../src/event-types/read-event-types.ts";
import { watchEventTypes } from "../../src/event-types/watch.ts";
import { useApi } from "../support/test-api.ts";

const EXAMPLE = new URL("../../examples/billing/", import.meta.url);
const readme = readFileSync(new URL("README.md", EXAMPLE), "utf8");

const api = await useApi();
const watch = watchEventTypes(api.context.db, api.context.log);
afterAll(() => {
  watch.close();
  setRegisteredTypes([]);
});

test("the event types of examples/billing are registered, and its event is stored as its README says", async () => {
  const set = await readEventTypesFrom(new URL("events", EXAMPLE).pathname);
  expect((await planRegistration({ files: [], types: [] }, set)).problems).toEqual([]);
  const { changes } = await api.eventTypes.registerEventTypes({ fileDescriptorSet: set });
  expect(changes.map(({ process, alias }) => [process, alias])).toEqual([
    [1004, "invoice.paid"],
    [1005, "payment.failed"],
    [1006, "subscription.started"],
    [1007, "subscription.ended"],
  ]);
  const url = "https://receiver.example/billing";
  const created = await api.rest("POST", "/api/webhook", { json: { process: "invoice.paid", url } });
  expect(created.envelope.Data).toMatchObject({ WebhookProcess: "InvoicePaid", Url: url });
  const [, request = ""] =
    /PublishEvent[^']*'Content-Type: application\/json' -d '(.*?)'\n/s.exec(readme) ?? [];
  const response = await fetch(`${api.url}/webhook.v1.EventService/PublishEvent`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-service-key": api.adminKey },
    body: request,
  });
  const { eventId, deliveriesQueued } = (await response.json()) as {
    eventId: string;
    deliveriesQueued: number;
  };
  expect(deliveriesQueued).toBe(1);
  const [, shown = ""] = /```json\n(.*?)```/s.exec(readme) ?? [];
  const [payload] = await api.context.db("events").where({ id: eventId }).pluck("payload");
  expect(payload).toBe(JSON.stringify(JSON.parse(shown)));
});
