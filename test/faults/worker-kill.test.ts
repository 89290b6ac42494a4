import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type ReceivedRequest, type Receiver, startReceiver } from "../../src/dev/receiver.ts";
import { type ServiceProcess, startServiceProcess } from "../../src/dev/service-process.ts";
import {
  checkAttempts,
  type FaultParts,
  outcomes,
  publishMany,
  register,
  startFaultParts,
  untilAllFinal,
} from "./parts.ts";

const DELIVERIES = 40;

let parts: FaultParts;
let api: ServiceProcess;
let worker: ServiceProcess;

beforeAll(async () => {
  parts = await startFaultParts();
  [api, worker] = await Promise.all([
    startServiceProcess({ ...parts.environment, ROLE: "api" }),
    startServiceProcess({ ...parts.environment, ROLE: "worker" }),
  ]);
}, 90_000);

afterAll(async () => {
  await worker?.end("SIGTERM");
  await api?.end("SIGTERM");
  await parts?.end();
}, 60_000);

/** Requests that were not a delivery's first. */
const retries = (received: ReceivedRequest[]) => received.filter(({ attempt }) => attempt > 1).length;

/** A webhook with deliveries that all fail, slowly enough that a pass can be interrupted. */
async function failingWebhook(): Promise<Receiver> {
  const receiver = await startReceiver(parts.certificate, async () => {
    await wait(25);
    return 500;
  });
  await parts.db.raw("truncate webhooks, deliveries, attempts cascade");
  await register(api.grpcPort, parts.adminKey, `${receiver.url}/`);
  await publishMany(api.grpcPort, parts.adminKey, DELIVERIES);
  return receiver;
}

describe("a delivery costs no retry", () => {
  test("when its worker is killed three times amid retryDeliveries", { timeout: 120_000 }, async () => {
    const receiver = await failingWebhook();
    for (let kill = 1; kill <= 3; kill += 1) {
      const before = retries(receiver.received);
      await receiver.until((received) => retries(received) >= before + 8);
      await worker.end("SIGKILL");
      worker = await startServiceProcess({ ...parts.environment, ROLE: "worker" });
    }
    await untilAllFinal(parts.db, 90_000);
    await checkAttempts(parts.db);
    expect(await outcomes(parts.db)).toEqual([{ state: "failed", attempts: 4, n: DELIVERIES }]);
    const interrupted = await rows(parts.db, "select 1 from deliveries where reason is not null");
    expect(interrupted).toEqual([]);
    await receiver.close();
  });

  test("when its worker is stopped by SIGTERM amid retryDeliveries, and nothing is sent twice", {
    timeout: 90_000,
  }, async () => {
    const receiver = await failingWebhook();
    await receiver.until((received) => retries(received) >= 8);
    const code = await worker.end("SIGTERM");
    expect(code).toBe(0);
    worker = await startServiceProcess({ ...parts.environment, ROLE: "worker" });
    await untilAllFinal(parts.db, 60_000);
    await checkAttempts(parts.db);
    expect(await outcomes(parts.db)).toEqual([{ state: "failed", attempts: 4, n: DELIVERIES }]);
    expect(receiver.received.length).toBe(4 * DELIVERIES);
    await receiver.close();
  });
});
