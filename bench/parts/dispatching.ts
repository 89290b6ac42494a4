import { setTimeout as wait } from "node:timers/promises";
import { rows } from "../../src/lib/pg/database.ts";
import type { Receivers } from "./receivers.ts";
import { clearDeliveries, seedPending } from "./seeding.ts";
import type { Stage } from "./stage.ts";

/** The interval of the schedule, in milliseconds. The next run continues with a queue that outlasts one. */
const INTERVAL_MS = 60_000;
const POLL_MS = 100;
const TRIGGER_POLL_MS = 500;
/** The time without a received request after which the measurement fails, in milliseconds. */
const STALL_TIMEOUT_MS = 150_000;
/** The number of deliveries from which the service runs at its full rate. */
const WARM_UP = 15_000;

/** The deliveries to dispatch, and which of them to wait for. */
export interface Expected {
  what: string;
  /** The number of requests of the awaited deliveries, one each. */
  requests: number;
  receivers: Receivers;
  /** The number of receivers to wait for, from the first. Defaults to all. */
  hosts?: number;
  /** The number of requests at these receivers before the deliveries were queued. Defaults to that at the call. */
  before?: number;
  /** The webhooks to wait for. Defaults to all. */
  webhooks?: readonly bigint[];
  /** Whether to report failed attempts of the whole log. Defaults to true. */
  tellsFailures?: boolean;
}

/**
 * Triggers the schedule now and every minute, as the schedule does, until all expected deliveries are recorded.
 *
 * Polls only the receivers' process while deliveries are in progress. Reads the database when all are received, to
 * get the time of the last record.
 *
 * @returns seconds from the first trigger to the last record
 * @throws Error if nothing is received for 150 s
 */
export async function dispatch(stage: Stage, expected: Expected): Promise<number> {
  const { receivers, hosts, requests, what } = expected;
  const before = expected.before ?? (await receivers.count(hosts));
  const started = Date.now();
  await stage.trigger();
  let triggered = started;
  let received = 0;
  let moved = started;
  while (received < requests) {
    await wait(POLL_MS, undefined, { signal: stage.bench.stopping });
    const now = Date.now();
    const count = (await receivers.count(hosts)) - before;
    if (count > received) moved = now;
    received = count;
    stage.bench.show.count(what, received, requests);
    if (now - moved > STALL_TIMEOUT_MS)
      throw new Error(`${what}: ${received} of ${requests} came, then no more`);
    if (now - triggered >= INTERVAL_MS) {
      triggered += INTERVAL_MS;
      await stage.trigger();
    }
  }
  const ended = await lastRecorded(stage, expected.webhooks);
  if (expected.tellsFailures ?? true) await tellOfFailures(stage, expected);
  return (ended - started) / 1_000;
}

/** Reports failed attempts, because deliveries that waited for a retry distort a figure. */
export async function tellOfFailures(
  stage: Stage,
  { webhooks, what }: Pick<Expected, "webhooks" | "what">,
): Promise<void> {
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
 * The time of the last record, in milliseconds since 1970, when all are recorded.
 *
 * @param webhooks the webhooks to wait for. Defaults to all
 * @param patienceMs the timeout, in milliseconds. Defaults to 150,000
 */
export async function lastRecorded(
  stage: Stage,
  webhooks: readonly bigint[] | undefined,
  patienceMs = STALL_TIMEOUT_MS,
): Promise<number> {
  for (const until = Date.now() + patienceMs; Date.now() < until; ) {
    await wait(POLL_MS, undefined, { signal: stage.bench.stopping });
    const own = webhooks ? "where webhook_id = any(:webhooks::bigint[])" : "";
    const [open] = await rows(
      stage.db,
      `(select 1 from queue ${own} limit 1) union all (select 1 from retries ${own} limit 1) limit 1`,
      { webhooks },
    );
    if (open) continue;
    // Not with each poll: it reads the whole log.
    const [found] = await rows<{ last: number }>(
      stage.db,
      `select (extract(epoch from max(finished)) * 1000)::float8 as last from deliveries ${own}`,
      { webhooks },
    );
    return found?.last ?? Date.now();
  }
  throw new Error("not everything that was received was recorded");
}

/** Triggers the schedule now and every minute, as the schedule does, until a condition holds. */
export async function triggerUntil(stage: Stage, holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let triggered = 0; !(await holds()); ) {
    if (Date.now() - triggered >= INTERVAL_MS) {
      triggered = Date.now();
      await stage.trigger();
    }
    await wait(TRIGGER_POLL_MS, undefined, { signal: stage.bench.stopping });
  }
}

/** `triggerUntil` for a time, which is shown. */
export async function triggerFor(stage: Stage, seconds: number): Promise<void> {
  const until = Date.now() + seconds * 1_000;
  await triggerUntil(stage, () => {
    const left = Math.max(0, Math.ceil((until - Date.now()) / 1_000));
    stage.bench.show.count("seconds", seconds - left, seconds);
    return Date.now() >= until;
  });
}

/** Sends some deliveries, so that the measured service is warm (JIT-compiled). */
export async function warmUp(stage: Stage, receivers: Receivers, webhooks: readonly bigint[]): Promise<void> {
  const events = Math.ceil(WARM_UP / webhooks.length);
  await seedPending(stage, { events, webhooks });
  await dispatch(stage, { what: "warming up", requests: events * webhooks.length, receivers });
  await untilRunsClosed(stage);
  await clearDeliveries(stage.db);
}

/** Resolves when no run is open. */
export async function untilRunsClosed(stage: Stage): Promise<void> {
  for (const until = Date.now() + STALL_TIMEOUT_MS; Date.now() < until; await wait(POLL_MS)) {
    const open = await rows(stage.db, "select 1 from runs where closed is null limit 1");
    if (open.length === 0) return;
  }
  throw new Error("a run did not end");
}
