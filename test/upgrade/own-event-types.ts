import { randomUUID } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { EventService, type WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { checkAttempts, outcomes, register, temporalClient, untilAllFinal } from "../faults/parts.ts";
import type { Publisher } from "../faults/publisher.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import { RELEASED } from "./release.ts";
import { amidLoad, type RollingUpgrade, startUpgradeWithReceiver } from "./rolling-upgrade.ts";

/** Events that are published while something changes. */
const EVENTS = FULL_SIZE ? 1_000 : 60;

const INVOICE_PAID = 1004 as WebhookProcess;
const SET = buildFileSet({
  "billing.proto": eventTypeProto("InvoicePaid", 'process: 1004 alias: "invoice.paid"'),
});
const UNKNOWN = new RegExp(
  `the data requires event-types, which release ${RELEASED.version} does not know: it publishes and delivers nothing`,
);

let upgrade: RollingUpgrade;
let receiver: Receiver;
let publisher: Publisher;
let api: ServiceProcess;

beforeAll(async () => {
  ({ upgrade, receiver, publisher } = await startUpgradeWithReceiver(() => api.grpcPort));
});
afterAll(async () => {
  await upgrade?.end();
  await receiver?.close();
});

/** The processes that have made activities of dispatch runs, by their ids. */
async function deliverers(): Promise<Set<number>> {
  const client = await temporalClient(upgrade.parts);
  const found = new Set<number>();
  try {
    for await (const { workflowId, runId } of client.workflow.list()) {
      const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
      for (const { activityTaskStartedEventAttributes: activity } of events ?? [])
        if (activity?.identity) found.add(Number.parseInt(activity.identity, 10));
    }
  } finally {
    await client.connection.close();
  }
  return found;
}

/** Publishes so many events of the registered type. */
async function publishOwn(count: number): Promise<void> {
  const events = createClient(EventService, keyedTransport(api.grpcPort, upgrade.parts.adminKey));
  for (let n = 1; n <= count; n += 1)
    await events.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "tenant-1",
      data: {
        case: "jsonEvent",
        value: { process: "invoice.paid", payload: `{"id":"${n}","label":"A-${n}"}` },
      },
    });
}

test(`event types are registered once no process of ${RELEASED.version} runs; from then on none starts, and nothing is lost`, async () => {
  const { parts, processes, start } = upgrade;
  const old = { api: await start("api", "released"), worker: await start("worker", "released") };
  api = old.api;
  await register(api.grpcPort, parts.adminKey, `${receiver.url}/OrderDispatched`);
  const today: { api?: ServiceProcess; worker?: ServiceProcess } = {};
  await amidLoad(publisher, EVENTS, async () => {
    today.worker = await start("worker", "today");
    today.api = await start("api", "today");
  });
  const eventTypes = createClient(
    EventTypeService,
    keyedTransport(today.api?.grpcPort as number, parts.adminKey),
  );
  const registering = () => eventTypes.registerEventTypes({ fileDescriptorSet: SET });
  const isRefused = (...roles: string[]) =>
    expect(registering()).rejects.toMatchObject({
      code: Code.FailedPrecondition,
      rawMessage: expect.stringMatching(
        new RegExp(roles.map((role) => `(?=.*\\(release ${RELEASED.version}, ${role}\\))`).join("")),
      ),
    });
  await isRefused("api", "worker");
  // Both deliver what is built in.
  await until(async () => {
    await publisher.publish(20);
    const found = await deliverers();
    return found.has(old.worker.pid) && found.has(today.worker?.pid as number);
  });
  await amidLoad(publisher, EVENTS, async () => old.worker.end("SIGTERM"));
  await isRefused("api");
  await amidLoad(publisher, EVENTS, async () => {
    api = today.api as ServiceProcess;
    await old.api.end("SIGTERM");
  });

  await amidLoad(publisher, EVENTS, async () => {
    expect(await registering()).toMatchObject({ changes: [{ process: INVOICE_PAID, name: "InvoicePaid" }] });
    await register(api.grpcPort, parts.adminKey, `${receiver.url}/InvoicePaid`, INVOICE_PAID);
    await publishOwn(EVENTS);
  });
  const pids = processes.map(({ pid }) => pid);
  await amidLoad(publisher, EVENTS, async () => {
    await expect(start("worker", "released")).rejects.toThrow(UNKNOWN);
    await expect(start("api", "released")).rejects.toThrow(UNKNOWN);
    await publishOwn(EVENTS);
  });
  await untilAllFinal(parts.db);

  const own = 2 * EVENTS;
  for (const pid of await deliverers()) expect(pids).toContain(pid);
  expect(await outcomes(parts.db)).toEqual([
    { state: "delivered", attempts: 1, n: publisher.published() + own },
  ]);
  await checkAttempts(parts.db);
  const { received } = receiver;
  expect(received).toHaveLength(publisher.published() + own);
  expect(new Set(received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(received.length);
  for (const { path, headers } of received) expect(`/${headers["x-service-webhook-process"]}`).toBe(path);
  const bodies = received.filter(({ path }) => path === "/InvoicePaid").map(({ body }) => body);
  const sent = Array.from({ length: EVENTS }, (_, n) => `{"Id":${n + 1},"Label":"A-${n + 1}"}`);
  expect(bodies.toSorted()).toEqual([...sent, ...sent].toSorted());
});
