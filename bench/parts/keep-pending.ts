import { setTimeout as wait } from "node:timers/promises";
import { rows } from "../../src/lib/pg/database.ts";
import { triggerFor } from "./dispatching.ts";
import { insertPending } from "./seeding.ts";
import type { Stage } from "./stage.ts";

const POLL_MS = 100;
/** The part of the minimum below which the measurement fails, because the queue is refilled too slowly. */
const LEAST_PART = 0.25;

/** Webhooks whose queue to refill. */
export interface Kept {
  webhooks: readonly bigint[];
  /** The number of requests so far of each webhook, in their order. */
  counts(): Promise<readonly number[]>;
  /** A webhook with fewer pending deliveries gets half as many more. */
  minEach: number;
}

/** A queue that is refilled until disposed. */
export interface Refilling extends AsyncDisposable {
  /** Never resolves; rejects if refilling fails or is too slow. */
  failed: Promise<never>;
  /** Dispatches for a time. Returns the requests per second of each webhook. */
  measureRates(seconds: number): Promise<number[]>;
}

/**
 * Fills the queue of some webhooks, and refills it from then on, so that none of them ever waits for an event. Counts what is
 * pending by what the receivers got: a count in the database would read the dead rows too, and take processor time from
 * what is measured.
 */
export async function keepPending(stage: Stage, { webhooks, counts, minEach }: Kept): Promise<Refilling> {
  const stopping = new AbortController();
  const before = await counts();
  const queued = webhooks.map(() => 0);
  /** Queues deliveries of the webhooks that need some. Returns whether there were any, and the least pending of a webhook. */
  const refill = async () => {
    const now = await counts();
    const pending = queued.map((all, n) => all - ((now[n] as number) - (before[n] as number)));
    const needy = webhooks.filter((_, n) => (pending[n] as number) < minEach);
    const events = Math.ceil(minEach / 2);
    if (needy.length > 0) await insertPending(stage, { events, webhooks: needy });
    pending.forEach((each, n) => {
      if (each < minEach) queued[n] = (queued[n] as number) + events;
    });
    return { wasFull: needy.length === 0, least: pending.reduce((one, other) => Math.min(one, other)) };
  };
  while (!(await refill()).wasFull);
  const keepOn = async () => {
    while (!stopping.signal.aborted) {
      const { wasFull, least } = await refill();
      if (least < minEach * LEAST_PART) throw new Error(`the queue of a webhook fell to ${least} deliveries`);
      if (wasFull) await wait(POLL_MS);
    }
  };
  const done = keepOn();
  const failed = done.then(() => new Promise<never>(() => {}));
  failed.catch(() => {});
  return {
    failed,
    async measureRates(seconds) {
      const started = performance.now();
      const first = await counts();
      await Promise.race([triggerFor(stage, seconds), failed]);
      const last = await counts();
      const took = (performance.now() - started) / 1_000;
      return last.map((count, n) => (count - (first[n] as number)) / took);
    },
    async [Symbol.asyncDispose]() {
      stopping.abort();
      await done.catch(() => {});
    },
  };
}

/** @throws Error if a webhook has no pending delivery that no worker has claimed */
export async function assertPending({ db }: Stage, webhooks: readonly bigint[]): Promise<void> {
  const drained = await rows(
    db,
    `select from unnest(:webhooks::bigint[]) w
      where not exists (select from queue where webhook_id = w and claimed_by is null)`,
    { webhooks },
  );
  if (drained.length > 0) throw new Error(`${drained.length} webhooks had no pending deliveries left`);
}
