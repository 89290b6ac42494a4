import fc from "fast-check";
import { expect, test } from "vitest";
import { decideBreakers } from "../../../src/db/circuit-breaker/decide.ts";
import { transactionWithRetry } from "../../../src/db/deadlock.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { deleteEndpoint, updateEndpoint } from "../../../src/db/endpoints/endpoints.ts";
import { lockShared } from "../../../src/db/endpoints/shared-webhooks.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { deleteWebhook, idsOf } from "../../../src/db/webhooks/webhooks.ts";
import { FULL_SIZE } from "../../faults/scale.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ALL, freshClaimant, openQueueDatabase, result, SPACING } from "../queue/queue.ts";
import { MAX, newBox, newEndpoint, newKey, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

/** Opens after the first failure, so that decisions have something to do. */
const BREAKER = {
  failures: 1,
  failingSeconds: 0,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: false,
};

const type = fc.integer({ min: 1, max: 3 });
const change = fc.oneof(
  fc.record({ do: fc.constant("rename" as const), name: fc.constantFrom("a", "b", null) }),
  fc.record({ do: fc.constant("limit" as const), rateLimit: fc.constantFrom(5, 50, null) }),
  fc.record({ do: fc.constant("pause" as const), paused: fc.boolean() }),
  fc.record({ do: fc.constant("move" as const), path: fc.constantFrom("x", "y") }),
  fc.record({ do: fc.constant("breaker" as const), on: fc.boolean() }),
  fc.record({ do: fc.constant("rotate" as const), revoke: fc.boolean() }),
  fc.record({ do: fc.constant("key pair" as const) }),
  fc.record({ do: fc.constant("headers" as const), value: fc.constantFrom("1", "2") }),
  { weight: 3, arbitrary: fc.record({ do: fc.constant("add" as const), type }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("remove" as const), type }) },
  fc.record({ do: fc.constant("delete webhook" as const), which: fc.nat({ max: 2 }) }),
  fc.record({ do: fc.constant("delete endpoint" as const) }),
  fc.record({ do: fc.constant("transfer" as const) }),
  fc.record({ do: fc.constant("deliver" as const), status: fc.constantFrom(200, 500) }),
);
type Change = typeof change extends fc.Arbitrary<infer T> ? T : never;

/** What calls are refused with, if they come at the wrong time. A deadlock is none of these. */
const REFUSALS = ["FAILED_PRECONDITION", "ABORTED", "NOT_FOUND", "ALREADY_EXISTS"];

async function make(endpointId: string, first: bigint, asked: Change): Promise<void> {
  const everything = "everything" as const;
  const update = (changes: Parameters<typeof updateWebhook>[3]) =>
    updateWebhook(db, everything, first, changes);
  const types = (add: number[], remove: number[]) =>
    updateEndpoint(db, box, everything, { endpointId }, { add, remove }, MAX);
  const shared = (work: (trx: typeof db, ids: bigint[]) => Promise<void>) =>
    transactionWithRetry(db, async (trx) => work(trx, idsOf(await lockShared(trx, everything, first))));
  switch (asked.do) {
    case "rename":
      return void (await update({ name: asked.name }));
    case "limit":
      return void (await update({ rateLimit: asked.rateLimit }));
    case "pause":
      return void (await update({ paused: asked.paused }));
    case "move": {
      const url = `https://receiver.example/${endpointId}/${asked.path}`;
      return void (await update({ address: { url, targetUrl: url } }));
    }
    case "breaker":
      return void (await update({ breaker: asked.on ? BREAKER : null }));
    case "rotate":
      return shared((trx, ids) => rotateWebhookSecret(trx, box, ids, asked.revoke));
    case "key pair":
      return shared((trx, ids) => rotateKeyPair(trx, box, ids, false));
    case "headers": {
      const headers = [{ name: "X-Tenant", value: asked.value }];
      return shared((trx, ids) =>
        writeRequestSettings(trx, box, ids, { headers, authentication: null, tls: null }),
      );
    }
    case "add":
      return void (await types([asked.type], []));
    case "remove":
      return void (await types([], [asked.type]));
    case "delete webhook": {
      const ids = await db("webhooks")
        .where({ endpoint_id: endpointId, deleted: null })
        .orderBy("id")
        .pluck("id");
      const id = ids[asked.which];
      return void (id !== undefined && (await deleteWebhook(db, id)));
    }
    case "delete endpoint":
      return void (await deleteEndpoint(db, everything, endpointId));
    case "transfer": {
      const [owner] = await db("webhooks")
        .where({ endpoint_id: endpointId, deleted: null })
        .pluck("api_key_id");
      if (!owner) return;
      return void (await revokeApiKey(db, everything, owner, { transferTo: await newKey(db) }));
    }
    case "deliver": {
      const claimant = await freshClaimant(db);
      const { deliveries } = await claimPending(db, claimant, ALL);
      await recordAttempts(
        db,
        deliveries.map((delivery) => result(delivery, asked.status)),
        SPACING,
      );
      await foldDeltas(db);
      await decideBreakers(db, 30);
    }
  }
}

test("whatever is changed at the same time, all event types of an endpoint have the same owner, secrets and settings, and no call ends in a deadlock", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 2, maxLength: 12, size: "max" }), async (changes) => {
      const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
      const [first] = idsOf(webhooks) as [bigint];
      await updateWebhook(db, "everything", first, { breaker: BREAKER });
      // Of one event type: what is counted is shared nevertheless.
      await storeDeliveries(
        db,
        Array.from({ length: 5 }, () => ({ webhookId: first })),
      );
      await Promise.all(
        changes.map((asked) =>
          make(id, first, asked).catch((error: { code?: string }) => {
            if (!REFUSALS.includes(error.code ?? "")) throw error;
          }),
        ),
      );
      const [any, ...others] = (await sharedStates(db, box, id)).values();
      for (const other of others) expect(other).toEqual(any);
      const live = await db("webhooks").where({ deleted: null }).groupBy("process").select("process").count();
      const counted = await db("processes").where("live", ">", 0).select("process", "live");
      const byProcess = (some: readonly { process: number }[]) => some.map(({ process }) => process).sort();
      expect(byProcess(live as { process: number }[])).toEqual(byProcess(counted));
      await deleteEndpoint(db, "everything", id);
    }),
    { numRuns: FULL_SIZE ? 500 : 40 },
  );
}, 120_000);
