import { randomUUID } from "node:crypto";
import { MockActivityEnvironment } from "@temporalio/testing";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { createKeepAlive, type RunWork } from "../../src/dispatch/worker/keep-alive.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { observed, startEngine } from "../delivery/engine-parts.ts";

const HEARTBEAT_TIMEOUT_MS = 4_000;
const HOUR_MS = 3_600_000;
const parts = await startEngine();
afterEach(() => void vi.useRealTimers());
afterAll(() => parts.end());

test("activities of a run renew its lease and add to its totals, by statements only where something is new", async () => {
  const statements: string[] = [];
  const db = observed(parts.db, (sql) => void statements.push(sql));
  const alive = createKeepAlive({ ...parts.engine, db }, HEARTBEAT_TIMEOUT_MS);
  const key = { firstRunId: randomUUID() };
  const activity = <T>(work: (own: RunWork) => Promise<T>): Promise<T> =>
    new MockActivityEnvironment().run(() => alive.onRun(key, work));
  const account = () =>
    rows(
      parts.db,
      `select sent, delivered, failed, lease_until > now() + interval '59 minutes' as "isLong"
        from runs where first_run_id = :firstRunId`,
      key,
    );
  const keepForAnHour = async (work: RunWork) => {
    work.keepMs = HOUR_MS;
  };
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] });
  await activity(async ({ counts }) => {
    Object.assign(counts, { sent: 2, delivered: 1 });
    vi.advanceTimersByTime(HEARTBEAT_TIMEOUT_MS);
    await expect.poll(account).toEqual([{ sent: 2, delivered: 1, failed: 0, isLong: false }]);
    Object.assign(counts, { sent: 3, failed: 1 });
  });
  const all = { sent: 3, delivered: 1, failed: 1 };
  expect(await account()).toEqual([{ ...all, isLong: false }]);
  await activity(keepForAnHour);
  expect(await account()).toEqual([{ ...all, isLong: true }]);
  statements.length = 0;
  await activity(keepForAnHour);
  expect(statements).toEqual([]);
});
