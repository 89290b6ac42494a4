import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Db, openDatabase } from "../../../src/db/database.ts";
import { type Claimant, claimGroup } from "../../../src/db/queue/claims.ts";
import { adoptRetries, assignGroups, groupStatuses } from "../../../src/db/queue/retry-groups.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { createTestDatabase } from "../../support/database.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { plansOf, undone } from "../explained.ts";
import { freshClaimant, queueMany, record } from "./queue.ts";

const FAILING = 5_000;
const AT_ONCE = 64;

const database = await createTestDatabase();
const db = openDatabase(database.url, { max: 2 });
let claimant: Claimant;
let group: number;
let members: number;

/** Very many webhooks with a delivery each that failed once, in groups; the planner has no statistics of them. */
beforeAll(async () => {
  const ids = await queueMany(db, { urlPrefix: "https://example.com/", webhooks: FAILING, events: 0 });
  claimant = await freshClaimant(db);
  const { runId } = claimant;
  const retry = { state: "retrying", attempts: 1, runId } as const;
  await storeDeliveries(
    db,
    ids.map((webhookId) => ({ webhookId, ...retry })),
  );
  const failing = await assignGroups(db, runId);
  expect(failing).toHaveLength(FAILING);
  group = failing[0]?.group ?? 0;
  members = failing.filter((webhook) => webhook.group === group).length;
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

describe("with very many failing webhooks in a run, and statistics from before them", () => {
  const claim = async (on: Db, { workerId }: Pick<Claimant, "workerId"> = claimant) => {
    const options = { group, limit: AT_ONCE, excluded: [] };
    const { deliveries } = await claimGroup(on, { workerId, runId: claimant.runId }, options);
    expect(deliveries).toHaveLength(AT_ONCE);
    return deliveries;
  };
  /** What is done before without counting; what is counted; and the pages that index, table, and writes take, and as many again. */
  const queries: Record<
    string,
    { prepare?(trx: Db): Promise<unknown>; query(trx: Db, before: never): Promise<unknown>; most(): number }
  > = {
    "claiming in a group": { query: (trx) => claim(trx), most: () => 40 * members },
    "looking at where a group stands": {
      query: (trx) => groupStatuses(trx, [{ runId: claimant.runId, group }]),
      most: () => 10 * members,
    },
    "recording what a group was answered": {
      prepare: (trx) => claim(trx),
      query: (trx, claimed) => record(trx, claimed, 500),
      most: () => 20 * AT_ONCE,
    },
    "claiming again what a dead worker had claimed": {
      async prepare(trx) {
        await claim(trx);
        await trx("workers").update({ lease_until: new Date(0) });
        expect(await endExpiredWorkers(trx)).toHaveLength(1);
        return freshClaimant(trx);
      },
      query: (trx, successor) => claim(trx, successor),
      most: () => 40 * members,
    },
    "adopting what a run has left": {
      async prepare(trx) {
        await trx("runs").update({ closed: new Date() });
        return freshClaimant(trx);
      },
      query: async (trx, next: Claimant) => expect(await adoptRetries(trx, next.runId)).toBe(FAILING),
      // Each row is found, locked and written, with its entries of the indexes.
      most: () => 30 * FAILING,
    },
  };

  test.each(Object.entries(queries))("%s reads no more than its own", (_what, { prepare, query, most }) =>
    undone(db, async (trx) => {
      const before = (await prepare?.(trx)) as never;
      const plans = await plansOf(trx, (inner) => query(inner, before), ["analyze", "buffers"]);
      const pages = plans.map((plan) => (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0));
      const read = pages.reduce((sum, some) => sum + some, 0);
      expect(read).toBeGreaterThan(0);
      expect(read).toBeLessThan(most());
    }),
  );
});
