import { randomBytes } from "node:crypto";
import pino from "pino";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { Instance, type OutdatedError } from "../../src/app/instance.ts";
import { openDatabase, rows } from "../../src/lib/pg/database.ts";
import { systemClock } from "../../src/lib/process/clock.ts";
import { ADVISORY_LOCKS } from "../../src/schema/advisory-locks.ts";
import { requireFeature } from "../../src/schema/instances.ts";
import { createTestDatabase, empty, useDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { spawnService } from "../support/spawned-service.ts";
import { until } from "../support/wait.ts";

const db = await useDatabase();
beforeEach(() => empty(db));

const required = (feature = "a-later-feature") => db.transaction((trx) => requireFeature(trx, feature));

/** An instance of a build that knows some features; its clock may be ahead. */
function anInstance(features: string[], { release = "0.4.0", aheadMs = (): number => 0 } = {}) {
  const outdated: OutdatedError[] = [];
  const instance = new Instance({
    db,
    log: pino({ level: "silent" }),
    release,
    role: "api",
    stopping: new AbortController().signal,
    onOutdated: (error) => outdated.push(error),
    features,
    clock: { ...systemClock, now: () => systemClock.now() + aheadMs() },
  });
  onTestFinished(() => instance.close());
  return Object.assign(instance, { outdated });
}

test("a feature is required once each live process knows it; until then, the error names those that do not", async () => {
  const [newer, older] = [anInstance(["a-later-feature"], { release: "0.5.0" }), anInstance([])];
  await newer.start();
  await older.start();
  await expect(required()).rejects.toThrow(
    /a-later-feature, which these processes do not know: \S+ \(release 0\.4\.0, api\);/,
  );
  await older.close();
  await required();
  await required();
  expect(newer.admit()).toBeUndefined();
});

test("a process that does not know a required feature does not start, even if it starts meanwhile", async () => {
  const older = anInstance([]);
  let starting: Promise<unknown> | undefined;
  await db.transaction(async (trx) => {
    await requireFeature(trx, "a-later-feature");
    starting = older.start().catch((error: unknown) => error);
    await until(isBlocked);
  });
  expect(String(await starting)).toMatch(/requires a-later-feature, which release 0\.4\.0 does not know/);
  expect(older.outdated).toHaveLength(1);
});

test("a process whose lease has expired does not hold up a requirement, and admits nothing until it has renewed the lease", async () => {
  let aheadMs = 0;
  const suspended = anInstance([], { aheadMs: () => aheadMs });
  await suspended.start();
  await db("instances").update({ lease_until: new Date(0) });
  aheadMs = 60_000;
  await suspended.admit();
  expect(suspended.admit()).toBeUndefined();
  await db("instances").update({ lease_until: new Date(0) });
  await required();
  aheadMs = 120_000;
  await expect(suspended.admit()).rejects.toThrow(/requires a-later-feature/);
  expect(suspended.outdated).toHaveLength(1);
});

test("workers and connections of releases without instances hold up a requirement", async () => {
  await db.raw(
    "insert into workers (name, task_queue, lease_until) values ('old-1/7', 'w', now() + interval '1 minute')",
  );
  await expect(required()).rejects.toThrow(/do not know: old-1\/7 \(release before 0\.4\.0, worker\)/);
  await db.raw("update workers set lease_until = now()");
  await required();
});

/** Whether a statement waits for the lock of features. */
async function isBlocked(): Promise<boolean> {
  const waiting = await rows(
    db,
    "select from pg_locks where locktype = 'advisory' and objid = (:features::bigint & 4294967295)::oid and not granted",
    { features: ADVISORY_LOCKS.features },
  );
  return waiting.length > 0;
}

test("a running service ends when the data requires what it does not know, and does not start again", async () => {
  const database = await createTestDatabase();
  const { address } = await part("temporal");
  const environment = {
    ROLE: "api",
    DATABASE_URL: database.url,
    TEMPORAL_ADDRESS: address,
    SECRET_KEY: randomBytes(32).toString("base64"),
  };
  const { ended, printed } = await spawnService(environment);
  const other = openDatabase(database.url, { max: 1 });
  onTestFinished(async () => {
    await other.destroy();
    await database.drop();
  });
  await other("required_features").insert({ name: "a-later-feature" });
  expect(await ended).toBe(1);
  expect(printed()).toMatch(
    /^the data requires a-later-feature, which release \S+ does not know:.*\nstopping: [\s\S]*\nstopped$/m,
  );
  expect(await other("instances").select()).toEqual([]);
  await expect(spawnService(environment)).rejects.toThrow(
    /Startup failed: the data requires a-later-feature/,
  );
});
