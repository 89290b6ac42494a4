import { readFile } from "node:fs/promises";
import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";
import proto from "@temporalio/proto";
import { Worker } from "@temporalio/worker";
import { workflowMetadataQuery } from "@temporalio/workflow";
import pino from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { ensureSearchAttributes } from "../../src/temporal/setup/search-attributes.ts";
import { part } from "../support/parts.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const DELIVERY_ATTEMPTS = defineSearchAttributeKey("DeliveryAttempts", SearchAttributeType.INT);

let service: TestService;
/** Types of events, which a history as it comes has as numbers. */
const TIMER_STARTED = proto.temporal.api.enums.v1.EventType.EVENT_TYPE_TIMER_STARTED;
const ACTIVITY_CANCEL_REQUESTED =
  proto.temporal.api.enums.v1.EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED;
const ACTIVITY_SCHEDULED = proto.temporal.api.enums.v1.EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED;
const ACTIVITY_COMPLETED = proto.temporal.api.enums.v1.EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED;
const MARKER = proto.temporal.api.enums.v1.EventType.EVENT_TYPE_MARKER_RECORDED;
const MEMO = proto.temporal.api.enums.v1.EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED;
/** Events of patches, local activities and the memo. */
const DESCRIBING: readonly number[] = [MARKER, MEMO];
type History = Parameters<typeof Worker.runReplayHistory>[1];

beforeAll(async () => {
  // Deliveries are left for the runs under test.
  service = await startTestService({ DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

async function replay(history: unknown): Promise<void> {
  const code = await readFile((await part("workflows")).bundle, "utf8");
  await Worker.runReplayHistory({ workflowBundle: { code } }, history as History);
}

function eventTypes(history: { events?: { eventType?: unknown }[] | null }): unknown[] {
  return (history.events ?? []).map(({ eventType }) => eventType);
}

/** The changes that a run has made, in order. */
function patchesOf(history: proto.temporal.api.history.v1.IHistory): string[] {
  return (history.events ?? []).flatMap(({ markerRecordedEventAttributes: marker }) => {
    const data =
      marker?.markerName === "core_patch" ? marker.details?.["patch-data"]?.payloads?.[0]?.data : null;
    return data ? [JSON.parse(Buffer.from(data).toString()).id] : [];
  });
}

/** The types of the activities that a run scheduled, in order. */
function scheduledActivities(history: proto.temporal.api.history.v1.IHistory): string[] {
  return (history.events ?? []).flatMap(
    ({ activityTaskScheduledEventAttributes: scheduled }) => scheduled?.activityType?.name ?? [],
  );
}

/** The inputs of a run's activities of a type. */
function inputsOf(history: proto.temporal.api.history.v1.IHistory, type: string): Record<string, unknown>[] {
  return (history.events ?? []).flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
    scheduled?.activityType?.name === type
      ? [JSON.parse(Buffer.from(scheduled.input?.payloads?.[0]?.data ?? "").toString())]
      : [],
  );
}

/** Attempts of each retry activity, by its summary. */
function retriesOf(history: proto.temporal.api.history.v1.IHistory): Map<string, number[]> {
  const events = history.events ?? [];
  const found = new Map<string, number[]>();
  for (const { eventId, userMetadata, activityTaskScheduledEventAttributes: scheduled } of events) {
    if (scheduled?.activityType?.name !== "retryDeliveries") continue;
    const summary = JSON.parse(Buffer.from(userMetadata?.summary?.data ?? "").toString());
    const started = events.find(
      ({ activityTaskStartedEventAttributes: of }) => String(of?.scheduledEventId) === String(eventId),
    );
    const attempts = started?.activityTaskStartedEventAttributes?.attempt ?? 0;
    found.set(summary, [...(found.get(summary) ?? []), attempts]);
  }
  return found;
}

describe("the dispatch workflow replays", () => {
  test("a run in which there was nothing to do", async () => {
    const handle = await startRun(service, "nothing");
    expect(await handle.result()).toEqual({
      summary: "0 attempts",
      sent: 0,
      delivered: 0,
      failed: 0,
      putBack: 0,
    });
    expect((await handle.describe()).memo).toEqual({});
    const history = await handle.fetchHistory();
    // Most runs are empty: describing runs adds nothing to their histories.
    expect(eventTypes(history).filter((type) => DESCRIBING.includes(type as number))).toEqual([]);
    await replay(history);
  });

  test("busy runs, which a search finds by their attempts", async () => {
    const receiver = await service.receiver();
    await service.register(`${receiver.url}/`);
    await service.publish();
    const busy = await startRun(service, "busy");
    await busy.result();
    const { memo } = await busy.describe();
    expect(memo).toEqual({ outcome: "1 attempt: 1 delivered" });
    const empty = await startRun(service, "empty");
    await empty.result();
    const found = async (query: string) => {
      const ids = [];
      for await (const run of service.temporal.workflow.list({ query })) ids.push(run.workflowId);
      return ids.filter((id) => [busy, empty].some(({ workflowId }) => workflowId === id));
    };
    await expect.poll(() => found("ExecutionStatus = 'Completed'").then((ids) => ids.length)).toBe(2);
    expect(await found("DeliveryAttempts > 0")).toEqual([busy.workflowId]);
    await replay(await busy.fetchHistory());
  });

  test("a run in which everything was delivered", async () => {
    const receiver = await service.receiver();
    await service.register(`${receiver.url}/`);
    const { eventId } = await service.publish();
    const handle = await startRun(service, "success");
    expect(await handle.result()).toMatchObject({
      summary: "1 attempt: 1 delivered",
      sent: 1,
      delivered: 1,
      failed: 0,
    });
    await replay(await handle.fetchHistory());
    expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
  });

  test("a run with retries, three of one activity where all fail, and its account counts every attempt", async () => {
    const recovering = await service.receiver(({ attempt }, response) => {
      if (attempt > 1) return attempt < 3 ? 503 : 200;
      // So late that the workflow has to sleep before the first retry, however busy the machine.
      response.writeHead(503, { "retry-after": "3" }).end();
      return undefined;
    });
    const failing = await service.receiver(() => 500);
    const recoveringId = await service.register(`${recovering.url}/`);
    const failingId = await service.register(`${failing.url}/`);
    await service.publish();
    const handle = await startRun(service, "retry");
    expect(await handle.result()).toMatchObject({ sent: 7, delivered: 1, failed: 1 });
    const history = await handle.fetchHistory();
    await replay(history);
    expect(eventTypes(history)).toContain(TIMER_STARTED);
    expect(failing.received).toHaveLength(4);
    // The three retries of the failing webhook are the three attempts of an activity; those of the other are two.
    const host = new URL(failing.url).host;
    const ofFailing = `webhook ${failingId}, ${host}, 1 delivery`;
    const ofRecovering = `webhook ${recoveringId}, ${new URL(recovering.url).host}, 1 delivery`;
    expect(retriesOf(history).get(ofFailing)).toEqual([3]);
    expect(retriesOf(history).get(ofRecovering)).toEqual([2]);
    // The activity's input says the same.
    expect(inputsOf(history, "retryDeliveries").map(({ of }) => of)).toEqual(
      expect.arrayContaining([ofFailing, ofRecovering]),
    );
    expect(eventTypes(history).filter((type) => type === MEMO)).toHaveLength(2);
    expect(patchesOf(history)).toEqual(["ask-searchable", "describe-run"]);
    const outcome = "7 attempts: 1 delivered, 1 failed, 5 retried";
    const { memo, typedSearchAttributes } = await handle.describe();
    expect(memo).toEqual({ outcome, failingWebhooks: [ofRecovering, ofFailing] });
    expect(typedSearchAttributes.get(DELIVERY_ATTEMPTS)).toBe(7);
    expect(await handle.query(workflowMetadataQuery)).toMatchObject({
      currentDetails: [
        `**Ended.** ${outcome}`,
        "",
        "**Failing webhooks**, with their retries when they were last listed:",
        "",
        `- ${ofRecovering}`,
        `- ${ofFailing}`,
      ].join("\n"),
    });
  });

  test("a run whose pump lingered, and that retried meanwhile", async () => {
    const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
    await service.register(`${receiver.url}/`);
    // Longer than it takes to publish and to ask what failed.
    const handle = await startRun(service, "lingering", { lingers: true, pumpMs: 5_000 });
    await expect.poll(() => service.db("runs").where({ workflow_id: handle.workflowId })).toHaveLength(1);
    const { eventId } = await service.publish();
    expect(await service.untilFinal(eventId)).toMatchObject([
      { state: DeliveryState.DELIVERED, attemptCount: 2 },
    ]);
    expect(await handle.result()).toMatchObject({ sent: 2, delivered: 1, failed: 0 });
    const history = await handle.fetchHistory();
    await replay(history);
    const names = scheduledActivities(history);
    expect(names.filter((name) => name === "deliverPending")).toHaveLength(1);
    // It asked again and again while the pump went on.
    expect(names.filter((name) => name === "listUndelivered").length).toBeGreaterThan(2);
  });

  test("runs that continued as new, which are the same run to the database", async () => {
    const failing = await service.receiver(() => 500);
    await service.register(`${failing.url}/`);
    await service.publish();
    const handle = await startRun(service, "continued", { continueAsNewAfter: 1 });
    const first = await handle.describe();
    expect(await handle.result()).toMatchObject({ sent: 4, failed: 1 });
    const listed = async () => {
      const runs = [];
      const query = `WorkflowId = "${handle.workflowId}"`;
      for await (const run of service.temporal.workflow.list({ query })) runs.push(run);
      return runs;
    };
    // After the first attempts, and after the retries. What Temporal lists follows what happened a little later.
    const statuses = async () => (await listed()).map(({ status }) => status.name).sort();
    await expect.poll(statuses).toEqual(["COMPLETED", "CONTINUED_AS_NEW", "CONTINUED_AS_NEW"]);
    const chain = await listed();
    for (const { runId } of chain) {
      await replay(await service.temporal.workflow.getHandle(handle.workflowId, runId).fetchHistory());
    }
    const runs = await service.db("runs").where({ workflow_id: handle.workflowId });
    expect(runs).toHaveLength(1);
    expect(runs[0].first_run_id).toBe(first.runId);
  });

  test.each([
    { of: "a first attempt", id: "pump", attempts: 1 },
    { of: "a retry", id: "retry", attempts: 2 },
  ])(
    "a run cancelled while it waits for the response to $of, which is recorded first",
    async ({ id, attempts }) => {
      const answer = Promise.withResolvers<number>();
      onTestFinished(() => answer.resolve(200));
      const receiver = await service.receiver(({ attempt }) => (attempt < attempts ? 500 : answer.promise));
      await service.register(`${receiver.url}/`);
      const { eventId } = await service.publish();
      const handle = await startRun(service, `cancelled-${id}`);
      await expect.poll(() => receiver.received.length).toBe(attempts);
      await handle.cancel();
      const history = () => handle.fetchHistory();
      await expect.poll(async () => eventTypes(await history())).toContain(ACTIVITY_CANCEL_REQUESTED);
      answer.resolve(200);
      await expect(handle.result()).rejects.toThrow(/cancelled/i);
      await replay(await history());
      if (id === "retry") {
        // The run closes with the result of the retry.
        const types = eventTypes(await history());
        const sinceCancelled = types.slice(types.indexOf(ACTIVITY_CANCEL_REQUESTED));
        const activities = sinceCancelled.filter(
          (type) => type === ACTIVITY_SCHEDULED || type === ACTIVITY_COMPLETED,
        );
        expect(activities).toEqual([ACTIVITY_COMPLETED, ACTIVITY_SCHEDULED, ACTIVITY_COMPLETED]);
        const account = await service.db("runs").where({ workflow_id: handle.workflowId }).first();
        expect(account).toMatchObject({ sent: attempts, delivered: 1 });
      }
      expect(await service.untilFinal(eventId)).toMatchObject([
        { state: DeliveryState.DELIVERED, attemptCount: attempts },
      ]);
      const next = await startRun(service, `after-cancelled-${id}`);
      expect(await next.result()).toMatchObject({ sent: 0 });
      expect(receiver.received).toHaveLength(attempts);
    },
  );

  test("a cancelled run, whose retries keep their attempts and are made by the next run", async () => {
    const failing = await service.receiver(({ attempt }, response) => {
      if (attempt !== 2) return attempt < 3 ? 500 : 200;
      // Late enough that the run is cancelled while it waits for the next retry.
      response.writeHead(500, { "retry-after": "5" }).end();
      return undefined;
    });
    await service.register(`${failing.url}/`);
    const { eventId } = await service.publish();
    const handle = await startRun(service, "cancelled");
    const attempts = async () =>
      (await service.deliveries.listDeliveries({ eventId })).deliveries[0]?.attemptCount;
    await expect.poll(attempts).toBe(2);
    await handle.cancel();
    await expect(handle.result()).rejects.toThrow(/cancelled/i);
    await replay(await handle.fetchHistory());
    const [delivery] = (await service.deliveries.listDeliveries({ eventId })).deliveries;
    expect(delivery?.state).toBe(DeliveryState.RETRYING);
    expect([delivery?.attemptCount, failing.received.length]).toEqual([2, 2]);
    const next = await startRun(service, "after-cancel");
    await next.result();
    const [after] = await service.untilFinal(eventId);
    expect(after).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  });
});

test("where search attributes cannot be registered, the command for an administrator is logged and runs set none", async () => {
  const lines: string[] = [];
  const log = pino({ level: "warn" }, { write: (line: string) => void lines.push(line) });
  expect(await ensureSearchAttributes(service.temporal, "no-such-namespace", log)).toEqual({
    failing: false,
    attempts: false,
  });
  expect(lines.join()).toContain(
    "temporal operator search-attribute create --namespace no-such-namespace --name FailingWebhookIds --type KeywordList --name FailingHosts --type KeywordList --name DeliveryAttempts --type Int",
  );
  await ensureSearchAttributes(service.temporal, "shop.a1b2c", log, "shop.a1b2c.tmprl.cloud:7233");
  expect(lines.join()).toContain(
    "tcld namespace search-attributes add --namespace shop.a1b2c --search-attribute FailingWebhookIds=KeywordList --search-attribute FailingHosts=KeywordList --search-attribute DeliveryAttempts=Int",
  );
});
