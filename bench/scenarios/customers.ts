import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { type Client, createClient } from "@connectrpc/connect";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { ALL_PERMISSIONS, createApiKey } from "../../src/keys/api-keys.ts";
import { startChild } from "../parts/child.ts";
import { databaseTime, walPosition, walSince } from "../parts/database-work.ts";
import { PROCESS } from "../parts/payload.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { clearDeliveries, giveTo, seedOwners, seedPending, seedWebhooks, USER_ID } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile, transportTo } from "../parts/timed-calls.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const WEBHOOKS_EACH = 10;
const CONCURRENCY = 64;
const PUBLISHED = 12_000;
const REGISTERED = 1_200;
/** The customers that register webhooks, in turn. */
const REGISTERING = 100;
/** An event type with no other webhooks, so that events have the same recipients meanwhile. */
const OTHER_PROCESS = 2;
/** An event type without events. */
const UNUSED_PROCESS = 3;
/** Both services are measured in turn, so that a change of the machine's speed concerns both. */
const ROUNDS = 6;

/** What is measured of a service, in all. */
interface Measured {
  seconds: number;
  walBytes: number;
  cpuUs: number;
}

/** What customers cost those that publish and register. */
export const customers: Scenario = {
  name: "customers",
  what: "publishing to one of 100,000 customers with 10 webhooks each, and registering for one, as ratios to an operator with as many webhooks",
  count: { full: 100_000, small: 5_000 },
  targets: Object.fromEntries(
    ["", "publishing, WAL", "registering", "registering, WAL"].map((detail) => [detail, { atMost: 1.1 }]),
  ),
  comparisons: [],
  async measure(bench, count) {
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    await using many = await openStage(bench, { MAX_WEBHOOKS: "10000000" });
    await using none = await openStage(bench, { MAX_WEBHOOKS: "10000000" });
    await seedOwners(many.db, count, WEBHOOKS_EACH, "'customer ' || n", PROCESS);
    await seedOwners(none.db, count, WEBHOOKS_EACH, "null", UNUSED_PROCESS);
    await seedWebhooks(none.db, none.secrets, urlsOf(WEBHOOKS_EACH));
    await giveTo(many.db, USER_ID, await seedWebhooks(many.db, many.secrets, urlsOf(WEBHOOKS_EACH)));
    for (const { db } of [many, none]) await db.raw("vacuum (analyze) webhooks, customer_processes");
    const publish = ({ service, adminKey }: Stage, events: number) =>
      publisher.call("unary", { grpcUrl: service.grpcUrl, key: adminKey, events, concurrency: CONCURRENCY });
    const publishing = await inTurn(bench.stopping, PUBLISHED, publish, many, none);
    const clients = new Map([
      [many, await clientsOf(many, (n) => `customer ${n}`)],
      [none, await clientsOf(none, () => null)],
    ]);
    const register = (stage: Stage, webhooks: number) => registered(clients.get(stage) ?? [], webhooks);
    const registering = await inTurn(bench.stopping, REGISTERED, register, many, none);
    return [...ratios("publishing", publishing, ""), ...ratios("registering", registering, "registering")];
  },
};

const urlsOf = (webhooks: number) => Array.from({ length: webhooks }, (_, n) => `https://localhost/${n}`);

/** Clients with keys of as many customers, or of the operator. */
async function clientsOf(stage: Stage, customerOf: (n: number) => string | null) {
  const clients: Client<typeof WebhookService>[] = [];
  for (let n = 1; n <= REGISTERING; n += 1) {
    const key = { name: "bench", permissions: ALL_PERMISSIONS, customer: customerOf(n) };
    const { secret: adminKey } = await createApiKey(stage.db, key);
    clients.push(createClient(WebhookService, transportTo({ ...stage, adminKey })));
  }
  return clients;
}

/** Registers webhooks one after the other, with the clients in turn. Returns seconds. */
async function registered(
  clients: readonly Client<typeof WebhookService>[],
  webhooks: number,
): Promise<number> {
  const started = performance.now();
  for (let n = 0; n < webhooks; n += 1) {
    const url = `https://receiver.example/${randomUUID()}`;
    await clients[n % clients.length]?.createWebhook({ process: OTHER_PROCESS, url });
  }
  return (performance.now() - started) / 1_000;
}

/** Does work with two services in turn, after a warm-up. Returns what it took of each. */
async function inTurn(
  stopping: AbortSignal,
  count: number,
  work: (stage: Stage, part: number) => Promise<number>,
  ...stages: [Stage, Stage]
): Promise<[Measured, Measured]> {
  const measured = stages.map((stage) => ({ stage, seconds: 0, walBytes: 0, cpuUs: 0 }));
  for (const stage of stages) await work(stage, count / 2);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const each of round % 2 === 0 ? measured : measured.toReversed()) {
      stopping.throwIfAborted();
      const { db } = each.stage;
      await clearDeliveries(db);
      const position = await walPosition(db);
      const before = await databaseTime(db);
      each.seconds += await work(each.stage, Math.ceil(count / ROUNDS));
      each.cpuUs += (await databaseTime(db)) - before;
      each.walBytes += await walSince(db, position);
    }
  }
  return measured as unknown as [Measured, Measured];
}

function ratios(what: string, [many, none]: [Measured, Measured], main: string): Measurement[] {
  const ratio = (detail: string, of: keyof Measured) => ({
    detail,
    unit: "ratio",
    value: many[of] / none[of],
  });
  return [
    ratio(main, "seconds"),
    ratio(`${what}, WAL`, "walBytes"),
    ratio(`${what}, PostgreSQL's processor time`, "cpuUs"),
  ];
}

const BUSY_WEBHOOKS = 1_000;
const BUSY_HOSTS = 100;
const PER_SECOND = 20;
const WARM_UP_SECONDS = 3;
const MEASURED_SECONDS = 30;
const ARRIVAL_TIMEOUT_MS = 60_000;

/** Whether a customer with many due deliveries delays another. */
export const customersLatency: Scenario = {
  name: "customers-latency",
  what: `${PER_SECOND} events a second of a customer with DISPATCH_ON_PUBLISH, beside another one with 1,000,000 due deliveries for ${BUSY_WEBHOOKS} webhooks: from the call to the arrival`,
  count: { full: 1_000_000, small: 300_000 },
  targets: { p99: { atMost: 1_000 } },
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(
      bench,
      // Slow enough that the other customer is busy for all of the time.
      [{ status: 200 }, ...Array.from({ length: BUSY_HOSTS }, () => ({ status: 200, delayMs: 20 }))],
    );
    await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
    const [own, ...others] = receivers.urls;
    const urls = Array.from({ length: BUSY_WEBHOOKS }, (_, n) => `${others[n % BUSY_HOSTS]}/hooks/${n}`);
    await giveTo(stage.db, USER_ID, await seedWebhooks(stage.db, stage.secrets, [`${own}/hooks`]));
    const busy = await seedWebhooks(stage.db, stage.secrets, urls);
    await giveTo(stage.db, "busy", busy);
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const pace = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey, perSecond: PER_SECOND };
    await receivers.recordArrivals(1);
    await publisher.call("paced", { ...pace, seconds: WARM_UP_SECONDS, firstOrder: 1 });
    await seedPending(stage, { events: count / BUSY_WEBHOOKS, webhooks: busy, userId: "busy" });
    const before = await receivers.count();
    const firstOrder = 1 + WARM_UP_SECONDS * PER_SECOND;
    const published = await publisher.call("paced", { ...pace, seconds: MEASURED_SECONDS, firstOrder });
    const sent = (await receivers.count()) - before;
    const [waiting] = (
      await stage.db.raw("select exists (select from queue where webhook_id = any(?)) as busy", [
        busy.map(String),
      ])
    ).rows;
    if (!waiting.busy) throw new Error("the other customer had no due deliveries left");
    const all = firstOrder - 1 + published.size;
    let arrived = await receivers.arrivals();
    for (const until = Date.now() + ARRIVAL_TIMEOUT_MS; arrived.size < all && Date.now() < until; ) {
      await wait(100, undefined, { signal: bench.stopping });
      arrived = await receivers.arrivals();
    }
    if (arrived.size < all) throw new Error(`${all - arrived.size} of ${all} events did not arrive`);
    const times = [...published]
      .map(([order, at]) => (arrived.get(order) as number) - at)
      .sort((one, other) => one - other);
    return [
      { detail: "p50", unit: "ms", value: percentile(times, 0.5) },
      { detail: "p99", unit: "ms", value: percentile(times, 0.99) },
      { detail: "max", unit: "ms", value: percentile(times, 1) },
      { detail: "meanwhile", unit: "deliveries/s", value: sent / MEASURED_SECONDS },
    ];
  },
};
