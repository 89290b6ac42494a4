import { plainArray } from "../array-literal.ts";
import { count, type Db } from "../database.ts";
import type { ClaimedDelivery } from "./claims.ts";

/** Gives claimed deliveries back as if they had not been claimed. */
export async function release(
  db: Db,
  workerId: number,
  deliveries: readonly Pick<ClaimedDelivery, "id" | "token">[],
): Promise<void> {
  for (const table of ["queue", "retries"] as const) {
    const ids = deliveries.filter(({ token }) => token.table === table).map(({ id }) => id);
    if (ids.length === 0) continue;
    await count(
      db,
      `update ${table} set claims = claims - 1, claimed_by = null
        where id = any(:ids::uuid[]) and claimed_by = :workerId::int`,
      { ids: plainArray(ids), workerId },
    );
  }
}
