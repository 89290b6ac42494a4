import { revokeKey } from "../../src/app/revoke-key.ts";
import { eraseStep } from "../../src/customers/erasure.ts";
import { publishEvents } from "../../src/events/publish.ts";
import type { NewApiKey } from "../../src/keys/api-keys.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { removals } from "../../src/maintenance/customer-erasure.ts";
import { anEvent } from "../support/new-event.ts";
import type { TestApi } from "../support/test-api.ts";

/** A key of a customer, which is made; every permission unless told. */
export async function customerKey(api: TestApi, customer: string, more: Partial<NewApiKey> = {}) {
  await api.context.db("customers").insert({ id: customer }).onConflict("id").ignore();
  return api.key({ ...more, customer });
}

/** Publishes an event of each user. */
export async function publishFor(db: Db, ...users: string[]): Promise<void> {
  await publishEvents(
    db,
    users.map((userId) => anEvent({ userId })),
  );
}

/** Runs steps of an erasure until it has finished, or waits. */
export async function eraseAll(db: Db, customer: string) {
  for (;;) {
    const state = await eraseStep(db, customer, removals(revokeKey));
    if (state !== "more") return state;
  }
}
