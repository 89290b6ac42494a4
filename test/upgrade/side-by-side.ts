import { tsToMs } from "@temporalio/common/lib/time.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { requireFeature } from "../../src/schema/instances.ts";
import { type Ledger, reconcile, startLedger } from "../faults/ledger.ts";
import { checkAttempts, outcomes, register, temporalClient, untilAllFinal } from "../faults/parts.ts";
import { createPublisher, type Publisher } from "../faults/publisher.ts";
import { tell } from "../faults/scale.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { RELEASED } from "./release.ts";
import { amidLoad, type Build, type RollingUpgrade, startRollingUpgrade } from "./rolling-upgrade.ts";
import { stepsOf } from "./shapes.ts";

/** Events of each of the four phases; each goes to every webhook. */
const EVENTS = 1_000;
const PATHS = ["/1", "/2", "/3", "/recovering", "/failing"];
/** What a receiver takes for an answer, so that there is something in flight when a worker is replaced. */
const ANSWER_MS = 20;

let upgrade: RollingUpgrade;
let ledger: Ledger;
let publisher: Publisher;
let api: ServiceProcess;
const releasedPids = new Set<number>();

beforeAll(async () => {
  upgrade = await startRollingUpgrade();
  const { parts } = upgrade;
  ledger = await startLedger(parts.certificate, ANSWER_MS, answer);
  publisher = createPublisher(() => api.grpcPort, parts.adminKey);
});
afterAll(async () => {
  await upgrade?.end();
  await ledger?.close();
});

/** One delivery in sixteen of two webhooks fails: of one until its third attempt, of the other always. */
function answer(path: string, nth: number, deliveryId: string): number {
  if (path === "/failing" && isHard(deliveryId)) return 500;
  return path === "/recovering" && isHard(deliveryId) && nth < 3 ? 503 : 200;
}

function isHard(deliveryId: string): boolean {
  return deliveryId.endsWith("0");
}

/** Starts a process, and notes those of the released build. */
async function start(role: "api" | "worker", of: Build): Promise<ServiceProcess> {
  const service = await upgrade.start(role, of);
  if (of === "released") releasedPids.add(service.pid);
  return service;
}

/** The number of deliveries by state. */
async function countStates(): Promise<Record<string, number>> {
  const byState: Record<string, number> = {};
  for (const { state, n } of await outcomes(upgrade.parts.db)) byState[state] = (byState[state] ?? 0) + n;
  return byState;
}

/** Replaces the API by one of this build, or of the released one. */
async function replaceApi(of: Build): Promise<void> {
  const before = api;
  api = await start("api", of);
  await before.end("SIGTERM");
}

/**
 * Counts the runs, those that workers of both builds went through, and those that the older build cannot continue because
 * they made a step of this one's. Names runs whose workflow tasks failed otherwise.
 *
 * @param rolledBackAt when the older build was about to get runs of this one's alone, in milliseconds since 1970
 */
async function inspectRuns(rolledBackAt: number) {
  const client = await temporalClient(upgrade.parts);
  const found = { runs: 0, ofBoth: 0, stuck: 0, failedTasks: [] as string[] };
  try {
    for await (const { workflowId, runId } of client.workflow.list()) {
      const history = await client.workflow.getHandle(workflowId, runId).fetchHistory();
      const builds = (history.events ?? []).flatMap((event) => {
        const identity = event.workflowTaskCompletedEventAttributes?.identity;
        return identity ? [releasedPids.has(Number.parseInt(identity, 10))] : [];
      });
      found.runs += 1;
      if (new Set(builds).size === 2) found.ofBoth += 1;
      const failed = history.events?.find(({ workflowTaskFailedEventAttributes: failure }) => failure);
      if (!failed) continue;
      const isExpected =
        tsToMs(failed.eventTime) >= rolledBackAt &&
        stepsOf(history).some((step) => step.startsWith("patch "));
      if (isExpected) found.stuck += 1;
      else found.failedTasks.push(workflowId);
    }
  } finally {
    await client.connection.close();
  }
  return found;
}

test(`workers of ${RELEASED.version} and of this build deliver everything once, side by side and after a roll back`, async () => {
  const { parts } = upgrade;
  api = await start("api", "released");
  const releasedWorker = await start("worker", "released");
  for (const path of PATHS) await register(api.grpcPort, parts.adminKey, `${ledger.url}${path}`);
  let todaysWorker: ServiceProcess | undefined;
  await amidLoad(publisher, EVENTS, async () => {
    todaysWorker = await start("worker", "today");
  });
  // The refusal names the processes of the release.
  await expect(parts.db.transaction((trx) => requireFeature(trx, "customers"))).rejects.toThrow(
    new RegExp(`(?=.*\\(release ${RELEASED.version}, api\\))(?=.*\\(release ${RELEASED.version}, worker\\))`),
  );
  await amidLoad(publisher, EVENTS, () => replaceApi("today"));
  await amidLoad(publisher, EVENTS, () => releasedWorker.end("SIGTERM"));
  let rolledBackWith: Record<string, number> = {};
  let rolledBackAt = Number.POSITIVE_INFINITY;
  await amidLoad(publisher, EVENTS, async () => {
    await replaceApi("released");
    rolledBackAt = Date.now();
    await todaysWorker?.end("SIGTERM");
    rolledBackWith = await countStates();
    await start("worker", "released");
  });
  expect(rolledBackWith).toMatchObject({ pending: expect.any(Number), retrying: expect.any(Number) });
  await untilAllFinal(parts.db);

  const hard = await rows<{ id: string }>(
    parts.db,
    "select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id where w.url like '%/failing'",
  );
  const failed = hard.filter(({ id }) => isHard(id)).length;
  expect(failed).toBeGreaterThan(0);
  expect(await countStates()).toEqual({ delivered: 4 * EVENTS * PATHS.length - failed, failed });
  await checkAttempts(parts.db);
  const { recorded, repeats, invented } = await reconcile(parts.db, [ledger]);
  expect({ repeats, invented }).toEqual({ repeats: [], invented: 0 });

  const { runs, ofBoth, stuck, failedTasks } = await inspectRuns(rolledBackAt);
  tell(
    `${recorded} attempts, ${runs} runs, ${ofBoth} of them by workers of both builds; rolled back with ${JSON.stringify(rolledBackWith)}, and ${stuck} runs that ${RELEASED.version} cannot continue`,
  );
  expect(failedTasks).toEqual([]);
  expect(ofBoth).toBeGreaterThan(0);
});
