import { type Db, run } from "../lib/pg/index.ts";
import { requireFeature } from "../schema/index.ts";

/**
 * Makes the customer of a new API key, if it does not exist. Requires the transaction that stores the key.
 *
 * @throws FeatureUnknownError FAILED_PRECONDITION if a live process of an older release would deliver its events to others
 */
export async function makeCustomer(trx: Db, customer: string): Promise<void> {
  await requireFeature(trx, "customers");
  await run(trx, trx("customers").insert({ id: customer }).onConflict("id").ignore());
}
