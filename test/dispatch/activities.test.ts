import { randomUUID } from "node:crypto";
import { MockActivityEnvironment } from "@temporalio/testing";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { deletions } from "../../src/app/delivery.ts";
import { readConfig } from "../../src/config/config.ts";
import { createActivities } from "../../src/dispatch/worker/activities.ts";
import { createKeepAlive } from "../../src/dispatch/worker/keep-alive.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { createReplayActivities } from "../../src/replays/run-replay.ts";
import { createDeleteExpired } from "../../src/retention/delete-expired.ts";
import { faulty, startEngine } from "../delivery/engine-parts.ts";

const HEARTBEAT_TIMEOUT_MS = 4_000;
let isAway = false;
const atNext = () => {
  const fault = isAway ? "refused" : undefined;
  isAway = false;
  return fault;
};
const parts = await startEngine({}, { wrap: (db) => faulty(db, atNext) });
afterEach(() => void vi.useRealTimers());
afterAll(() => parts.end());

const { engine } = parts;
const { dispatch } = readConfig({});
const run = { firstRunId: randomUUID() };
const alive = createKeepAlive(engine, HEARTBEAT_TIMEOUT_MS);
const work = createActivities(engine, dispatch, alive);
const replays = createReplayActivities(engine, dispatch, alive.heartbeats);
/** Every activity, with an input for which there is nothing to do. */
const ACTIVITIES: Record<string, () => Promise<unknown>> = {
  deliverPending: () => work.deliverPending({ ...run, lingers: false, forMs: 1_000 }),
  listUndelivered: () => work.listUndelivered(run),
  retryDeliveries: () => work.retryDeliveries({ ...run, group: 1 }),
  closeRun: () => work.closeRun(run),
  replay: () => replays.replay({ replayId: randomUUID() }),
  pauseReplay: () => replays.pauseReplay({ replayId: randomUUID() }),
  deleteExpired: createDeleteExpired(engine, dispatch, deletions(dispatch), alive.heartbeats),
};

test.each(Object.entries(ACTIVITIES))(
  "%s sends heartbeats while its first statement waits for the database",
  async (_, activity) => {
    const environment = new MockActivityEnvironment();
    let heartbeats = 0;
    environment.on("heartbeat", () => {
      heartbeats += 1;
    });
    const lock = await parts.db.transaction();
    let running: Promise<unknown>;
    try {
      await lock.raw("lock table runs, replays, webhooks");
      vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
      running = environment.run(activity);
      const waiting =
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
      await expect.poll(() => rows(parts.db, waiting)).not.toEqual([]);
      for (let timeouts = 1; timeouts <= 3; timeouts += 1) {
        vi.advanceTimersByTime(HEARTBEAT_TIMEOUT_MS);
        expect(heartbeats).toBeGreaterThan(2 * timeouts);
      }
    } finally {
      await lock.rollback();
    }
    await running;
  },
);

test.each(Object.entries(ACTIVITIES))(
  "%s does not fail when the database is away for its first statement",
  async (_, activity) => {
    isAway = true;
    await new MockActivityEnvironment().run(activity);
    expect(isAway).toBe(false);
  },
);

test.each([
  ["a young run", 5_000, "by Temporal"],
  ["a young run, whose pumps may still fail deliveries that are due earlier", 300_000, "in the workflow"],
  ["an old run", 300_000, "by Temporal"],
  ["an old run, for long", 3_600_000, "in the workflow"],
])("a group of %s that is due in %i ms waits %s", async (age, delayMs, where) => {
  const result = { sent: 1, delivered: 0, retrying: 1, failed: 0, lastFailure: null, complete: true };
  const retries = { run: async () => ({ ...result, status: { open: 1, delayMs } }) };
  const waiting = { ...engine, retries } as unknown as typeof engine;
  const key = { firstRunId: randomUUID() };
  /** Works as a process that does not know the run yet. */
  const retry = () => {
    const { retryDeliveries } = createActivities(waiting, dispatch, createKeepAlive(engine, 4_000));
    return new MockActivityEnvironment().run(() => retryDeliveries({ ...key, group: 1 }));
  };
  await expect(retry()).rejects.toMatchObject({ nextRetryDelay: delayMs, details: [{ delayMs }] });
  const started = parts.db.raw("now() - interval '10 minutes'");
  if (age.startsWith("an old"))
    await parts.db("runs").where({ first_run_id: key.firstRunId }).update({ started });
  await expect(retry()).rejects.toMatchObject({ nonRetryable: where === "in the workflow" });
});
