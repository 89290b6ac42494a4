import { createClient } from "@connectrpc/connect";
import type { WorkflowExecutionInfo } from "@temporalio/client";
import pLimit from "p-limit";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EventService, type WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../src/db/database.ts";
import { startTestService, type TestService, trustedAuthority } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import { type Ledger, startLedger } from "./ledger.ts";
import { untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

const FAILING = FULL_SIZE ? 10_000 : 210;
const HEALTHY = 10;
const EVENTS = FULL_SIZE ? 3_000 : 10;
/** Groups of a run, however many webhooks fail and however often it asks; an activity a group. */
const MAX_GROUPS = 200;
/** A run's history stays below this, in events. */
const HISTORY_BOUND = 10_000;
const [TO_FAILING, TO_HEALTHY] = [1, 2] as const;

let service: TestService;
let failing: Ledger;
let healthy: Ledger;
/** Resolves the last attempt of one failing webhook, so that the others' deliveries end while webhooks fail, on any machine. */
const lastAttempt = Promise.withResolvers<void>();

beforeAll(async () => {
  service = await startTestService({
    // Runs are those that the test triggers.
    DISPATCH_INTERVAL: "24h",
    RETRY_INITIAL_DELAY: FULL_SIZE ? "5s" : "500ms",
    RETRY_BACKOFF_COEFFICIENT: "1.5",
    MAX_WEBHOOKS: "20000",
  });
  const certificate = await (await trustedAuthority()).issue(["localhost"]);
  failing = await startLedger(certificate, 0, async (path, nth) => {
    if (path === "/1" && nth === 4) await lastAttempt.promise;
    return 500;
  });
  healthy = await startLedger(certificate, 0);
  await register(TO_FAILING, failing, FAILING);
  await register(TO_HEALTHY, healthy, HEALTHY);
});
afterAll(async () => {
  await service?.stop();
  await Promise.all([failing?.close(), healthy?.close()]);
});

/** Calls from 1 to `count`, some at once. */
async function inParallel(count: number, call: (n: number) => Promise<unknown>): Promise<void> {
  const limit = pLimit(16);
  await Promise.all(Array.from({ length: count }, (_, n) => limit(() => call(n + 1))));
}

function register(process: WebhookProcess, ledger: Ledger, count: number): Promise<void> {
  const client = createClient(WebhookService, service.transport);
  return inParallel(count, (n) => client.createWebhook({ process, url: `${ledger.url}/${n}` }));
}

let runsStarted = 0;

/** Starts a run as the schedule does, under an id of its own: two triggers within a second would be one. */
async function dispatch(): Promise<void> {
  const { action } = await service.temporal.schedule.getHandle(service.scheduleId).describe();
  const { workflowType, taskQueue, args } = action as {
    workflowType: string;
    taskQueue: string;
    args: object[];
  };
  runsStarted += 1;
  const workflowId = `${service.scheduleId}-${runsStarted}`;
  await service.temporal.workflow.start(workflowType, { workflowId, taskQueue, args });
}

/** Publishes to the healthy webhooks; answers when the last of their deliveries had ended. */
async function deliverToHealthy(): Promise<Date> {
  const wanted = healthy.entries.length + EVENTS * HEALTHY;
  const events = createClient(EventService, service.transport);
  const createdAt = { seconds: 1_790_000_000n };
  await inParallel(EVENTS, (n) =>
    events.publishEvent({
      idempotencyKey: `healthy-${n}`,
      userId: "tenant-1",
      data: { case: "documentCreated", value: { documentId: BigInt(n), kind: 1, number: "1", createdAt } },
    }),
  );
  await dispatch();
  await until(() => healthy.entries.length === wanted);
  return until(async () => {
    const [done] = await rows<{ open: number; ended: Date }>(
      service.db,
      `select (count(*) filter (where finished is null))::int as open, max(finished) as ended
        from all_deliveries d join webhooks w on w.id = d.webhook_id where w.process = ${TO_HEALTHY}`,
    );
    return done?.open === 0 && done.ended;
  }) as Promise<Date>;
}

test("first attempts to the others go on while very many webhooks fail, in one run of few groups and a short history", async () => {
  expect((await service.publish()).deliveriesQueued).toBe(FAILING);
  await dispatch();
  await until(() => failing.entries.length >= FAILING);
  const healthyEnded = await deliverToHealthy();
  lastAttempt.resolve();
  await untilAllFinal(service.db);

  const [last] = await rows<{ ended: Date }>(
    service.db,
    "select max(finished) as ended from all_deliveries where state = 'failed'",
  );
  expect(healthyEnded.getTime()).toBeLessThan(last?.ended.getTime() as number);
  const outcomes = await rows(
    service.db,
    `select w.process, d.state, d.attempts, count(*)::int as n from all_deliveries d join webhooks w on w.id = d.webhook_id
      group by 1, 2, 3 order by 1`,
  );
  expect(outcomes).toEqual([
    { process: TO_FAILING, state: "failed", attempts: 4, n: FAILING },
    { process: TO_HEALTHY, state: "delivered", attempts: 1, n: healthy.entries.length },
  ]);
  expect(failing.entries).toHaveLength(4 * FAILING);

  const groups = await rows<{ webhooks: number; groups: number }>(
    service.db,
    "select count(*)::int as webhooks, count(distinct group_number)::int as groups from run_groups group by run_id",
  );
  // All in the one run, and none of the others.
  expect(groups).toEqual([{ webhooks: FAILING, groups: expect.any(Number) }]);
  expect(groups[0]?.groups).toBeLessThanOrEqual(MAX_GROUPS);

  const histories = await historyLengths();
  tell(`${FAILING} webhooks failing: histories of ${histories.join(", ")} events`);
  expect(Math.max(...histories)).toBeLessThan(HISTORY_BOUND);
  // The workflow tasks and timers between the groups' activities; were each webhook a group of its own, it would be
  // thousands more.
  expect(Math.max(...histories)).toBeLessThan(15 * MAX_GROUPS + 100);
});

/** The real histories' lengths, of every execution of every run, in events. */
async function historyLengths(): Promise<number[]> {
  const query = `WorkflowId STARTS_WITH "${service.scheduleId}"`;
  const runs = (await until(async () => {
    const found: WorkflowExecutionInfo[] = [];
    for await (const run of service.temporal.workflow.list({ query })) found.push(run);
    return found.length > 0 && found.every(({ status }) => status.name !== "RUNNING") && found;
  })) as WorkflowExecutionInfo[];
  const histories = runs.map(({ workflowId, runId }) =>
    service.temporal.workflow.getHandle(workflowId, runId).fetchHistory(),
  );
  return (await Promise.all(histories)).map(({ events }) => events?.length ?? 0);
}
