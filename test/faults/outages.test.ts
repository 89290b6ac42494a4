import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import {
  checkAttempts,
  type OwnFaultParts,
  publishMany,
  register,
  startOwnFaultParts,
  untilAllFinal,
} from "./parts.ts";
import { FULL_SIZE } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** How long a part is away. The time itself is what is tested, so it is waited for. */
const AWAY_MS = FULL_SIZE ? 10_000 : 4_000;
const EVENTS = 100;
const MEANWHILE = 50;

let parts: OwnFaultParts;
let service: ServiceProcess;
let receiver: Receiver;

beforeAll(async () => {
  parts = await startOwnFaultParts();
  service = await startServiceProcess(parts.environment);
  receiver = await startReceiver(parts.certificate, async ({ attempt }) => {
    await wait(20);
    return attempt === 1 ? 503 : 200;
  });
  await register(service.grpcPort, parts.adminKey, `${receiver.url}/`);
});

afterAll(async () => {
  await service?.end("SIGTERM");
  await receiver?.close();
  await parts?.end();
});

async function readiness(): Promise<{ status: number; body: string }> {
  const response = await fetch(`http://127.0.0.1:${service.httpPort}/readyz`);
  return { status: response.status, body: await response.text() };
}

/** Deliveries that did not arrive, with what went wrong in each attempt. */
const undelivered = () =>
  rows(
    parts.db,
    `select d.state, d.reason, array_agg(coalesce(a.error, a.status::text) order by a.number) as attempts
      from all_deliveries d left join all_attempts a on a.delivery_id = d.id
      where d.state <> 'delivered' group by d.id, d.state, d.reason`,
  );

describe("the service recovers by itself", () => {
  test("when the database is away for seconds amid a dispatch", async () => {
    await publishMany(service.grpcPort, parts.adminKey, EVENTS);
    await receiver.until((received) => received.length >= 20);
    parts.postgres.kill();
    await wait(AWAY_MS / 2);
    expect((await readiness()).status).toBe(503);
    await expect(publishMany(service.grpcPort, parts.adminKey, 1)).rejects.toThrow(/unavailable/);
    await wait(AWAY_MS / 2);
    await parts.postgres.restart();
    await untilAllFinal(parts.db);
    await checkAttempts(parts.db);
    await expect.poll(async () => (await readiness()).status).toBe(200);
    expect(await undelivered()).toEqual([]);
    expect(await parts.db("all_deliveries").where({ state: "delivered" }).count()).toEqual([
      { count: BigInt(EVENTS) },
    ]);
    expect(service.process.exitCode).toBeNull();
  });

  test("when Temporal is away for seconds, and what is published meanwhile is delivered later", async () => {
    parts.temporal.kill();
    const before = receiver.received.length;
    await wait(AWAY_MS / 2);
    await publishMany(service.grpcPort, parts.adminKey, MEANWHILE);
    await expect.poll(readiness).toMatchObject({ status: 503, body: expect.stringMatching(/Temporal/) });
    await wait(AWAY_MS / 2);
    expect(receiver.received.length).toBe(before);
    await parts.temporal.restart();
    await untilAllFinal(parts.db);
    await checkAttempts(parts.db);
    expect(await undelivered()).toEqual([]);
    expect(await parts.db("all_deliveries").where({ state: "delivered" }).count()).toEqual([
      { count: BigInt(EVENTS + MEANWHILE) },
    ]);
    expect(service.process.exitCode).toBeNull();
  });
});
