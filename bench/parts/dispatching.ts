import { setTimeout as wait } from "node:timers/promises";
import { rows } from "../../src/db/database.ts";
import type { Receivers } from "./receivers.ts";
import { clearDeliveries, seedPending } from "./seeding.ts";
import type { Stage } from "./stage.ts";

/** The minute of the schedule: a queue that outlasts one run is taken on by the next. */
const INTERVAL_MS = 60_000;
const LOOK_MS = 100;
/** Nothing received for this long means that something is broken. */
const PATIENCE_MS = 150_000;
const WARM_UP = 2_000;

/** What is to be dispatched, and which part of it is waited for. */
export interface Expected {
  what: string;
  /** Requests that the waited-for deliveries make, one each. */
  requests: number;
  receivers: Receivers;
  /** Only the first so many receivers are waited for; all of them when left out. */
  hosts?: number;
  /** The webhooks that are waited for; all of them when left out. */
  webhooks?: readonly bigint[];
  /** Failed attempts are looked for in the whole log, unless this is false. */
  tellsFailures?: boolean;
}

/**
 * Triggers the schedule, and again each minute as the schedule would, until everything expected is recorded.
 *
 * While deliveries go on, only the receivers' process is asked how many there were; the database is first looked at
 * when all have been received, and what it says is when the last was recorded.
 *
 * @returns seconds from the first trigger to the last record
 * @throws Error when nothing moves for 150 s
 */
export async function dispatch(stage: Stage, expected: Expected): Promise<number> {
  const { receivers, hosts, requests, what } = expected;
  const before = await receivers.count(hosts);
  const started = Date.now();
  await stage.trigger();
  let triggered = started;
  let received = 0;
  let moved = started;
  while (received < requests) {
    await wait(LOOK_MS, undefined, { signal: stage.bench.stopping });
    const now = Date.now();
    const count = (await receivers.count(hosts)) - before;
    if (count > received) moved = now;
    received = count;
    stage.bench.show.count(what, received, requests);
    if (now - moved > PATIENCE_MS) throw new Error(`${what}: ${received} of ${requests} came, then no more`);
    if (now - triggered >= INTERVAL_MS) {
      triggered += INTERVAL_MS;
      await stage.trigger();
    }
  }
  const ended = await lastRecorded(stage, expected.webhooks);
  if (expected.tellsFailures ?? true) await tellOfFailures(stage, expected);
  return (ended - started) / 1_000;
}

/** A delivery that had to wait for its retry makes a figure what it is; whoever reads it should know. */
async function tellOfFailures(stage: Stage, { webhooks, what }: Expected): Promise<void> {
  const failures = await rows<{ reason: string; n: number }>(
    stage.db,
    `select coalesce(a.error, 'status ' || a.status) as reason, count(*)::int as n
      from all_attempts a join all_deliveries d on d.id = a.delivery_id
      where (a.error is not null or a.status >= 300) ${webhooks ? "and d.webhook_id = any(:webhooks::bigint[])" : ""}
      group by 1 order by 2 desc limit 5`,
    { webhooks },
  );
  for (const { reason, n } of failures) stage.bench.show.step(`${what}: ${n} attempts failed: ${reason}`);
}

/**
 * When the last delivery was recorded, in milliseconds since 1970, once all are.
 *
 * @param webhooks those that are waited for; all of them when left out
 * @param patienceMs how long that may take. Defaults to 150,000
 */
export async function lastRecorded(
  stage: Stage,
  webhooks: readonly bigint[] | undefined,
  patienceMs = PATIENCE_MS,
): Promise<number> {
  for (const until = Date.now() + patienceMs; Date.now() < until; ) {
    await wait(LOOK_MS, undefined, { signal: stage.bench.stopping });
    const own = webhooks ? "where webhook_id = any(:webhooks::bigint[])" : "";
    const [found] = await rows<{ open: boolean; last: number }>(
      stage.db,
      `select exists (select from queue ${own}) or exists (select from retries ${own}) as open,
          (extract(epoch from (select max(finished) from deliveries ${own})) * 1000)::float8 as last`,
      { webhooks },
    );
    if (found?.open === false) return found.last;
  }
  throw new Error("not everything that was received was recorded");
}

/** Sends some deliveries, so that what is measured then is a service that has been running, not one being compiled. */
export async function warmUp(stage: Stage, receivers: Receivers, webhooks: readonly bigint[]): Promise<void> {
  const events = Math.ceil(WARM_UP / webhooks.length);
  await seedPending(stage, { events, webhooks });
  await dispatch(stage, { what: "warming up", requests: events * webhooks.length, receivers });
  await untilRunsClosed(stage);
  await clearDeliveries(stage.db);
}

/** Resolves when no run is open. */
export async function untilRunsClosed(stage: Stage): Promise<void> {
  for (const until = Date.now() + PATIENCE_MS; Date.now() < until; await wait(LOOK_MS)) {
    const open = await rows(stage.db, "select 1 from runs where closed is null limit 1");
    if (open.length === 0) return;
  }
  throw new Error("a run did not end");
}
