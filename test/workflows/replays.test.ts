import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import { afterEach, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService, ReplayState } from "../../gen/webhook/v1/replay_pb.ts";
import { replay as replayRun } from "../support/dispatch-runs.ts";
import { fileService, WOKEN } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";

/** The events that are replayed are OrderDispatched, those of the backfill are not. */
const DOCUMENT_CREATED = 2;
/** Each fails four times, for two webhooks. */
const EVENTS = 5;
const MISSED = 10;

const service = fileService(WOKEN);
let replays: Client<typeof ReplayService>;
/** When events were published that a webhook misses: a backfill waits until the newest ones are ten seconds old. */
let missed: Record<"from" | "to", ReturnType<typeof timestampFromDate>>;
beforeAll(async () => {
  replays = createClient(ReplayService, service.transport);
  const from = timestampFromDate(new Date());
  for (let n = 0; n < MISSED; n += 1) await service.publishDocument();
  // Without the next millisecond, an event of this one is not before it.
  missed = { from, to: timestampFromDate(new Date(Date.now() + 1)) };
});
afterEach(() => service.removeWebhooks());

const ended = (replayId = "", state: ReplayState = ReplayState.COMPLETED) =>
  eventually(async () => {
    const { replay } = await replays.getReplay({ replayId });
    expect(replay?.state).toBe(state);
    return replay;
  });

async function statesOf(webhookId: bigint): Promise<DeliveryState[]> {
  const { deliveries } = await service.deliveries.listDeliveries({ webhookId, pageSize: 1_000 });
  return deliveries.map(({ state }) => state);
}

test("everything that failed is replayed after an outage, of all webhooks, and only that", async () => {
  let status = 500;
  const moody = await service.receiver(() => status);
  const well = await service.endpoint();
  const broken = [await service.register(`${moody.url}/a`), await service.register(`${moody.url}/b`)];
  const events = await Promise.all(Array.from({ length: EVENTS }, () => service.publish()));
  for (const { eventId } of events) await service.untilFinal(eventId);
  for (const id of broken) expect(await statesOf(id)).toEqual(Array(EVENTS).fill(DeliveryState.FAILED));

  status = 200;
  const before = moody.received.length;
  const { replay } = await replays.startReplay({ what: { case: "resend", value: {} } });
  expect(await ended(replay?.id)).toMatchObject({
    queued: BigInt(2 * EVENTS),
    skipped: 0n,
    progress: 1,
    webhooks: 2,
  });
  for (const id of broken)
    await expect.poll(() => statesOf(id)).toEqual(Array(EVENTS).fill(DeliveryState.DELIVERED));
  expect(moody.received.length - before).toBe(2 * EVENTS);
  expect(well.received).toHaveLength(EVENTS);

  // Visible in Temporal, without a value of any event.
  const outcome = `completed: ${2 * EVENTS} deliveries queued, 0 skipped`;
  const stored = await service
    .db("replays")
    .where({ id: replay?.id as string })
    .first("workflow_id");
  const workflow = service.temporal.workflow.getHandle(stored?.workflow_id as string);
  expect(await workflow.result()).toEqual({ summary: outcome });
  await replayRun(workflow, "replay");
  expect((await workflow.describe()).memo?.outcome).toBe(outcome);
});

/** Starts a replay of one delivered delivery, whose webhook is paused. */
async function startWaiting() {
  const receiver = await service.endpoint();
  const { webhookId } = receiver;
  await service.untilFinal((await service.publish()).eventId);
  await service.webhooks.pauseWebhook({ webhookId });
  const delivered = { webhookId, states: [DeliveryState.DELIVERED] };
  const { replay } = await replays.startReplay({ what: { case: "resend", value: delivered } });
  const replayId = replay?.id as string;
  const row = () => service.db("replays").where({ id: replayId });
  const runId = async () => (await row().first("run_id"))?.run_id;
  await expect.poll(runId).toEqual(expect.any(String));
  const firstRun = (await runId()) as string;
  const { workflow_id: workflowId } = (await row().first("workflow_id")) as { workflow_id: string };
  return {
    replayId,
    row,
    firstRun,
    workflow: service.temporal.workflow.getHandle(workflowId, firstRun),
    /** Ends the pause; the replay looks at the webhook now, and not after the seconds for which it leaves paused ones alone. */
    async complete() {
      await service.webhooks.resumeWebhook({ webhookId });
      await service
        .db("replay_webhooks")
        .where({ webhook_id: webhookId, ended: null })
        .update({ due: new Date() });
      await ended(replayId);
      await receiver.until(({ length }) => length === 2);
      expect(await runId()).not.toBe(firstRun);
    },
  };
}

test("a replay whose workflow is cancelled is paused, and continues when it is resumed", async () => {
  const { replayId, workflow, complete } = await startWaiting();
  // It waits for the paused webhook, and says so.
  await expect.poll(async () => (await replays.getReplay({ replayId })).replay?.webhooksWaiting).toBe(1);
  await workflow.cancel();
  await ended(replayId, ReplayState.PAUSED);
  await expect(workflow.result()).rejects.toThrow(/cancelled/i);
  await replayRun(workflow, "replay-cancelled");
  await replays.resumeReplay({ replayId });
  await complete();
});

test("a replay whose workflow was terminated is started again", async () => {
  const { workflow, row, firstRun, complete } = await startWaiting();
  await workflow.terminate("by a test");
  await eventually(async () => {
    // As if no activity had worked on it for longer than a heartbeat may be late.
    await row().update({ active: new Date(0) });
    expect((await row().first("run_id"))?.run_id).not.toBe(firstRun);
  });
  await complete();
});

test("a new webhook gets what it missed, once, beside the events that are published meanwhile", async () => {
  const late = await service.receiver();
  const webhookId = await service.register(`${late.url}/late`, { process: DOCUMENT_CREATED });
  const { replay } = await replays.startReplay({
    what: { case: "backfill", value: { webhookId, ...missed } },
  });
  for (let n = 0; n < 2; n += 1) await service.publishDocument();
  expect((await ended(replay?.id))?.queued).toBe(BigInt(MISSED));
  await expect.poll(() => statesOf(webhookId)).toEqual(Array(MISSED + 2).fill(DeliveryState.DELIVERED));
  const got = late.received.map(({ headers }) => headers["x-service-webhook-id"]);
  expect([got.length, new Set(got).size]).toEqual([MISSED + 2, MISSED + 2]);
});
