import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { type OwnCluster, startOwnCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** A multiple of the number of kills. */
const EVENTS = 10_080;
const WEBHOOKS = 10;
const RECEIVERS = 5;
const ROUNDS = 3;
/** What a receiver takes for an answer, so that there is something in flight to be killed. */
const ANSWER_MS = 20;
/** What one worker may have sent and not recorded, rounded up; so much may a kill repeat. */
const REPEATS_A_KILL = 200;
/** A request in doubt is hardly older than this when its worker is killed. */
const IN_DOUBT_MS = 3_000;

const VICTIMS = ["worker", "api", "postgres", "temporal"] as const;
type Victim = (typeof VICTIMS)[number];
const FAULTS: Victim[] = Array.from({ length: ROUNDS }, () => VICTIMS).flat();

let cluster: OwnCluster;
/** Those that run, the one that has run longest first. */
const workers: ServiceProcess[] = [];
const ledgers: Ledger[] = [];

beforeAll(async () => {
  cluster = await startOwnCluster();
  workers.push(...(await Promise.all([cluster.startWorker(), cluster.startWorker()])));
  for (let n = 0; n < RECEIVERS; n += 1) ledgers.push(await cluster.ledger(ANSWER_MS, answer));
  for (let n = 0; n < WEBHOOKS; n += 1) await cluster.register(`${ledgers[n % RECEIVERS]?.url}/${n}`);
});
afterAll(() => cluster?.end());

/** Eight webhooks are well; of the two others one recovers by the second request and one never does. */
function answer(path: string, nth: number, deliveryId: string): number {
  if (path === "/9" && isHard(deliveryId)) return 500;
  return path === "/8" && isHard(deliveryId) && nth === 1 ? 503 : 200;
}

/** One in sixteen, since a webhook that fails gets few requests at a time. */
function isHard(deliveryId: string): boolean {
  return deliveryId.endsWith("0");
}

const requests = () => ledgers.reduce((sum, { entries }) => sum + entries.length, 0);

/** Kills one, and has it back. */
async function kill(victim: Victim): Promise<void> {
  if (victim === "worker") {
    await workers.shift()?.end("SIGKILL");
    workers.push(await cluster.startWorker());
  } else if (victim === "api") {
    await cluster.api.end("SIGKILL");
    await cluster.startApi();
  } else {
    cluster[victim].kill();
    await cluster[victim].restart();
  }
}

/** Publishes a share of the events and kills amid it: the API amid the publishing, all else amid the deliveries. */
async function killAmid(victim: Victim, events: number): Promise<number> {
  const { publisher } = cluster;
  const [publishedBefore, requestsBefore] = [publisher.published(), requests()];
  const publishing = publisher.publish(events);
  const amid = () =>
    victim === "api"
      ? publisher.published() - publishedBefore >= events / 3
      : requests() - requestsBefore >= (events * WEBHOOKS) / 3;
  await vi.waitUntil(amid, { timeout: 200_000, interval: 2 });
  const at = Date.now();
  await kill(victim);
  await publishing;
  return at;
}

// full-storm.test.ts kills the same in every run of the tests.
test.runIf(FULL_SIZE)(
  "a storm of kills loses nothing: every delivery ends, with at most four attempts, and few repeats a kill",
  async () => {
    const began = Date.now();
    const faults: { victim: Victim; at: number }[] = [];
    for (const victim of FAULTS) {
      faults.push({ victim, at: await killAmid(victim, EVENTS / FAULTS.length) });
    }
    await untilAllFinal(cluster.db);
    const seconds = (Date.now() - began) / 1_000;

    expect(await cluster.db("events").count()).toEqual([{ count: BigInt(EVENTS) }]);
    const last = await rows<{ id: string }>(
      cluster.db,
      "select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id where w.url like '%/9'",
    );
    const failed = last.filter(({ id }) => isHard(id)).length;
    expect(failed).toBeGreaterThan(0);
    const byState = Object.groupBy(await outcomes(cluster.db), ({ state }) => state);
    const sums = Object.entries(byState).map(([state, some]) => [
      state,
      some?.reduce((sum, { n }) => sum + n, 0),
    ]);
    expect(Object.fromEntries(sums)).toEqual({ delivered: EVENTS * WEBHOOKS - failed, failed });
    expect(await cluster.db("all_deliveries").where({ reason: "interrupted" })).toEqual([]);
    await checkAttempts(cluster.db);

    const { recorded, repeats, invented } = await reconcile(cluster.db, ledgers);
    expect(invented).toBe(0);
    const counted = faults.map((fault) => ({ ...fault, repeats: 0 }));
    for (const { at } of repeats) {
      const culprit =
        counted.find((fault) => fault.victim === "worker" && inDoubt(at, fault.at)) ??
        counted.findLast((fault) => fault.at <= at);
      if (culprit) culprit.repeats += 1;
    }
    for (const { victim, at, repeats: n } of counted) {
      tell(`${((at - began) / 1_000).toFixed(1)} s: kill -9 of ${victim}: ${n} requests repeated`);
    }
    tell(
      `${EVENTS * WEBHOOKS} deliveries, ${FAULTS.length} kills, ${seconds.toFixed(0)} s: ${recorded} attempts recorded, ` +
        `${requests()} requests received, ${cluster.publisher.repeated()} publications repeated`,
    );
    expect(counted.filter((fault) => fault.repeats > REPEATS_A_KILL)).toEqual([]);
    expect(repeats.length).toBe(counted.reduce((sum, fault) => sum + fault.repeats, 0));
  },
);

/** Whether a request may have been under way when a worker was killed. */
function inDoubt(requestAt: number, killedAt: number): boolean {
  return requestAt >= killedAt - IN_DOUBT_MS && requestAt <= killedAt + 500;
}
