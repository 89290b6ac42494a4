import { count, type Db, rows } from "../lib/pg/index.ts";
import type { ClaimedWebhooks } from "../webhooks/index.ts";
import { type Claimant, claimPending, type PendingClaim } from "./claims.ts";

/** Thresholds for claims that start at the oldest pending deliveries, instead of reading past the dead rows before them. */
const WHEN = {
  /** The duration from which a claim is slow, in milliseconds. After a slow claim, dead rows are counted. */
  slowClaimMs: 100,
  /** The number of dead rows from which they explain a slow claim, provided that there are fewer live rows. */
  minDeadRows: 100_000,
  /** The number of dead rows from which, after `keptMs`, claims continue to start at the oldest deliveries without a slow claim. */
  manyDeadRows: 1_000_000,
  /** The time for which claims start at the oldest deliveries, in milliseconds. Then dead rows are counted again. */
  keptMs: 60_000,
};
/** The interval between reads of the oldest deliveries: `durationFactor` times the duration of the last read, at least `minMs`. */
const READ_AGAIN = { durationFactor: 10, minMs: 1_000 };
/** The timeout of such a read, in milliseconds. */
const READ_TIMEOUT_MS = 10_000;

/**
 * Creates a function that claims first attempts as `claimPending` does, but remains fast if the queue has many dead rows. While a
 * transaction keeps a snapshot open, PostgreSQL cannot remove the rows of deliveries that have left the queue since. A claim then reads
 * all these dead rows before the first pending delivery.
 *
 * After a slow claim, the function reads the oldest pending delivery of each webhook. It scans the whole table, which is cheaper than an
 * index lookup per webhook. The next claims start at these deliveries, and later ones at the last claimed delivery of each webhook.
 * Deliveries that are queued meanwhile for other webhooks, or released, wait for the next read. A claim that finds nothing therefore
 * returns `laterMs: 0`, unless it follows a new read directly.
 */
export function createPendingClaims(db: Db, webhooks: ClaimedWebhooks, when = WHEN) {
  /**
   * The deliveries at which claims start: a delivery id by webhook id. Each read replaces the map, each claim advances it. Undefined
   * after a failed read: until the next read, claims start at the beginning of the queue and read the dead rows.
   */
  let starts: Map<bigint, string> | undefined;
  /** The monotonic time until which claims use `starts`; undefined if they do not use it. */
  let until: number | undefined;
  /** The monotonic time from which `starts` is read again. */
  let readAgainAt = Number.NEGATIVE_INFINITY;

  /** Makes claims use `starts` for `keptMs` if the queue has at least `minDeadRows` dead rows; otherwise ends its use. Never rejects. */
  async function startAtOldest(minDeadRows: number): Promise<void> {
    const areMany = await hasDeadRows(db, minDeadRows).catch(() => false);
    until = areMany ? performance.now() + when.keptMs : undefined;
  }

  async function read(): Promise<void> {
    const began = performance.now();
    starts = await readOldestPending(db).catch(() => undefined);
    const ended = performance.now();
    readAgainAt = ended + Math.max(READ_AGAIN.minMs, (ended - began) * READ_AGAIN.durationFactor);
  }

  return async (claimant: Claimant, options: Parameters<typeof claimPending>[2]): Promise<PendingClaim> => {
    if (until !== undefined && performance.now() >= until) await startAtOldest(when.manyDeadRows);
    const isNew = until !== undefined && performance.now() >= readAgainAt;
    if (isNew) await read();
    const oldest = until === undefined ? undefined : starts;
    const began = performance.now();
    const claim = await claimPending(db, claimant, options, webhooks, oldest);
    if (!oldest) {
      if (performance.now() - began >= when.slowClaimMs) await startAtOldest(when.minDeadRows);
      return claim;
    }
    // Advances the map that this claim used. A newer one, read meanwhile, may name released deliveries, which must not be passed over.
    for (const { id, webhook } of claim.deliveries) oldest.set(webhook.id, id);
    return isNew || claim.touched > 0 ? claim : { ...claim, laterMs: 0 };
  };
}

/** Whether the queue has at least `min` dead rows, and more dead than live rows: a scan of many live rows costs more than it saves. */
async function hasDeadRows(db: Db, min: number): Promise<boolean> {
  const found = await count(
    db,
    `select from pg_stat_user_tables
      where relid = 'queue'::regclass and n_dead_tup >= :min::float8 and n_dead_tup > n_live_tup`,
    { min },
  );
  return found > 0;
}

/** The id of the oldest row in `queue` of each webhook, by webhook id, in the order of the webhooks. */
function readOldestPending(db: Db): Promise<Map<bigint, string>> {
  return db.transaction(async (trx) => {
    // Connections of workers disable sequential scans; this statement needs one.
    await trx.raw(`set local enable_seqscan = on; set local statement_timeout = ${READ_TIMEOUT_MS}`);
    const found = await rows<{ webhookId: bigint; id: string }>(
      trx,
      // As text, because PostgreSQL has min(uuid) only from version 18.
      `select webhook_id as "webhookId", min(id::text collate "C") as id from queue group by webhook_id order by webhook_id`,
    );
    return new Map(found.map(({ webhookId, id }) => [webhookId, id]));
  });
}
