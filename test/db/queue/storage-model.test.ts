import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { decideBreakers } from "../../../src/db/circuit-breaker/decide.ts";
import { type Db, openDatabase } from "../../../src/db/database.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { sendManyAgain } from "../../../src/db/deliveries/send-again.ts";
import { fanOutStep } from "../../../src/db/events/fan-out.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import { type ClaimResult, claimGroup, claimPending, release } from "../../../src/db/queue/claims.ts";
import { endExpired } from "../../../src/db/queue/endings.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import {
  adoptRetries,
  assignGroups,
  groupStatuses,
  leavePaused,
} from "../../../src/db/queue/retry-groups.ts";
import { abandonRun, closeRun } from "../../../src/db/queue/runs.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { cancelOfDeleted, createWebhook, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { FULL_SIZE, tell } from "../../faults/scale.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { NO_WAIT, result, TABLES } from "./queue.ts";
import { type Allowed, type ModelWorker, type Place, StorageModel } from "./storage-model.ts";

/** Histories, and steps of each. At full size as many as fit into the time. */
const HISTORIES = FULL_SIZE ? 1_000_000 : 40;
const STEPS = 120;
const TIME_LIMIT_MS = FULL_SIZE ? 3_600_000 : 120_000;
/** Few, so that histories reach every branch: events for more webhooks are fanned out, so many in a step. */
const MAX_INLINE = 3;
const FAN_OUT_STEP = 2;
/** Longer than any history takes. */
const RETRY_AFTER_MS = 24 * 3_600_000;

let database: TestDatabase;
let db: Db;
let steps = 0;
let [probes, closed] = [0, 0];
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 5 });
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

type Command = fc.AsyncCommand<StorageModel, Db, boolean>;

/** A command of one step; what it may do to deliveries is checked after it. */
function command(name: string, run: (model: StorageModel, on: Db) => Promise<Allowed>): Command {
  return {
    check: () => true,
    async run(model, on) {
      steps += 1;
      await model.check(await run(model, on));
    },
    toString: () => name,
  };
}

const nothing: Allowed = () => false;
const pick = <T>(from: readonly T[], n: number): T | undefined => from[n % Math.max(1, from.length)];

/** Fails at the n-th statement, as a connection that breaks does: what is in a transaction then is rolled back. */
function breaking(on: Db, n: number): Db {
  let left = n;
  const wrap = (target: Db): Db =>
    new Proxy(target, {
      get(from, property, receiver) {
        if (property === "raw") {
          return (...args: Parameters<Db["raw"]>) => {
            left -= 1;
            if (left < 0) throw Object.assign(new Error("connection lost"), { code: "ECONNRESET" });
            return from.raw(...args);
          };
        }
        if (property === "transaction") {
          return (work: (trx: Db) => Promise<unknown>) => from.transaction((trx) => work(wrap(trx as Db)));
        }
        return Reflect.get(from, property, receiver);
      },
    });
  return wrap(on);
}

/** Runs work whose n-th statement fails; without an n, or when it has fewer, it runs to its end. */
async function orBreak(on: Db, breakAt: number | null, work: (on: Db) => Promise<unknown>): Promise<boolean> {
  try {
    await work(breakAt === null ? on : breaking(on, breakAt));
    return true;
  } catch (error) {
    if ((error as { code?: string }).code !== "ECONNRESET") throw error;
    return false;
  }
}

/** A claim marks rows that nobody held; nothing else changes. */
async function tookNote(
  model: StorageModel,
  worker: ModelWorker,
  table: Place["table"],
  claim: ClaimResult,
): Promise<Allowed> {
  const heldBack = await model.heldBack();
  const taken = new Set(claim.deliveries.map(({ id }) => id));
  for (const delivery of claim.deliveries) {
    const before = model.place(delivery.id) as Place;
    expect(before).toMatchObject({ table, attempts: delivery.token.attempts });
    expect(model.isHeld(before), "a claim took what another worker holds").toBe(false);
    expect(before.waits, "a claim took what is not due").toBe(false);
    const webhook = model.webhook(before.webhookId);
    expect([webhook.live, webhook.paused]).toEqual([true, false]);
    if (heldBack.has(webhook.id)) {
      const attempts = table === "queue" ? null : before.attempts;
      expect(heldBack.get(webhook.id), "a claim took more than the probe").toEqual({
        id: delivery.id,
        attempts,
      });
      probes += 1;
    }
    worker.held.push({ delivery, posted: false });
  }
  return (before, after) => before !== null && taken.has(before.id) && after?.claimedBy === worker.id;
}

const number = fc.nat({ max: 1_000 });
const breakAt = fc.option(fc.nat({ max: 4 }), { freq: 6 });

const commands: fc.Arbitrary<Command>[] = [
  fc.record({ process: fc.integer({ min: 1, max: 2 }), at: breakAt }).map(({ process, at }) =>
    command(`create a webhook of type ${process}`, async (model, on) => {
      const url = `https://receiver.example/${randomUUID()}`;
      const apiKeyId = model.apiKeyId;
      await orBreak(on, at, async (broken) => {
        const made = await createWebhook(
          broken,
          model.secrets,
          { process, url, targetUrl: url, apiKeyId },
          1_000,
        );
        model.webhooks.push({ id: made.webhook.id, process, live: true, paused: false });
      });
      return nothing;
    }),
  ),
  fc.record({ n: number, at: breakAt }).map(({ n, at }) =>
    command(`delete webhook ${n}`, async (model, on) => {
      const webhook = pick(
        model.webhooks.filter(({ live }) => live),
        n,
      );
      if (!webhook || n % 3 > 0) return nothing;
      if (await orBreak(on, at, (broken) => deleteWebhook(broken, webhook.id))) webhook.live = false;
      else return nothing;
      return (before, after) =>
        before?.webhookId === webhook.id && !model.isHeld(before) && after?.outcome === "cancelled";
    }),
  ),
  fc.record({ n: number, paused: fc.boolean() }).map(({ n, paused }) =>
    command(`${paused ? "pause" : "resume"} webhook ${n}`, async (model, on) => {
      const webhook = pick(
        model.webhooks.filter(({ live }) => live),
        n,
      );
      if (!webhook) return nothing;
      await updateWebhook(on, "everything", webhook.id, { paused });
      webhook.paused = paused;
      return nothing;
    }),
  ),
  fc.record({ process: fc.integer({ min: 1, max: 2 }), again: fc.boolean() }).map(({ process, again }) =>
    command(`publish an event of type ${process}${again ? " twice" : ""}`, async (model, on) => {
      const event = {
        apiKeyId: model.apiKeyId,
        idempotencyKey: randomUUID(),
        requestSha256: "00",
        process,
        userId: "u",
        occurred: null,
        payload: "{}",
      };
      const [made] = await publishEvents(on, [event], MAX_INLINE);
      if (!made || "firstEventId" in made) throw new Error("not published");
      const recipients = model.live(process).map(({ id }) => id);
      expect(made.queued).toBe(recipients.length);
      model.recipients.set(made.eventId, new Set(recipients));
      if (again) {
        // The caller that did not hear the answer calls again.
        expect(await publishEvents(on, [event], MAX_INLINE)).toMatchObject([
          { eventId: made.eventId, duplicate: true },
        ]);
      }
      return (before, after) =>
        before === null &&
        after?.eventId === made.eventId &&
        after.table === "queue" &&
        recipients.length <= MAX_INLINE;
    }),
  ),
  fc.constant(null).map(() =>
    command("fan out", async (_model, on) => {
      await fanOutStep(on, FAN_OUT_STEP);
      return (before, after) => before === null && after?.table === "queue" && after.claimedBy === null;
    }),
  ),
  fc.record({ w: number, limit: fc.integer({ min: 1, max: 4 }) }).map(({ w, limit }) =>
    command(`worker ${w} claims ${limit} first attempts`, async (model, on) => {
      const worker = pick(
        model.workers.filter(({ alive }) => alive),
        w,
      ) as ModelWorker;
      const claimant = { workerId: worker.id, runId: model.runId };
      const claim = await claimPending(on, claimant, { limit, after: 0n, excluded: [] });
      return tookNote(model, worker, "queue", claim);
    }),
  ),
  fc.record({ w: number, limit: fc.integer({ min: 1, max: 4 }) }).map(({ w, limit }) =>
    command(`worker ${w} claims ${limit} retries`, async (model, on) => {
      const worker = pick(
        model.workers.filter(({ alive }) => alive),
        w,
      ) as ModelWorker;
      const { runId } = model;
      await leavePaused(on, runId);
      await adoptRetries(on, runId);
      await model.checkAdopted();
      const group = pick(await assignGroups(on, runId), w)?.group;
      if (group === undefined) return nothing;
      const [status] = await groupStatuses(on, [{ runId, group }]);
      const claim = await claimGroup(on, { workerId: worker.id, runId }, { group, limit, excluded: [] });
      // Where a group stands tells when there is something to claim, what others hold included.
      expect(claim.touched > 0).toBe(status !== undefined && status.open > 0 && status.delayMs === 0);
      return tookNote(model, worker, "retries", claim);
    }),
  ),
  fc.record({ w: number, n: number, ok: fc.boolean(), twice: fc.boolean() }).map(({ w, n, ok, twice }) =>
    command(
      `worker ${w} sends and records ${ok ? "success" : "failure"}${twice ? " twice" : ""}`,
      async (model, on) => {
        const worker = pick(model.workers, w) as ModelWorker;
        const held = pick(worker.held, n);
        // A worker whose lease was ended sends nothing more, but what it has sent may still be answered.
        if (!held || (!worker.alive && !held.posted)) return nothing;
        if (!held.posted) model.post(worker, held);
        const before = model.place(held.delivery.id);
        const matches = before?.claimedBy === worker.id && before.attempts === held.delivery.token.attempts;
        const waits = n % 3 === 0;
        const one = {
          ...result(held.delivery, ok ? 200 : 500),
          retryAfterMs: !ok && waits ? RETRY_AFTER_MS : null,
        };
        const states = await recordAttempts(on, [one], NO_WAIT);
        expect(states.size).toBe(matches ? 1 : 0);
        if (twice) expect((await recordAttempts(on, [one], NO_WAIT)).size).toBe(0);
        worker.held.splice(worker.held.indexOf(held), 1);
        return (was, after) => {
          if (!matches || was?.id !== held.delivery.id || !after) return false;
          const attempts = was.attempts + 1;
          if (after.attempts !== attempts || after.roundStart !== was.roundStart || after.claimedBy !== null)
            return false;
          if (ok) return after.outcome === "delivered";
          if (!model.webhook(was.webhookId).live) return after.outcome === "cancelled";
          if (attempts - was.roundStart === 4) return after.outcome === "failed";
          return after.table === "retries" && after.waits === waits;
        };
      },
    ),
  ),
  fc.record({ n: number, ok: fc.boolean() }).map(({ n, ok }) =>
    command(
      `a late ${ok ? "success" : "failure"} of a worker that has lost its claims`,
      async (model, on) => {
        const late = model.workers
          .filter(({ alive }) => !alive)
          .flatMap((worker) => worker.held.filter(({ posted }) => posted).map((held) => ({ worker, held })));
        // Rather one whose delivery another worker has claimed since.
        const claimedSince = late.filter(({ held }) => {
          const place = model.place(held.delivery.id);
          return place !== undefined && model.isHeld(place);
        });
        const chosen = pick(claimedSince.length > 0 ? claimedSince : late, n);
        if (!chosen) return nothing;
        const { worker, held } = chosen;
        const before = model.place(held.delivery.id);
        const matches = before?.claimedBy === worker.id && before.attempts === held.delivery.token.attempts;
        const states = await recordAttempts(on, [result(held.delivery, ok ? 200 : 500)], NO_WAIT);
        expect(states.size).toBe(matches ? 1 : 0);
        worker.held.splice(worker.held.indexOf(held), 1);
        return (was, after) =>
          matches && was?.id === held.delivery.id && after?.attempts === was.attempts + 1;
      },
    ),
  ),
  fc.record({ w: number, n: number }).map(({ w, n }) =>
    command(`worker ${w} sends without a result yet`, async (model) => {
      const worker = pick(
        model.workers.filter(({ alive }) => alive),
        w,
      ) as ModelWorker;
      const held = pick(
        worker.held.filter(({ posted }) => !posted),
        n,
      );
      if (held) model.post(worker, held);
      return nothing;
    }),
  ),
  fc.record({ w: number, n: number }).map(({ w, n }) =>
    command(`worker ${w} releases`, async (model, on) => {
      const worker = pick(model.workers, w) as ModelWorker;
      const held = pick(
        worker.held.filter(({ posted }) => !posted),
        n,
      );
      if (!held) return nothing;
      await release(on, worker.id, [held.delivery]);
      worker.held.splice(worker.held.indexOf(held), 1);
      return (before, after) =>
        before?.id === held.delivery.id && before.claimedBy === worker.id && after?.claimedBy === null;
    }),
  ),
  number.map((n) =>
    command(`worker ${n} dies`, async (model, on) => {
      if (n % 3 > 0) return nothing;
      const alive = model.workers.filter((each) => each.alive);
      // Rather one that has sent something: its late result may meet another worker's claim.
      const busy = alive.filter(({ held }) => held.some(({ posted }) => posted));
      const worker = pick(busy.length > 0 ? busy : alive, n) as ModelWorker;
      await on.raw("update workers set lease_until = now() - interval '1 second' where id = ?", [worker.id]);
      expect(await endExpiredWorkers(on)).toEqual(["model"]);
      worker.alive = false;
      model.workers.push(await model.newWorker());
      return nothing;
    }),
  ),
  number.map((n) =>
    command("send ended deliveries again", async (model, on) => {
      const webhook = pick(model.webhooks, n);
      if (!webhook) return nothing;
      const states = ["delivered", "failed", "cancelled"] as const;
      const filter = { webhookId: webhook.id, states };
      const { sent } = await sendManyAgain(on, "everything", filter, {
        limit: 1 + (n % 3),
        retentionDays: 30,
      });
      if (!webhook.live) expect(sent).toBe(0);
      return (before, after) =>
        before?.table === "deliveries" &&
        before.webhookId === webhook.id &&
        after?.table === "queue" &&
        after.attempts === before.attempts &&
        after.roundStart === before.attempts;
    }),
  ),
  fc.constant(null).map(() =>
    command("cancel what is left of deleted webhooks", async (model, on) => {
      await cancelOfDeleted(on);
      return (before, after) =>
        before !== null &&
        !model.webhook(before.webhookId).live &&
        !model.isHeld(before) &&
        after?.outcome === "cancelled";
    }),
  ),
  number.map((n) =>
    command("expire what is older than a delivery", async (model, on) => {
      const bound = pick(model.places, n)?.id;
      if (bound === undefined || n % 5 > 0) return nothing;
      await endExpired(on, bound, 2);
      return (before, after) =>
        before !== null && before.id < bound && !model.isHeld(before) && after?.outcome === "failed";
    }),
  ),
  fc.constant(null).map(() =>
    command("close the run, unless it has retries, and open another", async (model, on) => {
      const open = await model.retriesOfRun();
      expect(await closeRun(on, model.runId)).toMatchObject({ open, putBack: 0 });
      const [run] = await on("runs").where({ id: model.runId });
      expect(run.closed === null).toBe(open > 0);
      if (open === 0) await model.newRun();
      return nothing;
    }),
  ),
  number.map((n) =>
    command("abandon the run and open another", async (model, on) => {
      if (n % 3 > 0) return nothing;
      const putBack = await model.retriesOfRun();
      expect(await abandonRun(on, model.runId)).toMatchObject({ open: 0, putBack });
      expect(await model.retriesOfRun()).toBe(0);
      await model.newRun();
      return nothing;
    }),
  ),
  fc.constant(null).map(() =>
    command("wait until every retry is due", async (_model, on) => {
      await on.raw("update retries set due = now() where due > now()");
      return (before, after) => before?.waits === true && after?.table === "retries" && !after.waits;
    }),
  ),
  number.map((n) =>
    command(`${n % 7 === 0 ? "remove" : "set"} the circuit breaker of webhook ${n}`, async (model, on) => {
      const webhook = pick(
        model.webhooks.filter(({ live }) => live),
        n,
      );
      if (!webhook) return nothing;
      const breaker = {
        failures: 1 + (n % 2),
        failingSeconds: 60,
        probeSeconds: 60,
        disableSeconds: n % 11 === 0 ? 60 : 432_000,
        disableOnGone: false,
        resendFailed: n % 2 === 0,
      };
      await updateWebhook(on, "everything", webhook.id, { breaker: n % 7 === 0 ? null : breaker });
      return nothing;
    }),
  ),
  number.map((n) =>
    command("let ten minutes pass for circuit breakers, and decide on them", async (model, on) => {
      await foldDeltas(on);
      await on.raw(
        `update webhook_breakers set failing_since = failing_since - interval '10 minutes',
          next_probe = next_probe - interval '10 minutes', due = now()`,
      );
      await orBreak(on, n % 4 === 0 ? n % 7 : null, async (broken) => {
        const { changes } = await decideBreakers(broken, 30);
        closed += changes.filter(({ state }) => state === "closed").length;
      });
      await model.checkStatistics();
      return (before, after) =>
        before?.outcome === "failed" &&
        after?.table === "queue" &&
        after.attempts === before.attempts &&
        after.roundStart === before.attempts;
    }),
  ),
  breakAt.map((at) =>
    command("fold statistics", async (model, on) => {
      await orBreak(on, at, foldDeltas);
      await model.checkStatistics();
      return nothing;
    }),
  ),
];

/** Publish, claim, record, late results, send without a result, die, breakers: these more often, since others need what they leave. */
const OFTEN = [3, 3, 5, 5, 6, 6, 6, 7, 7, 7, 8, 9, 11, 18, 19, 19];

test("whatever happens in whatever order, no delivery is lost, doubled or sent by two workers, and every count is right", {
  timeout: TIME_LIMIT_MS + 60_000,
}, async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.commands([...commands, ...OFTEN.map((place) => commands[place] as fc.Arbitrary<Command>)], {
        maxCommands: STEPS,
        size: "max",
      }),
      async (all) => {
        await db.raw(`truncate ${TABLES}, api_keys cascade`);
        const model = new StorageModel(db);
        await model.start();
        await fc.asyncModelRun(() => ({ model, real: db }), all);
        await model.checkStatistics();
        await model.checkAttempts();
      },
    ),
    { numRuns: HISTORIES, interruptAfterTimeLimit: TIME_LIMIT_MS, endOnFailure: true, verbose: 1 },
  );
  tell(`${steps} steps, ${probes} probes, ${closed} breakers closed`);
  // Forty histories do not always get as far.
  if (FULL_SIZE) expect(Math.min(probes, closed)).toBeGreaterThan(0);
});
