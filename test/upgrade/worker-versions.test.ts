import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { Service } from "../../src/service.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

// Temporal takes its time to tell all parts of itself of a new current version.
vi.setConfig({ testTimeout: 180_000 });
const PATIENT = { timeout: 60_000 };
/** So late that a worker is replaced before. */
const RETRY_AFTER_S = 6;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service?.stop());

const startVersion = (name: string, buildId: string) =>
  service.startWorker(undefined, { TEMPORAL_DEPLOYMENT_NAME: name, TEMPORAL_WORKER_BUILD_ID: buildId });

async function describeDeployment(deploymentName: string) {
  const { workflowService } = service.temporal;
  const { workerDeploymentInfo: info } = await workflowService.describeWorkerDeployment({
    namespace: "default",
    deploymentName,
  });
  return {
    current: info?.routingConfig?.currentDeploymentVersion?.buildId,
    versions: info?.versionSummaries?.map((each) => each.deploymentVersion?.buildId).sort(),
  };
}

/** What an operator does with `temporal worker deployment set-current-version`. */
async function makeCurrent(deploymentName: string, buildId: string): Promise<void> {
  const version = { namespace: "default", deploymentName, buildId };
  const { workflowService } = service.temporal;
  await vi.waitFor(() => workflowService.setWorkerDeploymentCurrentVersion(version), PATIENT);
}

test("an open run moves from workers without a version to the first version, and on to each that becomes current", async () => {
  const deployment = `webhooks-${randomUUID()}`;
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const receiver = await service.receiver(({ attempt }, response) => {
    if (attempt === 3) return released.then(() => 200);
    response.writeHead(503, { "retry-after": String(RETRY_AFTER_S) }).end();
    return undefined;
  });
  await service.register(`${receiver.url}/`);
  let worker: Service = await service.startWorker();
  const { eventId } = await service.publish();
  const run = await startRun(service, "versions");
  const received = (count: number) => expect.poll(() => receiver.received.length, PATIENT).toBe(count);
  await received(1);

  await worker.stop();
  worker = await startVersion(deployment, "1.0.0");
  await expect
    .poll(() => describeDeployment(deployment).catch(() => null), PATIENT)
    .toEqual({
      current: "1.0.0",
      versions: ["1.0.0"],
    });
  await received(2);

  const newer = await startVersion(deployment, "1.1.0");
  await expect
    .poll(async () => (await describeDeployment(deployment)).versions, PATIENT)
    .toEqual(["1.0.0", "1.1.0"]);
  // Only the operator replaces a current version.
  expect((await describeDeployment(deployment)).current).toBe("1.0.0");
  await makeCurrent(deployment, "1.1.0");
  release();
  await worker.stop();

  expect(await run.result()).toMatchObject({ sent: 3, delivered: 1, failed: 0 });
  expect(await service.untilFinal(eventId)).toMatchObject([
    { state: DeliveryState.DELIVERED, attemptCount: 3 },
  ]);
  const { events } = await run.fetchHistory();
  const builds = events?.flatMap(
    ({ workflowTaskCompletedEventAttributes: completed }) => completed?.deploymentVersion?.buildId ?? [],
  );
  expect([...new Set(builds)]).toEqual(["1.0.0", "1.1.0"]);
  const { raw } = await run.describe();
  expect(raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId).toBe("1.1.0");
  await newer.stop();
});

// The last one: the task queues are then those of a version, whose tasks workers without one do not get.
test("a worker is ready only once its version has been current, and stays ready when another one replaces it", async () => {
  const deployment = `webhooks-${randomUUID()}`;
  const ready = async ({ url }: Service) => {
    const response = await fetch(`${url}/readyz`);
    return { status: response.status, text: await response.text() };
  };
  const older = await startVersion(deployment, "1.0.0");
  await expect.poll(() => ready(older), PATIENT).toMatchObject({ status: 200 });
  const newer = await startVersion(deployment, "1.1.0");
  const command = `temporal worker deployment set-current-version --namespace default --deployment-name ${deployment} --build-id 1.1.0`;
  await expect
    .poll(() => ready(newer), PATIENT)
    .toMatchObject({ status: 503, text: expect.stringContaining(command) });
  expect(await ready(older)).toMatchObject({ status: 200 });
  await makeCurrent(deployment, "1.1.0");
  await expect.poll(() => ready(newer), PATIENT).toMatchObject({ status: 200 });
  expect(await ready(older)).toMatchObject({ status: 200 });
  await Promise.all([older.stop(), newer.stop()]);
});
