import { count, rows } from "../../src/lib/pg/database.ts";
import type { Bench } from "../parts/bench.ts";
import { dispatch, triggerUntil, warmUp } from "../parts/dispatching.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HEALTHY = 100;
/** Events for the healthy webhooks. */
const EVENTS = 1_000;
const DEAD_HOSTS = 100;
const DEAD_PER_HOST = 10;
const DEAD = DEAD_HOSTS * DEAD_PER_HOST;
/** Deliveries to each dead webhook that fail and open its breaker. */
const FAILURES = 10;
const OPENING_TIMEOUT_MS = 300_000;
const RECOVERY_TIMEOUT_MS = 1_800_000;

/** Dead webhooks with circuit breakers: their cost for healthy ones, and the time until what waited is delivered. */
export const breakers: Scenario = {
  name: "breakers",
  what: `${HEALTHY} healthy webhooks beside ${DEAD} dead ones with open circuit breakers (count: deliveries each), which then recover`,
  count: { full: 1_000, small: 50 },
  targets: { "": { atMost: 1.05 }, recovered: { atMost: 600 } },
  comparisons: [],
  async measure(bench, each) {
    const alone = await measureHealthy(bench);
    await using receivers = await startReceivers(bench, [
      ...Array.from({ length: HEALTHY }, (): Behaviour => ({ status: 200 })),
      ...Array.from({ length: DEAD_HOSTS }, (): Behaviour => ({ status: 503 })),
    ]);
    await using stage = await openStage(bench);
    const [healthyUrls, deadUrls] = [receivers.urls.slice(0, HEALTHY), receivers.urls.slice(HEALTHY)];
    const healthy = await seedWebhooks(stage.db, stage.secrets, healthyUrls);
    await warmUp(stage, receivers, healthy);
    const dead = await seedWebhooks(
      stage.db,
      stage.secrets,
      deadUrls.flatMap((url) => Array.from({ length: DEAD_PER_HOST }, (_, n) => `${url}/${n}`)),
    );
    await openBreakers(stage, dead);
    await seedPending(stage, { events: each, webhooks: dead });
    const beside = await deliverToHealthy(stage, receivers, healthy);
    const recovered = await recover(stage, receivers, dead);
    return [
      { detail: "", unit: "times the time alone", value: beside / alone },
      { detail: "healthy alone", unit: "s", value: alone },
      { detail: "healthy beside dead", unit: "s", value: beside },
      { detail: "recovered", unit: "s", value: recovered },
    ];
  },
};

async function measureHealthy(bench: Bench): Promise<number> {
  await using receivers = await startReceivers(
    bench,
    Array.from({ length: HEALTHY }, (): Behaviour => ({ status: 200 })),
  );
  await using stage = await openStage(bench);
  const healthy = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
  await warmUp(stage, receivers, healthy);
  return await deliverToHealthy(stage, receivers, healthy);
}

/** Seconds from the trigger until all deliveries to the healthy webhooks are recorded. */
async function deliverToHealthy(
  stage: Stage,
  receivers: Receivers,
  healthy: readonly bigint[],
): Promise<number> {
  await seedPending(stage, { events: EVENTS, webhooks: healthy });
  return await dispatch(stage, {
    what: "delivering to the healthy",
    requests: EVENTS * healthy.length,
    receivers,
    hosts: HEALTHY,
    webhooks: healthy,
    tellsFailures: false,
  });
}

/** Gives webhooks breakers, and resolves when all are open. */
async function openBreakers(stage: Stage, webhooks: readonly bigint[]): Promise<void> {
  await count(
    stage.db,
    `insert into webhook_breakers (webhook_id, max_failures, failing_s, probe_s, disable_s, disable_on_gone, resend)
      select id, ${FAILURES}, 1, 60, 432000, false, true from unnest(:webhooks::bigint[]) id`,
    { webhooks },
  );
  await seedPending(stage, { events: FAILURES, webhooks });
  const opened = async () => {
    const [found] = await rows<{ n: number }>(
      stage.db,
      "select count(*)::int as n from webhook_breakers where state = 'open'",
    );
    stage.bench.show.count("breakers open", found?.n ?? 0, webhooks.length);
    return found?.n === webhooks.length;
  };
  await untilTriggered(stage, opened, OPENING_TIMEOUT_MS);
}

/** Makes dead receivers answer. Returns the seconds until everything that waited for them was delivered. */
async function recover(stage: Stage, receivers: Receivers, webhooks: readonly bigint[]): Promise<number> {
  await receivers.change(HEALTHY, { status: 200 });
  const started = Date.now();
  const settled = async () => {
    const [found] = await rows<{ open: number; failed: number }>(
      stage.db,
      `select (select count(*)::int from queue) + (select count(*)::int from retries) as open,
          (select count(*)::int from deliveries where outcome = 'failed') as failed`,
    );
    const { open = 0, failed = 0 } = found ?? {};
    stage.bench.show.count("recovered webhooks' deliveries", webhooks.length, open + webhooks.length);
    return open === 0 && failed === 0;
  };
  await untilTriggered(stage, settled, RECOVERY_TIMEOUT_MS);
  return (Date.now() - started) / 1_000;
}

/** `triggerUntil` with a timeout. @throws Error if the condition does not hold in time */
async function untilTriggered(stage: Stage, holds: () => Promise<boolean>, timeoutMs: number): Promise<void> {
  const until = Date.now() + timeoutMs;
  await triggerUntil(stage, async () => {
    const held = await holds();
    if (!held && Date.now() > until) throw new Error(`not reached within ${timeoutMs / 1_000} s`);
    return held;
  });
}
