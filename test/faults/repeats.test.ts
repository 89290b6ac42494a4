import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { checkAttempts, removeAll, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const KILLS = FULL_SIZE ? 3 : 2;
const DELIVERIES = FULL_SIZE ? 60_000 : 4_000;
/** What a worker may have in flight to distant receivers here. */
const IN_FLIGHT = 300;
/** The number of requests that a kill may repeat, even if fewer may be in flight. */
const FEW = 200;

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster?.end());

/** Receivers of one kind: how often each delivery came, and how many requests are unanswered. */
async function startReceivers(hosts: number, delayMs: number) {
  const times = new Map<string, number>();
  let unanswered = 0;
  const urls: string[] = [];
  for (let host = 0; host < hosts; host += 1) {
    const receiver = await cluster.receiver(async ({ headers }) => {
      const id = String(headers["x-service-webhook-id"]);
      times.set(id, (times.get(id) ?? 0) + 1);
      unanswered += 1;
      if (delayMs > 0) await wait(delayMs);
      unanswered -= 1;
      return 200;
    });
    urls.push(receiver.url);
  }
  return {
    urls,
    get deliveries() {
      return times.size;
    },
    times: (id: string) => times.get(id) ?? 0,
    all: () => new Map(times),
    get repeats() {
      return [...times.values()].reduce((sum, n) => sum + n - 1, 0);
    },
    get unanswered() {
      return unanswered;
    },
  };
}

/** Stores events with a delivery for each of the webhooks, as publishing would. */
async function queue(webhooks: readonly bigint[], deliveries: number): Promise<void> {
  await rows(
    cluster.db,
    `with event as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select new_event_id(), (select id from api_keys limit 1), 'repeats-' || new_event_id(), 1, 'u', now(),
          cardinality(:webhooks::bigint[]), '{"N":' || n || '}'
        from generate_series(1, :events::int) n returning id
      )
      insert into queue (id, event_id, webhook_id)
      select new_delivery_id(event.id), event.id, w from event cross join unnest(:webhooks::bigint[]) w`,
    { webhooks, events: Math.ceil(deliveries / webhooks.length) },
  );
}

/** The adaptive limit, not the default of 4,000, decides how many are in flight to receivers that answer at once. */
const CASES: {
  what: string;
  hosts: number;
  delayMs: number;
  settings: Record<string, string>;
  most: number;
}[] = [
  { what: "receivers that answer at once", hosts: 2, delayMs: 0, settings: {}, most: FEW },
  {
    what: "receivers that answer after 300 ms",
    hosts: 20,
    delayMs: 300,
    settings: { DELIVERY_MAX_IN_FLIGHT: String(IN_FLIGHT) },
    most: IN_FLIGHT,
  },
];

test.each(CASES)(
  "a worker killed amid deliveries to $what repeats at most $most, and one that is stopped none",
  async ({ what, hosts, delayMs, settings, most }) => {
    await removeAll(cluster.db);
    const receivers = await startReceivers(hosts, delayMs);
    const webhooks: bigint[] = [];
    for (const url of receivers.urls) webhooks.push(await cluster.register(`${url}/`));
    await queue(webhooks, DELIVERIES);
    let repeated = 0;
    let before = new Map<string, number>();
    /** The number of deliveries sent since the last kill whose result is not recorded: they will be sent again. */
    const inDoubt = async () => {
      const open = await rows<{ id: string }>(cluster.db, "select id from queue");
      return open.filter(({ id }) => receivers.times(id) > (before.get(id) ?? 0)).length;
    };
    for (let kill = 1; kill <= KILLS; kill += 1) {
      const worker = await cluster.startWorker(settings);
      const until = receivers.deliveries + DELIVERIES / 6;
      await expect.poll(() => receivers.deliveries, { timeout: 60_000, interval: 5 }).toBeGreaterThan(until);
      await worker.end("SIGKILL");
      const inFlight = receivers.unanswered;
      const repeats = await inDoubt();
      repeated += repeats;
      before = receivers.all();
      tell(`${what}: kill ${kill} with ${inFlight} requests unanswered repeats ${repeats}`);
      expect(repeats).toBeLessThanOrEqual(most);
    }
    // A worker that is stopped repeats nothing and leaves nothing in doubt.
    const stopped = await cluster.startWorker(settings);
    const until = receivers.deliveries + DELIVERIES / 6;
    await expect.poll(() => receivers.deliveries, { timeout: 60_000, interval: 5 }).toBeGreaterThan(until);
    expect(await stopped.end("SIGTERM")).toBe(0);
    expect(await inDoubt()).toBe(0);
    const last = await cluster.startWorker(settings);
    await untilAllFinal(cluster.db);
    await checkAttempts(cluster.db);
    expect(receivers.deliveries).toBe(Math.ceil(DELIVERIES / hosts) * hosts);
    expect(receivers.repeats).toBeLessThanOrEqual(repeated);
    expect(await last.end("SIGTERM")).toBe(0);
  },
);
