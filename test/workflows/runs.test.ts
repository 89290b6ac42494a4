import { randomUUID } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { Connection, type WorkflowHandle } from "@temporalio/client";
import { msToTs } from "@temporalio/common/lib/time.js";
import { workflowMetadataQuery } from "@temporalio/workflow";
import pino from "pino";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { ensureSearchAttributes, SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";
import {
  failingOnce,
  type Run,
  replay,
  startLongRun,
  startRun,
  untilStep,
} from "../support/dispatch-runs.ts";
import { part } from "../support/parts.ts";
import { expectRefused } from "../support/refusals.ts";
import { BY_HAND, fileService } from "../support/test-service.ts";
import type { History } from "../upgrade/shapes.ts";
import { RECORDING, textsOf } from "../upgrade/stored-histories.ts";

/** Steps that describe a run to operators. */
const DESCRIBING = /^(patch|memo|local activity|search attributes)/;

/** Search attributes concern all runs of a namespace. */
const namespace = `runs-${randomUUID()}`;
let connection: Connection;
beforeAll(async () => {
  connection = await Connection.connect({ address: (await part("temporal")).address });
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: msToTs("1 day"),
  });
});
afterAll(() => connection?.close());
const service = fileService({
  ...BY_HAND,
  TEMPORAL_NAMESPACE: namespace,
  TEMPORAL_UI_URL: "http://ui.example",
});
afterEach(() => service.removeWebhooks());

async function found(query: string): Promise<string[]> {
  const ids: string[] = [];
  for await (const { workflowId } of service.temporal.workflow.list({ query })) ids.push(workflowId);
  return ids;
}

describe("a run", () => {
  test("with nothing to do has no step more for its description, and busy ones are found by their attempts", async () => {
    const empty = await startRun(service);
    const nothing = { summary: "0 attempts", sent: 0, delivered: 0, failed: 0, putBack: 0 };
    expect(await empty.result()).toEqual(nothing);
    expect((await empty.describe()).memo).toEqual({});
    expect((await replay(empty, "nothing-to-do")).filter((step) => DESCRIBING.test(step))).toEqual([]);

    await service.endpoint();
    const { eventId } = await service.publish();
    const busy = await startRun(service);
    const summary = "1 attempt: 1 delivered";
    expect(await busy.result()).toMatchObject({ summary, sent: 1, delivered: 1, failed: 0 });
    expect((await busy.describe()).memo).toEqual({ outcome: summary });
    await service.untilDelivered(eventId);
    await replay(busy);
    // What Temporal lists follows what happened a little later.
    await expect.poll(() => found("ExecutionStatus = 'Completed'")).toContain(busy.workflowId);
    const byAttempts = await found("DeliveryAttempts > 0");
    expect(byAttempts).toContain(busy.workflowId);
    expect(byAttempts).not.toContain(empty.workflowId);
  });

  test("with retries makes three of one activity where all fail, counts every attempt, and tells operators of both", async () => {
    const recovering = await service.endpoint(({ attempt }) => (attempt < 3 ? 503 : 200));
    const failing = await service.endpoint(() => 500);
    const { eventId } = await service.publish();
    const run = await startRun(service);
    expect(await run.result()).toMatchObject({ sent: 7, delivered: 1, failed: 1 });
    expect(failing.received).toHaveLength(4);

    const steps = await replay(run, "retries-that-fail");
    expect(steps.filter((step) => step.startsWith("patch"))).toEqual([
      "patch ask-searchable",
      "patch describe-run",
    ]);
    expect(steps.filter((step) => step === "memo")).toHaveLength(2);
    const summaryOf = ({ webhookId, port }: typeof failing, last: number) =>
      `webhook ${webhookId}, localhost:${port}, 1 delivery, last: ${last}`;
    const [ofFailing, ofRecovering] = [summaryOf(failing, 500), summaryOf(recovering, 503)];
    const summaries = [ofFailing, ofRecovering].map((summary) => JSON.stringify(summary));
    expect(textsOf(await run.fetchHistory())).toEqual(expect.arrayContaining(summaries));

    const outcome = "7 attempts: 1 delivered, 1 failed, 5 retried";
    expect((await run.describe()).memo).toEqual({ outcome, failingWebhooks: [ofRecovering, ofFailing] });
    expect(await run.query(workflowMetadataQuery)).toMatchObject({
      currentDetails: [
        `**Ended.** ${outcome}`,
        "",
        "**Failing webhooks**, with their retries when they were last listed:",
        "",
        `- ${ofRecovering}`,
        `- ${ofFailing}`,
      ].join("\n"),
    });
    await expect
      .poll(() => found(`FailingHosts = "localhost:${failing.port}" and DeliveryAttempts = 7`))
      .toEqual([run.workflowId]);

    const [delivery] = await service.untilFinal(eventId);
    const told = await service.deliveries.getDelivery({
      deliveryId: delivery?.id as string,
      withActivity: true,
    });
    const url = `http://ui.example/namespaces/${namespace}/workflows/${run.workflowId}/${run.firstExecutionRunId}`;
    expect(told.run).toMatchObject({ workflowId: run.workflowId, runId: run.firstExecutionRunId, url });
    expect(told.run?.activityUrl).toMatch(/\/history\/events\/\d+$/);
    expect(told.run?.activityUrl?.startsWith(url)).toBe(true);
  });

  test("that lingers asks again and again, retries meanwhile, and ends once a later run has taken over", async () => {
    await service.endpoint(({ attempt }) => (attempt === 1 ? 503 : 200));
    const run = await startLongRun(service, { lingers: true, pumpMs: 600_000 });
    await untilStep(run, "scheduled deliverPending");
    const { eventId } = await service.publish();
    await service.untilDelivered(eventId, 2);
    await service.dispatch();
    expect(await run.result()).toMatchObject({ sent: 2, delivered: 1, failed: 0 });
    const steps = await replay(run, "lingering-superseded");
    expect(steps.filter((step) => step === "scheduled deliverPending")).toHaveLength(1);
  });

  test("whose pump ends when its time is over continues with its retries", async () => {
    const answer = Promise.withResolvers<number>();
    onTestFinished(() => answer.resolve(200));
    const receiver = await service.endpoint(({ attempt }) => (attempt === 1 ? 503 : answer.promise));
    await service.publish();
    const run = await startLongRun(service, { lingers: true, pumpMs: 5_000 });
    await expect.poll(() => receiver.received.length).toBe(2);
    await untilStep(run, "pump ended time");
    answer.resolve(200);
    expect(await run.result()).toMatchObject({ sent: 2, delivered: 1 });
    await replay(run, "lingering-until-its-time");
  });

  test("that continues as new is the same run to the database", async () => {
    await service.endpoint(() => 500);
    await service.publish();
    const run = await startRun(service, { continueAsNewAfter: 1 });
    expect(await run.result()).toMatchObject({ sent: 4, failed: 1 });
    // After the first attempts, and after the retries.
    const ends: (string | undefined)[] = [];
    let runId: string | null | undefined = run.firstExecutionRunId;
    while (runId) {
      const execution: WorkflowHandle = service.temporal.workflow.getHandle(run.workflowId, runId);
      ends.push((await replay(execution, `continued-as-new-${ends.length + 1}`)).at(-1));
      const { events }: History = await execution.fetchHistory();
      runId = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
    }
    expect(ends).toEqual(["continued as new", "continued as new", "completed"]);
    expect(await service.db("runs").where({ workflow_id: run.workflowId }).pluck("first_run_id")).toEqual([
      run.firstExecutionRunId,
    ]);
  });
});

describe("a run that is cancelled", () => {
  test.each([
    { activity: "deliverPending", attempts: 1, shapes: ["cancelled-amid-a-pump"] },
    { activity: "retryDeliveries", attempts: 2, shapes: [] },
  ])(
    "during $activity records the response that it waits for first",
    async ({ activity, attempts, shapes }) => {
      const answer = Promise.withResolvers<number>();
      onTestFinished(() => answer.resolve(200));
      const receiver = await service.endpoint(({ attempt }) => (attempt < attempts ? 500 : answer.promise));
      const { eventId } = await service.publish();
      const run = await startRun(service);
      await expect.poll(() => receiver.received.length).toBe(attempts);
      await run.cancel();
      await untilStep(run, `cancel requested of ${activity}`);
      answer.resolve(200);
      await expect(run.result()).rejects.toThrow(/cancelled/i);
      const steps = await replay(run, ...shapes);
      // It closes with the result of the activity.
      const end = steps.slice(steps.indexOf(`cancel requested of ${activity}`) + 1);
      expect(end.filter((step) => step.startsWith("scheduled"))).toEqual(["scheduled closeRun"]);
      if (activity === "retryDeliveries") {
        const account = await service.db("runs").where({ workflow_id: run.workflowId }).first();
        expect(account).toMatchObject({ sent: attempts, delivered: 1 });
      }
      await service.untilDelivered(eventId, attempts);
      expect(await service.dispatch()).toMatchObject({ sent: 0 });
      expect(receiver.received).toHaveLength(attempts);
    },
  );

  test("while it waits for a retry leaves that, with its attempts, to the next run", async () => {
    await service.endpoint(failingOnce(600));
    const { eventId } = await service.publish();
    const run = await startRun(service);
    await untilStep(run, "wait for a retry");
    await replay(run, "waiting-for-a-retry");
    await run.cancel();
    await expect(run.result()).rejects.toThrow(/cancelled/i);
    await replay(run, "cancelled-amid-a-wait");
    const { deliveries } = await service.deliveries.listDeliveries({ eventId });
    expect(deliveries).toMatchObject([{ state: DeliveryState.RETRYING, attemptCount: 1 }]);
    await service.db("retries").update({ due: new Date() });
    await service.db("webhooks").update({ held_until: null });
    expect(await service.dispatch()).toMatchObject({ sent: 1, delivered: 1 });
    await service.untilDelivered(eventId, 2);
  });
});

test("DispatchNow is refused while the schedule is paused, with the command that ends it", async () => {
  const schedule = service.temporal.schedule.getHandle(service.scheduleId);
  await schedule.pause();
  onTestFinished(() => schedule.unpause());
  const command = `temporal schedule toggle --namespace ${namespace} --schedule-id ${service.scheduleId} --unpause`;
  const call = createClient(StatsService, service.transport).dispatchNow({});
  const message = `is paused in Temporal; to dispatch, unpause it: ${command}`;
  await expectRefused(call, Code.FailedPrecondition, message);
});

describe("search attributes", () => {
  test("that cannot be registered are logged with the command for an administrator", async () => {
    const lines: string[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void lines.push(line) });
    await ensureSearchAttributes(service.temporal, "no-such-namespace", log);
    expect(lines.join()).toContain(
      "temporal operator search-attribute create --namespace no-such-namespace --name FailingWebhookIds --type KeywordList --name FailingHosts --type KeywordList --name DeliveryAttempts --type Int",
    );
    await ensureSearchAttributes(service.temporal, "shop.a1b2c", log, "shop.a1b2c.tmprl.cloud:7233");
    expect(lines.join()).toContain(
      "tcld namespace search-attributes add --namespace shop.a1b2c --search-attribute FailingWebhookIds=KeywordList --search-attribute FailingHosts=KeywordList --search-attribute DeliveryAttempts=Int",
    );
  });

  test("may be removed while the service runs: runs continue, and set them again once they are back", async () => {
    /** Makes a run with a delivery that is retried; answers the run and its search. */
    async function failingRun(): Promise<{ run: Run; query: string }> {
      const { port } = await service.endpoint(({ attempt }) => (attempt < 3 ? 503 : 200));
      await service.publish();
      const run = await startRun(service);
      expect(await run.result()).toMatchObject({ sent: 3, delivered: 1 });
      await service.removeWebhooks();
      return { run, query: `FailingHosts = "localhost:${port}" and DeliveryAttempts = 3` };
    }
    const searchAttributes = Object.keys(SEARCH_ATTRIBUTES);
    await connection.operatorService.removeSearchAttributes({ namespace, searchAttributes });
    await failingRun();
    await ensureSearchAttributes(service.temporal, namespace, pino({ level: "silent" }));
    const { run, query } = await failingRun();
    await expect.poll(() => found(query).catch(() => [])).toEqual([run.workflowId]);
    // On a slow machine, both retries may be due in one pass.
    await replay(run, ...(RECORDING ? ["retries-that-succeed"] : []));
  });
});
