import { randomBytes, randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { setRegisteredTypes } from "../../src/contract/catalogue.ts";
import { publishEvents } from "../../src/events/publish.ts";
import { part } from "../support/parts.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { BY_HAND, fileService, keyedTransport } from "../support/test-service.ts";

const SECRET_KEY = randomBytes(32).toString("base64");
/** An API and a worker in this process. */
const service = fileService({ ...BY_HAND, SECRET_KEY });
/** An API in another process. */
let other: ServiceProcess;
beforeAll(async () => {
  other = await startServiceProcess({
    ROLE: "api",
    DATABASE_URL: service.databaseUrl,
    SECRET_KEY,
    TEMPORAL_ADDRESS: (await part("temporal")).address,
  });
});
afterAll(async () => {
  await other?.end("SIGTERM");
  setRegisteredTypes([]);
});

test("an event type that one process registers is known to the others, which subscribe, filter and deliver it", async () => {
  const eventTypes = createClient(EventTypeService, keyedTransport(other.grpcPort, service.adminKey));
  const process = 1004 as WebhookProcess;
  const proto = eventTypeProto("InvoicePaid", "process: 1004");
  await eventTypes.registerEventTypes({ fileDescriptorSet: buildFileSet({ "paid.proto": proto }) });

  // At once: an unknown number is looked up.
  const all = await service.receiver();
  const few = await service.receiver();
  await service.register(`${all.url}/`, { process });
  const filtered = await service.register(`${few.url}/`, { process });
  await service.webhooks.updateWebhook({ webhookId: filtered, filter: 'event.label == "B"' });
  const apiKeyId = (await service.db("api_keys").first("id"))?.id as string;
  const events = ["A", "B"].map((label) => ({
    apiKeyId,
    idempotencyKey: randomUUID(),
    requestSha256: "00",
    process,
    userId: "tenant-1",
    occurred: null,
    payload: JSON.stringify({ Id: 1, Label: label }),
  }));
  await publishEvents(service.db, events);
  await service.dispatch();
  const received = await all.until((requests) => requests.length === 2);
  for (const { headers } of received) expect(headers["x-service-webhook-process"]).toBe("InvoicePaid");
  const [only] = await few.until((requests) => requests.length === 1);
  expect(JSON.parse(only?.body.toString() ?? "")).toEqual({ Id: 1, Label: "B" });

  const transport = keyedTransport(service.grpcPort, service.adminKey);
  await createClient(EventTypeService, transport).deprecateEventType({
    eventType: { case: "process", value: process },
  });
  const { eventTypes: listed } = await eventTypes.listEventTypes({});
  expect(listed.find((each) => each.process === process)).toMatchObject({ deprecated: expect.anything() });
});
