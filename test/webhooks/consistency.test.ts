import fc from "fast-check";
import { expect, test } from "vitest";
import { revokeKey } from "../../src/app/revoke-key.ts";
import { decideBreakers } from "../../src/breakers/decide.ts";
import { transactionWithRetry } from "../../src/lib/pg/deadlock.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { deleteEndpoint, updateEndpoint } from "../../src/webhooks/endpoints.ts";
import { rotateKeyPair } from "../../src/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../src/webhooks/request-settings.ts";
import { lockShared } from "../../src/webhooks/shared-webhooks.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { rotateWebhookSecret } from "../../src/webhooks/webhook-secrets.ts";
import { updateWebhook, type WebhookChanges } from "../../src/webhooks/webhook-update.ts";
import { idsOf } from "../../src/webhooks/webhooks.ts";
import { SETTINGS } from "../breakers/breakers.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { claim, openQueueDatabase, record, SPACING } from "../queue/queue.ts";
import { aKey } from "../support/builders.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { MAX, newBox, newEndpoint, sharedStates } from "./endpoints.ts";

const db = await openQueueDatabase();
const box = newBox();

/** Opens after the first failure, so that decisions have something to do. */
const BREAKER = { ...SETTINGS, failures: 1, failingSeconds: 0 };

/** A change of an endpoint, by its id and its first webhook. */
type Change = (endpointId: string, first: bigint) => Promise<unknown>;

const update =
  (changes: WebhookChanges): Change =>
  (_id, first) =>
    updateWebhook(db, "everything", first, changes);
const shared =
  (work: (trx: typeof db, ids: bigint[]) => Promise<unknown>): Change =>
  (_id, first) =>
    transactionWithRetry(db, async (trx) => work(trx, idsOf(await lockShared(trx, "everything", first))));
const types =
  (add: number[], remove: number[]): Change =>
  (endpointId) =>
    updateEndpoint(db, box, "everything", { endpointId }, { add, remove }, MAX, cancelFirst);
const headers = (value: string) => ({
  headers: [{ name: "X-Tenant", value }],
  authentication: null,
  tls: null,
});
const live = (endpointId: string, column: string) =>
  db("webhooks").where({ endpoint_id: endpointId, deleted: null }).orderBy("id").pluck(column);

const move: Change = (id, first) => {
  const url = `https://receiver.example/${id}/moved`;
  return updateWebhook(db, "everything", first, { address: { url, targetUrl: url } });
};
const transfer: Change = async (id) => {
  const [owner] = await live(id, "api_key_id");
  if (owner) await revokeKey(db, "everything", owner, { transferTo: (await aKey().in(db)).id });
};
const deleteOne =
  (n: number): Change =>
  async (id) => {
    const webhookId = (await live(id, "id"))[n];
    if (webhookId !== undefined) await deleteWebhook(db, webhookId, cancelFirst);
  };
const deliver =
  (status: number): Change =>
  async () => {
    await record(db, await claim(db), status, SPACING);
    await foldDeltas(db);
    await decideBreakers(db, 30);
  };

const CHANGES: Record<string, readonly Change[]> = {
  rename: ["a", "b", null].map((name) => update({ name })),
  limit: [5, 50, null].map((rateLimit) => update({ rateLimit })),
  timeout: [1_000, null].map((timeoutMs) => update({ timeoutMs })),
  pause: [true, false].map((paused) => update({ paused })),
  breaker: [BREAKER, null].map((breaker) => update({ breaker })),
  rotate: [true, false].map((revoke) => shared((trx, ids) => rotateWebhookSecret(trx, box, ids, revoke))),
  "key pair": [shared((trx, ids) => rotateKeyPair(trx, box, ids, false))],
  headers: ["1", "2"].map((value) =>
    shared((trx, ids) => writeRequestSettings(trx, box, ids, headers(value))),
  ),
  add: [1, 2, 3].map((type) => types([type], [])),
  remove: [1, 2, 3].map((type) => types([], [type])),
  "delete webhook": [0, 1, 2].map(deleteOne),
  "delete endpoint": [(id) => deleteEndpoint(db, "everything", id, cancelFirst)],
  move: [move],
  transfer: [transfer],
  deliver: [200, 500].map(deliver),
};
const KINDS = [...Object.keys(CHANGES), "add", "add", "remove"];
const aChange = fc.record({ kind: fc.constantFrom(...KINDS), n: fc.nat({ max: 5 }) });
const someChanges = fc.array(aChange, { minLength: 2, maxLength: 12, size: "max" });

/** What calls are refused with, if they come at the wrong time. A deadlock is none of these. */
const REFUSALS = ["FAILED_PRECONDITION", "ABORTED", "NOT_FOUND", "ALREADY_EXISTS"];

test("whatever is changed at the same time, all event types of an endpoint have the same owner, secrets and settings, and no call ends in a deadlock", async () => {
  await fc.assert(
    fc.asyncProperty(someChanges, async (changes) => {
      const { id, webhooks } = await newEndpoint(db, box, [1, 2]);
      const [first] = idsOf(webhooks) as [bigint];
      await updateWebhook(db, "everything", first, { breaker: BREAKER });
      // Of one event type: what is counted is shared nevertheless.
      await storeDeliveries(db, Array(5).fill({ webhookId: first }));
      await Promise.all(
        changes.map(({ kind, n }) => {
          const some = CHANGES[kind] as Change[];
          return some[n % some.length]?.(id, first).catch((error: { code?: string }) => {
            if (!REFUSALS.includes(error.code ?? "")) throw error;
          });
        }),
      );
      const [any, ...others] = (await sharedStates(db, box, id)).values();
      for (const other of others) expect(other).toEqual(any);
      const stored = await db("webhooks")
        .where({ deleted: null })
        .distinct()
        .orderBy("process")
        .pluck("process");
      expect(await db("processes").where("live", ">", 0).orderBy("process").pluck("process")).toEqual(stored);
      await deleteEndpoint(db, "everything", id, cancelFirst);
    }),
    { numRuns: FULL_SIZE ? 500 : 40 },
  );
});
