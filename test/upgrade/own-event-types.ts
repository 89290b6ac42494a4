import { randomUUID } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { EventService, type WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import {
  checkAttempts,
  type OwnFaultParts,
  outcomes,
  register,
  startOwnFaultParts,
  temporalClient,
  untilAllFinal,
} from "../faults/parts.ts";
import { createPublisher, type Publisher } from "../faults/publisher.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { buildFileSet, eventTypeProto } from "../support/registered-types.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import { checkOutRelease, RELEASED, type ReleasedCheckout } from "./release.ts";

/** Events that are published while something changes. */
const EVENTS = FULL_SIZE ? 1_000 : 60;
/** What a receiver takes for an answer, so that something is in flight at each change. */
const ANSWER_MS = 20;
/** A worker that a busy machine keeps waiting is not taken for dead. */
const PATIENT = { HEARTBEAT_TIMEOUT: "30s" };

const INVOICE_PAID = 1004 as WebhookProcess;
const SET = buildFileSet({
  "billing.proto": eventTypeProto("InvoicePaid", 'process: 1004 alias: "invoice.paid"'),
});
const UNKNOWN = new RegExp(
  `the data requires event-types, which release ${RELEASED.version} does not know: it publishes and delivers nothing`,
);

let released: ReleasedCheckout;
let parts: OwnFaultParts;
let receiver: Receiver;
let publisher: Publisher;
let api: ServiceProcess;
const processes: ServiceProcess[] = [];

beforeAll(async () => {
  [released, parts] = await Promise.all([checkOutRelease(), startOwnFaultParts()]);
  receiver = await startReceiver(
    parts.certificate,
    () => new Promise((resolve) => setTimeout(resolve, ANSWER_MS, 200)),
  );
  publisher = createPublisher(() => api.grpcPort, parts.adminKey);
});
afterAll(async () => {
  await Promise.all(processes.map((service) => service.end("SIGTERM")));
  await receiver?.close();
  await parts?.end();
  await released?.remove();
});

/** Starts a process of this build, or of the released one. */
async function start(role: "api" | "worker", of: "released" | "today"): Promise<ServiceProcess> {
  const environment = { ...parts.environment, ...PATIENT, ROLE: role };
  const service = await startServiceProcess(environment, [], ...(of === "released" ? [released.folder] : []));
  processes.push(service);
  return service;
}

/** Publishes events and makes the change amid it. */
async function amidLoad(change: () => Promise<void>): Promise<void> {
  const before = publisher.published();
  const publishing = publisher.publish(EVENTS);
  await until(() => publisher.published() - before >= EVENTS / 3);
  await change();
  await publishing;
}

/** The processes that have made activities of dispatch runs, by their ids. */
async function deliverers(): Promise<Set<number>> {
  const client = await temporalClient(parts);
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
  const events = createClient(EventService, keyedTransport(api.grpcPort, parts.adminKey));
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
  const old = { api: await start("api", "released"), worker: await start("worker", "released") };
  api = old.api;
  await register(api.grpcPort, parts.adminKey, `${receiver.url}/OrderDispatched`);
  const today: { api?: ServiceProcess; worker?: ServiceProcess } = {};
  await amidLoad(async () => {
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
  await amidLoad(async () => void (await old.worker.end("SIGTERM")));
  await isRefused("api");
  await amidLoad(async () => {
    api = today.api as ServiceProcess;
    await old.api.end("SIGTERM");
  });

  await amidLoad(async () => {
    expect(await registering()).toMatchObject({ changes: [{ process: INVOICE_PAID, name: "InvoicePaid" }] });
    await register(api.grpcPort, parts.adminKey, `${receiver.url}/InvoicePaid`, INVOICE_PAID);
    await publishOwn(EVENTS);
  });
  const pids = processes.map(({ pid }) => pid);
  await amidLoad(async () => {
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
