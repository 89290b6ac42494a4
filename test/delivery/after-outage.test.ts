import pino from "pino";
import { afterEach, expect, test } from "vitest";
import { startReceiver } from "../../demo/receiver.ts";
import { openDatabase } from "../../src/db/database.ts";
import { WorkerLease } from "../../src/delivery/claims/worker-lease.ts";
import { createTestDatabase } from "../support/database.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { faulty, freshRun, pump, queueFor, startEngine } from "./engine-parts.ts";

/** As many as one webhook gets at a time. */
const DELIVERIES = 4;
/** A statement of each round of maintenance, after expired workers are ended. */
const OF_EACH_ROUND = /w\.emptied is null/;

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

test("after an outage of the database longer than all leases, no worker repeats requests of another live one", async () => {
  const answers = Promise.withResolvers<number>();
  const receiver = await startReceiver(
    await (await trustedAuthority()).issue(["localhost"]),
    () => answers.promise,
  );
  /** The engines without a database, by number. */
  const away = new Set<number>();
  let engines = 0;
  let rounds = 0;
  const parts = await startEngine(
    { HEARTBEAT_TIMEOUT: "40s" },
    {
      wrap(db) {
        const engine = engines;
        engines += 1;
        return faulty(db, (sql) => {
          if (away.has(engine)) return "refused";
          if (engine === 1 && OF_EACH_ROUND.test(sql)) rounds += 1;
          return undefined;
        });
      },
    },
  );
  ends.push(parts.end, receiver.close);
  const other = parts.another();
  await other.lease.start();
  await queueFor(parts, receiver.url, { webhooks: 1, events: DELIVERIES });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await expect.poll(() => receiver.received.length).toBe(DELIVERIES);

  away.add(0).add(1);
  await parts.db.raw("update workers set lease_until = now() - interval '1 second'");
  for (const { lease } of [parts.engine, other]) lease.verify();
  answers.resolve(200);
  // The other worker is the first to reach the database again.
  rounds = 0;
  away.delete(1);
  other.lease.verify();
  await expect.poll(() => rounds).toBeGreaterThanOrEqual(2);
  expect(await pump(other, await freshRun(parts.db))).toMatchObject({ sent: 0 });
  away.clear();
  expect(await pumped).toMatchObject({ delivered: DELIVERIES });
  expect(receiver.received).toHaveLength(DELIVERIES);
});

test("a worker that waits for a database that is read-only ends its wait when it stops", async () => {
  const database = await createTestDatabase();
  const name = new URL(database.url).pathname.slice(1);
  const admin = openDatabase(database.url, { max: 1 });
  await admin.raw(`alter database ${name} set default_transaction_read_only = on`);
  await admin.destroy();
  const db = openDatabase(database.url, { max: 1 });
  ends.push(database.drop, () => db.destroy());
  const stopping = new AbortController();
  const lease = new WorkerLease(db, 2_000, pino({ level: "silent" }), stopping.signal);
  const starting = lease.start();
  stopping.abort(new Error("stopped"));
  await expect(starting).rejects.toThrow("stopped");
  await lease.close();
});
