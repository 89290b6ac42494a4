import { count, type Db, rows } from "../lib/pg/index.ts";
import { type Claimant, claimPending, type PendingClaim } from "./claims.ts";
import type { ClaimedWebhooks } from "./webhooks.ts";

/** Decides when claims start at the oldest pending deliveries. */
const WHEN = {
  /** The duration from which a claim is slow, in milliseconds. */
  slowClaimMs: 100,
  /** The number of dead rows from which they explain a slow claim, if there are fewer live ones. */
  minDeadRows: 100_000,
  /** The number from which claims continue to start there, without another slow claim. */
  manyDeadRows: 1_000_000,
  /** The time for which claims start there, in milliseconds. */
  keptMs: 60_000,
};
/** The interval between two reads of them: a multiple of a read's duration, and at least this. */
const READ_AGAIN = { durationFactor: 10, minMs: 1_000 };
/** The timeout of a read, in milliseconds. */
const READ_TIMEOUT_MS = 10_000;

/**
 * Creates a function that claims first attempts as `claimPending` does, also beside many dead rows. While a transaction keeps a snapshot
 * open, PostgreSQL cannot remove the rows of deliveries that have left the queue since, and a claim reads all of them before the first
 * pending one. After a slow claim, this reads the oldest pending delivery of each webhook by a scan of the whole table, which is cheaper
 * than a search by index for each webhook. The next claims start there, and then after what they claimed. Deliveries that are queued
 * meanwhile for other webhooks, or come back, wait for the next read: a claim that finds nothing reports that there may be more, unless
 * it has read all webhooks.
 */
export function createPendingClaims(db: Db, webhooks: ClaimedWebhooks, when = WHEN) {
  /**
   * Where claims start: a delivery of each webhook, by webhook id. Each read replaces the map, each claim advances it. Undefined
   * after a failed read, so that claims read the dead rows until the next one.
   */
  let starts: Map<bigint, string> | undefined;
  /** The time until which claims use it; undefined if they do not. */
  let until: number | undefined;
  /** The time from which it is read again. */
  let readAgainAt = Number.NEGATIVE_INFINITY;

  /** Finds the oldest delivery of each webhook if the queue has many dead rows: for a time, claims start there. Never rejects. */
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
    // Not the map of a read that began after this claim: it may have found deliveries that came back.
    for (const { id, webhook } of claim.deliveries) oldest.set(webhook.id, id);
    return isNew || claim.touched > 0 ? claim : { ...claim, limited: true };
  };
}

/** Whether the queue has at least `min` dead rows, and more than live ones: a scan of a long queue costs more than it saves. */
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
    // Workers otherwise plan without sequential scans.
    await trx.raw(`set local enable_seqscan = on; set local statement_timeout = ${READ_TIMEOUT_MS}`);
    const found = await rows<{ webhookId: bigint; id: string }>(
      trx,
      // min(uuid) is new in PostgreSQL 18.
      `select webhook_id as "webhookId", min(id::text collate "C") as id from queue group by webhook_id order by webhook_id`,
    );
    return new Map(found.map(({ webhookId, id }) => [webhookId, id]));
  });
}
