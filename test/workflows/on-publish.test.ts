import { afterEach, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../src/config/config.ts";
import { INITIAL_WINDOW } from "../../src/delivery/limits/windows.ts";
import { stepsSoFar } from "../support/dispatch-runs.ts";
import { fileService, startTestService, WOKEN } from "../support/test-service.ts";

/** The requests in flight to a receiver that is new to a worker; and these with the deliveries that the worker has queued for it. */
const [WINDOW, CLAIMED] = [INITIAL_WINDOW, INITIAL_WINDOW + 4];

const service = fileService(WOKEN);
afterEach(() => service.removeWebhooks());

/** The run that the worker's start has triggered, if it is still the only one. */
async function onlyRun() {
  const runs = await service.db("runs");
  expect(runs).toMatchObject([{ closed: null }]);
  const [{ workflow_id: workflowId, first_run_id: runId }] = runs;
  return service.temporal.workflow.getHandle(workflowId, runId);
}

test("events arrive as soon as they are published, each once, by the run that the worker's start has triggered and no other", async () => {
  const receiver = await service.endpoint();
  const published = await Promise.all(Array.from({ length: 50 }, (_, n) => service.publish(BigInt(n + 1))));
  await receiver.until(({ length }) => length === published.length);
  for (const { eventId } of published) await service.untilDelivered(eventId);
  const ids = new Set(receiver.received.map(({ headers }) => headers["x-service-webhook-id"]));
  expect([ids.size, receiver.received.length]).toEqual([published.length, published.length]);
  await onlyRun();
});

test("a worker that starts later joins the current run, and takes what the others have no room for", async () => {
  const answer = Promise.withResolvers<number>();
  onTestFinished(() => answer.resolve(200));
  const receiver = await service.endpoint(() => answer.promise);
  const claims = async () => {
    const claimed = await service.db("queue").whereNotNull("claimed_by").pluck("claimed_by");
    return { claims: claimed.length, workers: new Set(claimed).size };
  };
  await Promise.all(Array.from({ length: CLAIMED }, () => service.publish()));
  await expect.poll(claims).toEqual({ claims: CLAIMED, workers: 1 });
  const later = await Promise.all(Array.from({ length: CLAIMED }, () => service.publish()));
  await expect.poll(() => receiver.received.length).toBe(WINDOW);

  // Paused, so that the worker's start triggers no run: it is given a pump by the one that goes on.
  const schedule = service.temporal.schedule.getHandle(service.scheduleId);
  await schedule.pause();
  onTestFinished(() => schedule.unpause());
  const worker = await service.startWorker();
  onTestFinished(() => worker.stop());
  await expect.poll(() => receiver.received.length).toBe(2 * WINDOW);
  expect(await claims()).toEqual({ claims: 2 * CLAIMED, workers: 2 });
  await onlyRun();
  answer.resolve(200);
  for (const { eventId } of later) await service.untilDelivered(eventId);
  expect(receiver.received).toHaveLength(2 * CLAIMED);
});

test("a pump that fails is started again by its run, long before the next one", async () => {
  const receiver = await service.endpoint();
  await service.publish();
  await receiver.until(({ length }) => length === 1);
  const run = await onlyRun();
  const failures = async () =>
    (await stepsSoFar(run)).filter((step) => step === "failed deliverPending").length;
  const before = await failures();
  await service.db.raw("alter table queue rename to queue_away");
  await expect.poll(failures, { interval: 100 }).toBeGreaterThan(before);
  await service.db.raw("alter table queue_away rename to queue");
  await service.publish();
  await receiver.until(({ length }) => length === 2);
  await onlyRun();
});

test("DISPATCH_ON_PUBLISH is off by default; with it, an API publishes and is ready while Temporal is away", async () => {
  expect(readConfig({}).dispatch.onPublish).toBe(false);
  const api = await startTestService({ ...WOKEN, ROLE: "api", TEMPORAL_ADDRESS: "127.0.0.1:1" });
  onTestFinished(() => api.stop());
  await api.register("https://receiver.example/");
  expect(await api.publish()).toMatchObject({ deliveriesQueued: 1 });
  expect((await fetch(`${api.url}/readyz`)).status).toBe(200);
});
