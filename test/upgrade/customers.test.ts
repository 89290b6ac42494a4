import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { checkAttempts, outcomes, register, untilAllFinal } from "../faults/parts.ts";
import type { Publisher } from "../faults/publisher.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { anOrder } from "../support/grpc-calls.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { RELEASED } from "./release.ts";
import { amidLoad, type Build, type RollingUpgrade, startUpgradeWithReceiver } from "./rolling-upgrade.ts";

/** Events that are published while something changes. */
const EVENTS = FULL_SIZE ? 1_000 : 40;
const CUSTOMERS = ["acme", "globex"];
const UNKNOWN = new RegExp(
  `the data requires customers, which release ${RELEASED.version} does not know: it publishes and delivers nothing`,
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

function start(role: "api" | "worker", of: Build): Promise<ServiceProcess> {
  return upgrade.start(role, of, { CUSTOMER_ALLOWED_NETWORKS: "127.0.0.0/8" });
}

/** Has processes of a build take over from others, amid load, one after the other. */
async function roll(of: Build, before: { api: ServiceProcess; worker: ServiceProcess }) {
  let worker: ServiceProcess | undefined;
  await amidLoad(publisher, EVENTS, async () => {
    worker = await start("worker", of);
    await before.worker.end("SIGTERM");
    api = await start("api", of);
    await before.api.end("SIGTERM");
  });
  return { api, worker: worker as ServiceProcess };
}

/** A webhook at a path of the receiver, by a key. */
const registerAt = (path: string, key: string) => register(api.grpcPort, key, `${receiver.url}/${path}`);

/** Publishes events of each customer, and of a user without webhooks; the orders are numbered by their user. */
async function publishForEach(from: number): Promise<void> {
  const events = createClient(EventService, keyedTransport(api.grpcPort, upgrade.parts.adminKey));
  for (let n = from; n < from + EVENTS; n += 1)
    for (const userId of [...CUSTOMERS, "tenant-7"])
      await events.publishEvent(anOrder({ orderNumber: `${userId}-${n}` }, { userId }));
}

/** Creates the keys of customers, which register webhooks. @returns them by customer */
async function createKeys(grpcPort: number): Promise<Record<string, string>> {
  const apiKeys = createClient(ApiKeyService, keyedTransport(grpcPort, upgrade.parts.adminKey));
  const permissions = [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA];
  const made: Record<string, string> = {};
  for (const customer of CUSTOMERS)
    made[customer] = (await apiKeys.createApiKey({ name: customer, permissions, customer })).secret;
  return made;
}

test(`customers begin once no process of ${RELEASED.version} runs; until then it may come back, from then on it does not start, and each gets its own`, async () => {
  const { db, adminKey } = upgrade.parts;
  const first = { api: await start("api", "released"), worker: await start("worker", "released") };
  api = first.api;
  await registerAt("operator", adminKey);
  // Both at once refuse customers.
  const todaysWorker = await start("worker", "today");
  const todaysApi = await start("api", "today");
  await expect(createKeys(todaysApi.grpcPort)).rejects.toMatchObject({
    code: Code.FailedPrecondition,
    rawMessage: expect.stringMatching(
      new RegExp(
        ["api", "worker"].map((role) => `(?=.*\\(release ${RELEASED.version}, ${role}\\))`).join(""),
      ),
    ),
  });
  // The released build registers with the schema of this one: a webhook once, and again after it was deleted.
  const webhooks = createClient(WebhookService, keyedTransport(api.grpcPort, adminKey));
  const shared = await registerAt("shared", adminKey);
  expect(await registerAt("shared", adminKey)).toBe(shared);
  await webhooks.deleteWebhook({ webhookId: shared });
  expect(await registerAt("shared", adminKey)).toBeGreaterThan(shared);

  await amidLoad(publisher, EVENTS, async () => {
    await first.worker.end("SIGTERM");
    api = todaysApi;
    await first.api.end("SIGTERM");
  });
  const back = await roll("released", { api: todaysApi, worker: todaysWorker });
  await roll("today", back);

  const operators = publisher.published();
  let keys: Record<string, string> = {};
  await amidLoad(publisher, EVENTS, async () => {
    keys = await createKeys(api.grpcPort);
    for (const [customer, key] of Object.entries(keys))
      for (const path of [customer, "shared"]) await registerAt(path, key);
    await publishForEach(1);
  });
  await amidLoad(publisher, EVENTS, async () => {
    await expect(start("worker", "released")).rejects.toThrow(UNKNOWN);
    await expect(start("api", "released")).rejects.toThrow(UNKNOWN);
    await publishForEach(EVENTS + 1);
  });
  await untilAllFinal(db);

  // Two webhooks of the operator get everything, two of each customer what is its own.
  const own = 2 * EVENTS;
  expect(publisher.published() - operators).toBe(2 * EVENTS);
  const expected = 2 * publisher.published() + 2 * own * (CUSTOMERS.length + 1) + CUSTOMERS.length * 2 * own;
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: expected }]);
  await checkAttempts(db);
  const { received } = receiver;
  expect(received).toHaveLength(expected);
  expect(new Set(received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(received.length);
  const foreign = await db.raw(
    `select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id join events e on e.id = d.event_id
      where w.customer <> e.user_id`,
  );
  expect(foreign.rows).toEqual([]);
  const numbers = (path: string) =>
    received.filter((each) => each.path === path).map(({ body }) => JSON.parse(body).OrderNumber as string);
  for (const customer of CUSTOMERS) {
    const sent = Array.from({ length: own }, (_, n) => `${customer}-${n + 1}`);
    expect(numbers(`/${customer}`).toSorted()).toEqual(sent.toSorted());
    // The operator's webhook at the same URL, and the customer's.
    expect(numbers("/shared").filter((each) => each.startsWith(customer))).toHaveLength(2 * own);
  }
});
