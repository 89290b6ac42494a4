import { setTimeout as wait } from "node:timers/promises";
import { afterEach, expect, test, vi } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { trustedAuthority } from "../support/test-service.ts";
import {
  type EngineOptions,
  type EngineParts,
  freshRun,
  observed,
  pump,
  queueFor,
  startEngine,
} from "./engine-parts.ts";

const RENEWAL = /^update workers set lease_until/;
const HOUR_MS = 3_600_000;

const ends: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** As on a machine that resumes after an hour: the wall clock has advanced, the monotonic clock and timers have not. */
function suspendForAnHour(): void {
  const { now } = Date;
  const clock = vi.spyOn(Date, "now").mockImplementation(() => now() + HOUR_MS);
  ends.push(() => clock.mockRestore());
}

/** An engine that has a lease of ten minutes and has delivered one delivery. */
async function start(options: EngineOptions): Promise<{ parts: EngineParts; receiver: Receiver }> {
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  ends.push(receiver.close);
  const parts = await startEngine({ HEARTBEAT_TIMEOUT: "10m" }, options);
  ends.push(parts.end);
  await queueFor(parts, `${receiver.url}/first`, { webhooks: 1, events: 1 });
  await pump(parts.engine, await freshRun(parts.db));
  expect(receiver.received).toHaveLength(1);
  return { parts, receiver };
}

test("after a suspension longer than its lease, a worker renews the lease before it sends", async () => {
  const sentBefore: number[] = [];
  const received: Receiver["received"][] = [];
  const { parts, receiver } = await start({
    wrap: (db) =>
      observed(db, (sql) => {
        if (RENEWAL.test(sql)) sentBefore.push(...received.map(({ length }) => length));
      }),
  });
  received.push(receiver.received);
  suspendForAnHour();
  await queueFor(parts, `${receiver.url}/later`, { webhooks: 1, events: 5 });
  expect(await pump(parts.engine, await freshRun(parts.db))).toMatchObject({ delivered: 5 });
  expect(sentBefore).toEqual([1]);
});

test("after a suspension, a worker reads which webhooks were paused or deleted before it sends", async () => {
  let gateway: DatabaseGateway | undefined;
  const { parts, receiver } = await start({
    async changesUrl(url) {
      gateway = await startDatabaseGateway(url);
      return gateway.url;
    },
  });
  const { hang, resume, close } = gateway as unknown as DatabaseGateway;
  ends.push(close);
  hang();
  suspendForAnHour();
  await queueFor(parts, `${receiver.url}/later`, { webhooks: 1, events: 3 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  const claimed = async () => (await rows(parts.db, "select from queue where claimed_by is not null")).length;
  await expect.poll(claimed).toBe(3);
  // Long enough to send them, had they not to wait.
  await wait(500);
  expect(receiver.received).toHaveLength(1);
  resume();
  expect(await pumped).toMatchObject({ delivered: 3 });
});
