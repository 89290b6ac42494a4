import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService, ReplayState } from "../../gen/webhook/v1/replay_pb.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const PATIENCE = { timeout: 60_000, interval: 100 };
/** The events that are replayed are OrderDispatched, those of the backfill are not. */
const DOCUMENT_CREATED = 2;
/** Each fails four times, for two webhooks of one host. */
const EVENTS = 20;

let service: TestService;
let replays: Client<typeof ReplayService>;
/** Events that a webhook of the last test misses: a backfill waits until the newest ones are ten seconds old. */
let missed: Awaited<ReturnType<typeof publishMissed>>;
beforeAll(async () => {
  // Without DISPATCH_ON_PUBLISH: a run that ends between two steps would wait for the next schedule.
  service = await startTestService({ DISPATCH_INTERVAL: "1s", RETRY_INITIAL_DELAY: "100ms" });
  replays = createClient(ReplayService, service.transport);
  missed = await publishMissed();
});
afterAll(() => service.stop());

async function publishMissed() {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/first`, { process: DOCUMENT_CREATED });
  const from = timestampFromDate(new Date());
  const events = await Promise.all(Array.from({ length: 50 }, () => service.publishDocument()));
  await receiver.until((received) => received.length === events.length);
  return { receiver, events, from, to: timestampFromDate(new Date()) };
}

async function ended(replayId: string, state: ReplayState = ReplayState.COMPLETED) {
  return vi.waitFor(async () => {
    const { replay } = await replays.getReplay({ replayId });
    expect(replay?.state).toBe(state);
    return replay;
  }, PATIENCE);
}

const states = async (webhookId: bigint) => {
  const { deliveries } = await service.deliveries.listDeliveries({ webhookId, pageSize: 1_000 });
  return deliveries.map(({ state }) => state);
};

test("everything that failed is replayed after an outage, of all webhooks, and only that", async () => {
  let status = 500;
  const moody = await service.receiver(() => status);
  const well = await service.receiver();
  const broken = [await service.register(`${moody.url}/a`), await service.register(`${moody.url}/b`)];
  const healthy = await service.register(`${well.url}/well`);
  const events = await Promise.all(Array.from({ length: EVENTS }, (_, n) => service.publish(BigInt(n + 1))));
  for (const { eventId } of events) await service.untilFinal(eventId, 60_000);
  expect(await states(broken[0] as bigint)).toEqual(Array(EVENTS).fill(DeliveryState.FAILED));

  status = 200;
  const before = moody.received.length;
  const { replay } = await replays.startReplay({ what: { case: "resend", value: {} } });
  const done = await ended(replay?.id as string);
  expect([done?.queued, done?.skipped, done?.progress, done?.webhooks]).toEqual([
    2n * BigInt(EVENTS),
    0n,
    1,
    2,
  ]);
  await vi.waitFor(async () => {
    for (const webhookId of broken)
      expect(await states(webhookId)).toEqual(Array(EVENTS).fill(DeliveryState.DELIVERED));
  }, PATIENCE);
  expect(moody.received.length - before).toBe(2 * EVENTS);
  expect(well.received).toHaveLength(EVENTS);
  expect(await states(healthy)).toEqual(Array(EVENTS).fill(DeliveryState.DELIVERED));

  // Visible in Temporal, without a value of any event.
  const outcome = `completed: ${2 * EVENTS} deliveries queued, 0 skipped`;
  const stored = await service.db("replays").first("workflow_id");
  const handle = service.temporal.workflow.getHandle(stored?.workflow_id as string);
  expect(await handle.result()).toEqual({ summary: outcome });
  expect((await handle.describe()).memo?.outcome).toBe(outcome);
});

/** Starts a replay of one delivered delivery, whose webhook is paused. */
async function startWaiting() {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/held`);
  const { eventId } = await service.publish(1n);
  await service.untilFinal(eventId);
  await service.webhooks.pauseWebhook({ webhookId });
  const delivered = { webhookId, states: [DeliveryState.DELIVERED] };
  const { replay } = await replays.startReplay({ what: { case: "resend", value: delivered } });
  const replayId = replay?.id as string;
  return { receiver, webhookId, replayId };
}

/** Resumes a webhook, at which its replay looks now, and not only after the seconds for which it leaves paused ones alone. */
async function resumeWebhook(webhookId: bigint) {
  await service.webhooks.resumeWebhook({ webhookId });
  await service
    .db("replay_webhooks")
    .where({ webhook_id: webhookId, ended: null })
    .update({ due: new Date() });
}

test("a replay whose workflow is cancelled is paused, and goes on when it is resumed", async () => {
  const { receiver, webhookId, replayId } = await startWaiting();
  // It waits for the paused webhook, and says so.
  await vi.waitFor(async () => {
    const { replay: waiting } = await replays.getReplay({ replayId });
    expect(waiting?.webhooksWaiting).toBe(1);
  }, PATIENCE);
  const workflowOf = async () =>
    (await service.db("replays").where({ id: replayId }).first("workflow_id", "run_id")) as {
      workflow_id: string;
      run_id: string;
    };
  const firstRun = await vi.waitFor(async () => {
    const found = await workflowOf();
    expect(found.run_id).not.toBeNull();
    return found;
  }, PATIENCE);
  const { workflow_id: workflowId } = firstRun;
  await service.temporal.workflow.getHandle(workflowId, firstRun.run_id).cancel();
  await ended(replayId, ReplayState.PAUSED);
  await resumeWebhook(webhookId);
  await replays.resumeReplay({ replayId });
  await ended(replayId);
  await receiver.until((received) => received.length === 2);
  expect((await workflowOf()).run_id).not.toBe(firstRun.run_id);
});

test("a replay whose workflow was terminated is started again", async () => {
  const { receiver, webhookId, replayId } = await startWaiting();
  const row = () => service.db("replays").where({ id: replayId });
  const { workflow_id: workflowId, run_id: firstRun } = await vi.waitFor(async () => {
    const found = await row().first("workflow_id", "run_id");
    expect(found?.run_id).toEqual(expect.any(String));
    return found as { workflow_id: string; run_id: string };
  }, PATIENCE);
  await service.temporal.workflow.getHandle(workflowId).terminate("by a test");
  await vi.waitFor(async () => {
    // As if no activity had worked on it for longer than a heartbeat may be late.
    await row().update({ active: new Date(0) });
    expect((await row().first("run_id"))?.run_id).not.toBe(firstRun);
  }, PATIENCE);
  await resumeWebhook(webhookId);
  await ended(replayId);
  await receiver.until((received) => received.length === 2);
});

test("a new webhook gets what it missed, once, beside the events that are published meanwhile", async () => {
  const late = await service.receiver();
  const webhookId = await service.register(`${late.url}/late`, { process: DOCUMENT_CREATED });
  const { replay } = await replays.startReplay({
    what: { case: "backfill", value: { webhookId, from: missed.from, to: missed.to } },
  });
  const meanwhile = [await service.publishDocument(), await service.publishDocument()];
  expect((await ended(replay?.id as string))?.queued).toBe(50n);
  for (const { eventId } of [...missed.events, ...meanwhile]) await service.untilFinal(eventId, 60_000);
  const got = late.received.map(({ headers }) => headers["x-service-webhook-id"]);
  expect([got.length, new Set(got).size]).toEqual([52, 52]);
  expect(missed.receiver.received).toHaveLength(52);
});
