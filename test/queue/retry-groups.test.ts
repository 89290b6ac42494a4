import { describe, expect, test } from "vitest";
import type { Db } from "../../src/lib/pg/database.ts";
import { claimDue } from "../../src/queue/claims.ts";
import {
  adoptRetries,
  assignGroups,
  type FailingWebhook,
  MAX_GROUPS,
  settleGroups,
} from "../../src/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../src/queue/workers.ts";
import { undone } from "../schema/explained.ts";
import {
  claim,
  claimFirstGroup,
  claimRetries,
  failFirst,
  freshClaimant,
  openQueueDatabase,
  queue,
  queueEvents,
  queueMany,
  record,
} from "./queue.ts";

const db = await openQueueDatabase();
const HOUR_MS = 3_600_000;

/** Webhooks of which so many deliveries each have failed once. */
async function failing(...each: number[]) {
  const ids: bigint[] = [];
  for (const deliveries of each) ids.push(await queue(db, deliveries));
  return { ids, claimant: await failFirst(db) };
}

const inAnHour = () => db.raw("now() + interval '1 hour'");

describe("a retry group", () => {
  test("tells how many are open, and for how long none is due or free", async () => {
    const { claimant } = await failing(6);
    const { runId } = claimant;
    /** How many of the group are open, and the hours until one is due or free. No other group has any. */
    const status = async () => {
      const [other, own] = await settleGroups(db, [
        { runId, group: 2 },
        { runId, group: 1 },
      ]);
      expect(other).toMatchObject({ open: 0, delayMs: 0 });
      return [own?.open, Math.ceil((own?.delayMs ?? 0) / HOUR_MS)];
    };
    expect(await status()).toEqual([6, 0]);
    await db("retries").update({ due: inAnHour() });
    expect(await status()).toEqual([6, 1]);
    expect(await claimRetries(db, claimant)).toEqual([]);
    expect(await assignGroups(db, runId)).toMatchObject([{ group: 1, deliveries: 6, isProbe: false }]);
    await db("retries").update({ due: db.raw("now()") });
    // All are due, and held: by one worker whose lease ends in two hours, and by one whose lease ends in an hour.
    const second = { ...(await freshClaimant(db, HOUR_MS)), runId };
    const leaseEnds = (moment: string) =>
      db("workers")
        .where({ id: claimant.workerId })
        .update({ lease_until: db.raw(moment) });
    await leaseEnds("now() + interval '2 hours'");
    expect(await claimRetries(db, claimant, 4)).toHaveLength(4);
    expect(await claimRetries(db, second)).toHaveLength(2);
    expect(await status()).toEqual([6, 1]);
    await db("retries").where({ claimed_by: second.workerId }).delete();
    expect(await status()).toEqual([4, 2]);
    await leaseEnds("now() - interval '1 second'");
    await endExpiredWorkers(db);
    expect(await claimRetries(db, second)).toHaveLength(4);
  });

  test("leaves the retries of paused and deleted webhooks to other runs, except the probe of a circuit breaker", async () => {
    const { ids, claimant } = await failing(2, 2, 2, 2);
    const { runId } = claimant;
    const [paused, probed, deleted, failed] = ids.map(String) as [string, string, string, string];
    const [probe] = await db("retries").where({ webhook_id: probed }).pluck("id");
    await db("webhooks").whereIn("id", [paused, probed]).update({ paused: new Date() });
    await db("webhooks").where("id", probed).update({ test_delivery: probe, probe_attempts: 1 });
    await db("webhooks").where("id", deleted).update({ deleted: new Date() });
    expect(await settleGroups(db, [{ runId, group: 1 }])).toMatchObject([{ open: 3 }]);
    const left = await db("retries").where({ run_id: runId });
    expect(left.filter(({ id }) => id !== probe).map(({ webhook_id }) => String(webhook_id))).toEqual([
      failed,
      failed,
    ]);
    expect(left).toHaveLength(3);
  });

  test("gives all of its webhooks turns when a claim is smaller than their number", async () => {
    const claims = 50;
    const ids = await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 6, events: claims });
    const claimant = await failFirst(db);
    const served = new Set<bigint>();
    for (let n = 0; n < claims; n += 1)
      for (const { webhook } of await claimRetries(db, claimant, 2)) served.add(webhook.id);
    // Two of them have enough for all claims. The others are left out with a probability of 10^-8.
    expect(served).toEqual(new Set(ids));
  });

  test("is claimed from fairly between its webhooks, and not at all from those that are left out", async () => {
    const { ids, claimant } = await failing(40, 2, 40);
    const [large, small, full] = ids as [bigint, bigint, bigint];
    const claimed = await claimFirstGroup(db, claimant, { limit: 10, excluded: [full] });
    const share = (id: bigint) => claimed.deliveries.filter(({ webhook }) => webhook.id === id).length;
    expect([large, small, full].map(share)).toEqual([5, 2, 0]);
    expect(claimed.limited).toEqual([]);
  });

  test("shares a claim with others, of other runs too: a webhook in both has one rate limit", async () => {
    const { ids, claimant } = await failing(3, 3);
    const [limited, free] = ids as [bigint, bigint];
    await queueEvents(db, ids, 3);
    const later = await failFirst(db, { ...claimant, runId: (await freshClaimant(db)).runId });
    await db("run_groups").where({ run_id: later.runId, webhook_id: free }).update({ group_number: 2 });
    const tokens = { rate_limit: 1_000, rate_tokens: 4, rate_at: db.raw("now() + interval '30 seconds'") };
    await db("webhooks").where({ id: limited }).update(tokens);
    const keys = [claimant, later].map(({ runId }) => ({ runId, group: 1 }));
    const claimed = await claimDue(db, claimant.workerId, { groups: keys, limit: 100, excluded: [] });
    const found = Map.groupBy(claimed.deliveries, ({ webhook }) => webhook.id);
    expect(found.get(limited)).toHaveLength(4);
    expect(found.get(free)?.map(({ runId, group }) => ({ runId, group }))).toEqual(Array(3).fill(keys[0]));
    expect(claimed.limited).toEqual(keys);
  });

  test("belongs to one of the 20 webhooks with the most deliveries, to one of the 20 hosts with most of the others, or to the rest", async () => {
    const registered = async (host: string, webhooks: number, events: number) =>
      queueMany(db, { urlPrefix: `https://${host}.example/`, webhooks, events });
    await registered("many", 25, 3);
    for (let host = 0; host < 21; host += 1) await registered(`h${host}`, host === 7 ? 1 : 2, 1);
    const { runId } = await failMany();
    const found = await assignGroups(db, runId);
    const groups = Map.groupBy(found, ({ group }) => group);
    expect([...groups.keys()]).toEqual(Array.from({ length: MAX_GROUPS }, (_, n) => n + 1));
    for (let own = 1; own <= 20; own += 1)
      expect(groups.get(own)).toMatchObject([{ host: "many.example", deliveries: 3 }]);
    for (let shared = 21; shared <= 40; shared += 1)
      expect(new Set(groups.get(shared)?.map(({ host }) => host)).size).toBe(1);
    expect(groups.get(21)).toHaveLength(5);
    // The host with the fewest, and one of those with two.
    expect(groups.get(41)).toHaveLength(3);
    expect(groups.get(41)?.map(({ host }) => host)).toContain("h7.example");
    expect(await assignGroups(db, runId)).toEqual(found);
  });

  test("stays the same when more webhooks fail later: these get what is left, of runs of earlier releases too", async () => {
    const { ids, claimant } = await failing(1, 1, 1);
    const { runId } = claimant;
    // An earlier release had up to 200.
    for (const [n, group] of [5, 21, 200].entries())
      await db("run_groups")
        .where({ webhook_id: String(ids[n]) })
        .update({ group_number: group });
    await queueMany(db, { urlPrefix: "https://later.example/", webhooks: 20, events: 2 });
    await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 2, events: 1 });
    await failMany(claimant);
    const groupsOf = (host: string, found: readonly FailingWebhook[]) =>
      found.filter((webhook) => webhook.host === host).map(({ group }) => group);
    const found = await assignGroups(db, runId);
    expect(groupsOf("example.com", found)).toEqual([5, 21, 21, 21, 200]);
    expect(groupsOf("later.example", found)).toEqual([
      ...Array.from({ length: 20 }, (_, n) => n + 1).filter((group) => group !== 5),
      22,
    ]);
  });

  test("is one of fewer while other runs have failing webhooks too", async () => {
    const other = await failing(1);
    await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 30, events: 1 });
    const { runId } = await failMany();
    const groups = async (trx: Db) =>
      new Set((await assignGroups(trx, runId)).map(({ group }) => group)).size;
    await undone(db, async (trx) => expect(await groups(trx)).toBe(11));
    await db("runs").where({ id: other.claimant.runId }).update({ closed: new Date() });
    expect(await groups(db)).toBe(21);
  });

  test("tells the last error of the webhook with the most deliveries", async () => {
    const { claimant } = await failing(1, 2);
    const found = await assignGroups(db, claimant.runId);
    expect(found.map(({ deliveries, lastError }) => [deliveries, lastError])).toEqual([
      [1, null],
      [2, "500"],
    ]);
  });
});

/** Makes the first attempt of what is pending, in vain, without groups. */
async function failMany(claimant?: Awaited<ReturnType<typeof freshClaimant>>) {
  const by = claimant ?? (await freshClaimant(db));
  await record(db, await claim(db, by), 500);
  return by;
}

test("a run adopts the retries of a run that is deleted with its account by now, those that are due within a minute", async () => {
  const { claimant } = await failing(3);
  const [first] = await db("retries").pluck("id");
  await db("retries").where({ id: first }).update({ due: inAnHour() });
  const { runId } = await freshClaimant(db);
  expect(await adoptRetries(db, runId)).toBe(0);
  await db("runs").where({ id: claimant.runId }).delete();
  expect(await adoptRetries(db, runId)).toBe(2);
  expect(await adoptRetries(db, runId)).toBe(0);
  expect(await db("retries").where({ run_id: runId }).whereNot({ id: first }).pluck("id")).toHaveLength(2);
});
