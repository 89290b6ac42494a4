import { beforeEach, describe, expect, test } from "vitest";
import type { Db } from "../../../src/db/database.ts";
import { type Claimant, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { adoptRetries, assignGroups, groupStatuses } from "../../../src/db/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { plansOf } from "../explained.ts";
import { ALL, freshClaimant, NO_WAIT, openQueueDatabase, queueMany, result } from "./queue.ts";

const FAILING = 5_000;
const AT_ONCE = 64;

const db = await openQueueDatabase();
let claimant: Claimant;
let group: number;
let members: number;

/** Very many webhooks with a delivery each that failed once, in groups; the planner has no statistics of them. */
beforeEach(async () => {
  await queueMany(db, { urlPrefix: "https://example.com/", webhooks: FAILING, events: 1 });
  claimant = await freshClaimant(db);
  for (let after: bigint | null = 0n; after !== null; ) {
    const claimed = await claimPending(db, claimant, { ...ALL, after });
    for (let n = 0; n < claimed.deliveries.length; n += 200)
      await recordAttempts(
        db,
        claimed.deliveries.slice(n, n + 200).map((delivery) => result(delivery, 500)),
        NO_WAIT,
      );
    after = claimed.next;
  }
  const failing = await assignGroups(db, claimant.runId);
  expect(failing).toHaveLength(FAILING);
  group = failing[0]?.group ?? 0;
  members = failing.filter((webhook) => webhook.group === group).length;
});

/** Pages that the query's statements look at, in memory or not. */
async function pagesOf(query: (db: Db) => Promise<unknown>): Promise<number> {
  const plans = await plansOf(db, query, ["analyze", "buffers"]);
  return plans.reduce(
    (pages, plan) => pages + (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0),
    0,
  );
}

describe("with very many failing webhooks in a run, and statistics from before them", () => {
  const claim = { limit: AT_ONCE, excluded: [] };
  /** With the pages that index, table, and what a claim or a record changes take, and as many again. */
  const queries: [string, (db: Db) => Promise<unknown>, () => number][] = [
    ["claiming in a group", (trx) => claimGroup(trx, claimant, { ...claim, group }), () => 40 * members],
    [
      "looking at where a group stands",
      (trx) => groupStatuses(trx, [{ runId: claimant.runId, group }]),
      () => 10 * members,
    ],
    [
      "recording what a group was answered",
      async (trx) => {
        const { deliveries } = await claimGroup(db, claimant, { ...claim, group });
        expect(deliveries).toHaveLength(AT_ONCE);
        await recordAttempts(
          trx,
          deliveries.map((delivery) => result(delivery, 500)),
          NO_WAIT,
        );
      },
      () => 20 * AT_ONCE,
    ],
    [
      "claiming again what a dead worker had claimed",
      async (trx) => {
        await claimGroup(db, claimant, { ...claim, group });
        await db.raw("update workers set lease_until = now() - interval '1 second'");
        expect(await endExpiredWorkers(db)).toHaveLength(1);
        const successor = { ...(await freshClaimant(db)), runId: claimant.runId };
        const { deliveries } = await claimGroup(trx, successor, { ...claim, group });
        expect(deliveries).toHaveLength(AT_ONCE);
      },
      () => 40 * members,
    ],
    [
      "adopting what a run has left",
      async (trx) => {
        await db.raw("update runs set closed = now()");
        const next = await freshClaimant(db);
        expect(await adoptRetries(trx, next.runId)).toBe(FAILING);
      },
      // Each row is found, locked and written, with its entries of the indexes.
      () => 30 * FAILING,
    ],
  ];

  test.each(queries)("%s reads no more than its own", async (_what, query, bound) => {
    const pages = await pagesOf(query);
    expect(pages).toBeGreaterThan(0);
    expect(pages).toBeLessThan(bound());
  });
});
