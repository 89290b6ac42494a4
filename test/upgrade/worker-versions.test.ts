import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { test } from "vitest";
import type { Service } from "../../src/app/service.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { listLiveWorkers } from "../../src/queue/workers.ts";
import { startCluster } from "../faults/cluster.ts";
import { outcomes, untilAllFinal } from "../faults/parts.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { BY_HAND, fileService, WOKEN } from "../support/test-service.ts";
import { eventually, until } from "../support/wait.ts";

/** So late that a worker is replaced before. */
const RETRY_AFTER_S = 6;
/** Longer than a process that is stopped while it starts waits for what it has started, in milliseconds. */
const ANSWER_MS = 5_000;
/** A receiver that does not answer gets fewer from two processes; the rest is for others. */
const MAX_EVENTS = 100;

const service = fileService({ ...BY_HAND, ROLE: "api" });

const startVersion = (name: string, buildId: string) =>
  service.startWorker(undefined, { TEMPORAL_DEPLOYMENT_NAME: name, TEMPORAL_WORKER_BUILD_ID: buildId });

async function ready({ url }: Service) {
  const response = await fetch(`${url}/readyz`);
  return { status: response.status, text: await response.text() };
}

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

// These two wait most of the time, and share nothing: the second one has a separate namespace.
test.concurrent("an open run moves from workers without a version to the first version, and on to each that becomes current; workers are ready once theirs has been current", async ({
  expect,
}) => {
  const deployment = `webhooks-${randomUUID()}`;
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const receiver = await service.endpoint(({ attempt }, response) => {
    if (attempt === 3) return released.then(() => 200);
    response.writeHead(503, { "retry-after": String(RETRY_AFTER_S) }).end();
    return undefined;
  });
  let worker: Service = await service.startWorker();
  const { eventId } = await service.publish();
  const run = await startRun(service);
  const received = (count: number) => expect.poll(() => receiver.received.length).toBe(count);
  await received(1);

  await worker.stop();
  worker = await startVersion(deployment, "1.0.0");
  await expect
    .poll(() => describeDeployment(deployment).catch(() => null))
    .toEqual({ current: "1.0.0", versions: ["1.0.0"] });
  await received(2);

  await expect.poll(() => ready(worker)).toMatchObject({ status: 200 });
  const newer = await startVersion(deployment, "1.1.0");
  await expect.poll(async () => (await describeDeployment(deployment)).versions).toEqual(["1.0.0", "1.1.0"]);
  // Only the operator replaces a current version.
  expect((await describeDeployment(deployment)).current).toBe("1.0.0");
  const command = `temporal worker deployment set-current-version --namespace default --deployment-name ${deployment} --build-id 1.1.0`;
  await expect
    .poll(() => ready(newer))
    .toMatchObject({ status: 503, text: expect.stringContaining(command) });
  // What an operator does with this command.
  const version = { namespace: "default", deploymentName: deployment, buildId: "1.1.0" };
  await eventually(() => service.temporal.workflowService.setWorkerDeploymentCurrentVersion(version));
  await expect.poll(() => ready(newer)).toMatchObject({ status: 200 });
  expect(await ready(worker)).toMatchObject({ status: 200 });
  release();
  await worker.stop();

  expect(await run.result()).toMatchObject({ sent: 3, delivered: 1, failed: 0 });
  await service.untilDelivered(eventId, 3);
  const { events } = await run.fetchHistory();
  const builds = events?.flatMap(
    ({ workflowTaskCompletedEventAttributes: completed }) => completed?.deploymentVersion?.buildId ?? [],
  );
  expect([...new Set(builds)]).toEqual(["1.0.0", "1.1.0"]);
  const { raw } = await run.describe();
  expect(raw.workflowExecutionInfo?.versioningInfo?.deploymentVersion?.buildId).toBe("1.1.0");
  await newer.stop();
});

test.concurrent("a worker with delivery processes whose version is not current completes its requests at SIGTERM, and none is repeated", async ({
  expect,
  onTestFinished,
}) => {
  const cluster = await startCluster({ ...WOKEN, HEARTBEAT_TIMEOUT: "60s", DELIVERY_TIMEOUT: "120s" });
  onTestFinished(() => cluster.end());
  const { db, publisher } = cluster;
  const answer = Promise.withResolvers<number>();
  const { url, received } = await cluster.receiver(() => answer.promise);
  await cluster.register(url);
  const TEMPORAL_DEPLOYMENT_NAME = `webhooks-${randomUUID()}`;
  const first = await cluster.startWorker({ TEMPORAL_DEPLOYMENT_NAME, TEMPORAL_WORKER_BUILD_ID: "1.0.0" });
  const readyz = async (port: number) => (await fetch(`http://127.0.0.1:${port}/readyz`)).status;
  await expect.poll(() => readyz(first.httpPort)).toBe(200);
  const second = await cluster.startWorker({
    TEMPORAL_DEPLOYMENT_NAME,
    TEMPORAL_WORKER_BUILD_ID: "1.1.0",
    DELIVERY_PROCESSES: "2",
  });
  expect(await readyz(second.httpPort)).toBe(503);

  /** Whether a request of the second worker's delivery processes has arrived. */
  const secondSends = async () => {
    const claims = await rows<{ id: string }>(
      db,
      "select q.id from queue q join workers w on w.id = q.claimed_by where split_part(w.name, '/', 2)::int <> :pid",
      { pid: first.pid },
    );
    const arrived = new Set(received.map(({ headers }) => headers["x-service-webhook-id"]));
    return claims.some(({ id }) => arrived.has(id));
  };
  let events = 0;
  await until(async () => {
    if (events < MAX_EVENTS) {
      await publisher.publish(1);
      events += 1;
    }
    return secondSends();
  });
  const ended = second.end("SIGTERM");
  expect(await Promise.race([ended, wait(ANSWER_MS, "requests in flight")])).toBe("requests in flight");
  answer.resolve(200);
  expect(await ended).toBe(0);
  expect(await listLiveWorkers(db)).toHaveLength(1);
  await untilAllFinal(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: events }]);
  expect(received).toHaveLength(events);
});
