import { eraseStep, listErasing, type Removal } from "../customers/index.ts";
import { erasePayloads } from "../events/index.ts";
import type { RevokeKey } from "../keys/index.ts";
import { column, type Db } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { cancelFirst, cancelOfWebhooks } from "../queue/index.ts";
import { deleteWebhooks, webhookEntries } from "../webhooks/index.ts";

/** The maximum number of webhooks that one step deletes. */
const MAX_WEBHOOKS = 100;
/** The maximum number of keys that one step revokes. */
const MAX_KEYS = 20;
/** The maximum number of events and of deliveries per table that one step erases and cancels. */
const MAX_ROWS = 1_000;
/** The maximum number of steps in a run: other jobs wait. */
const MAX_STEPS = 5;

/** The deliveries are cancelled first, so that they are counted, unless new ones come as fast. */
const removeWebhooks: Removal = async (trx, customer) => {
  const ids = await column<bigint>(
    trx,
    "select id from webhooks where customer = :customer and deleted is null order by id limit :most::int",
    { customer, most: MAX_WEBHOOKS },
  );
  if (ids.length === 0) return {};
  const deliveries = await cancelOfWebhooks(trx, ids, MAX_ROWS);
  if (deliveries >= MAX_ROWS) return { deliveries };
  const deleted = await deleteWebhooks(trx, { ids }, cancelFirst);
  return { webhooks: deleted.length, deliveries, entries: webhookEntries("webhook_deleted", deleted) };
};

const revokeKeys =
  (revokeKey: RevokeKey): Removal =>
  async (trx, customer) => {
    const keys = await column<string>(
      trx,
      "select id from api_keys where customer = :customer and revoked is null order by id limit :most::int",
      { customer, most: MAX_KEYS },
    );
    const done = [];
    for (const id of keys) done.push(await revokeKey(trx, "everything", id, "delete"));
    const webhooks = done.reduce((sum, { deleted }) => sum + deleted, 0);
    return { keys: done.length, webhooks, entries: done.flatMap(({ entries }) => entries) };
  };

const removePayloads: Removal = async (trx, customer) => {
  const { erased, cancelled } = await erasePayloads(trx, customer, MAX_ROWS);
  return { payloads: erased, deliveries: cancelled };
};

/** What an erasure of a customer removes, in this order: its keys publish and register until they are revoked. */
export const removals = (revokeKey: RevokeKey): Removal[] => [
  removeWebhooks,
  revokeKeys(revokeKey),
  removePayloads,
];

/** Goes on with the erasures of customers, each in one process at a time. */
export function customerErasureJob(revokeKey: RevokeKey): Job<{ db: Db }> {
  const inOrder = removals(revokeKey);
  return {
    name: "erase customers",
    async run({ db }, stop) {
      for (const customer of await listErasing(db)) {
        for (let step = 0; step < MAX_STEPS && !stop.aborted; step += 1)
          if ((await eraseStep(db, customer, inOrder)) !== "more") break;
      }
    },
  };
}
