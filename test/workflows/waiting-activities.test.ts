import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/db/database.ts";
import { faultsIn } from "../faults/activity-failures.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

/** Long enough to take the lock before the retry is due, also where the history arrives seconds late. */
const RETRY_MS = 12_000;
const HEARTBEAT_MS = 2_000;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    ...WOKEN,
    RETRY_INITIAL_DELAY: `${RETRY_MS}ms`,
    HEARTBEAT_TIMEOUT: `${HEARTBEAT_MS}ms`,
  });
});
afterAll(() => service.stop());

/** The dispatch runs so far. */
async function runs() {
  const known = await rows<{ workflow: string; run: string }>(
    service.db,
    "select workflow_id as workflow, first_run_id as run from runs",
  );
  return known.map(({ workflow, run }) => service.temporal.workflow.getHandle(workflow, run));
}

/** Whether a run knows what it is to retry, and waits until that is due. */
async function hasRetriesAhead(): Promise<boolean> {
  for (const handle of await runs()) {
    const { events } = await handle.fetchHistory();
    for (const { activityTaskCompletedEventAttributes: completed } of events ?? []) {
      const [result] = completed?.result?.payloads ?? [];
      if (result && JSON.parse(Buffer.from(result.data ?? "").toString())?.groups?.length > 0) return true;
    }
  }
  return false;
}

test("retries whose first statement waits for longer than the heartbeat timeout do not fail for it", async () => {
  const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  await vi.waitUntil(hasRetriesAhead, { timeout: 20_000, interval: 50 });
  const handles = await runs();
  // A history tells of an activity's failed attempts only once it has ended.
  const retrying = async () => {
    const all = await Promise.all(handles.map((handle) => handle.describe()));
    return all
      .flatMap(({ raw }) => raw.pendingActivities ?? [])
      .filter(({ activityType }) => activityType?.name === "retryDeliveries");
  };
  const lock = await service.db.transaction();
  try {
    // The table of the statement with which every activity of a run begins.
    await lock.raw("lock table runs in access exclusive mode");
    const hasBegun = async () => (await retrying()).some(({ lastStartedTime }) => lastStartedTime);
    await vi.waitUntil(hasBegun, { timeout: 20_000, interval: 50 });
    await wait(2 * HEARTBEAT_MS);
    expect(receiver.received).toHaveLength(1);
  } finally {
    await lock.rollback();
  }
  const [delivery] = await service.untilFinal(eventId);
  expect(delivery?.state).toBe(DeliveryState.DELIVERED);
  expect(receiver.received).toHaveLength(2);
  await expect.poll(retrying).toEqual([]);
  for (const handle of handles) expect(faultsIn(await handle.fetchHistory())).toEqual([]);
});
