import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/db/database.ts";
import { faultsIn } from "../faults/activity-failures.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const HEARTBEAT_MS = 4_000;
/** The key of the advisory lock that holds up retries. */
const LOCK = 1;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    ...WOKEN,
    RETRY_INITIAL_DELAY: "1s",
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

/**
 * Makes the first statement of each activity of a run wait for an advisory lock once the run knows what it is to retry: the next
 * activity then is the retry.
 */
const HOLD_UP = `
  create function hold_up() returns trigger language plpgsql as $$ begin
    if exists (select from runs r join run_groups g on g.run_id = r.id where r.workflow_id = new.workflow_id) then
      perform pg_advisory_xact_lock_shared(${LOCK});
    end if;
    return new;
  end $$;
  create trigger hold_up before insert on runs for each row execute function hold_up()`;

test("retries whose first statement waits for longer than the heartbeat timeout do not fail for it", async () => {
  const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
  await service.register(`${receiver.url}/`);
  await service.db.raw(HOLD_UP);
  // A history tells of an activity's failed attempts only once it has ended.
  const retrying = async () => {
    const all = await Promise.all((await runs()).map((handle) => handle.describe()));
    return all
      .flatMap(({ raw }) => raw.pendingActivities ?? [])
      .filter(({ activityType }) => activityType?.name === "retryDeliveries");
  };
  const lock = await service.db.transaction();
  let eventId: string;
  try {
    await lock.raw("select pg_advisory_xact_lock(?)", [LOCK]);
    ({ eventId } = await service.publish());
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
  for (const handle of await runs()) expect(faultsIn(await handle.fetchHistory())).toEqual([]);
});
