import { type Db, rows } from "../database.ts";
import { type Claimant, type ClaimResult, claimPending } from "./claims.ts";
import type { ClaimedWebhooks } from "./webhooks.ts";

/** Decides when claims start at the oldest pending deliveries. */
const WHEN = {
  /** The duration from which a claim is slow, in milliseconds. */
  slowClaimMs: 100,
  /** The number of dead rows from which they explain a slow claim. */
  minDeadRows: 100_000,
};
/** The time for which claims start at the oldest pending deliveries: a multiple of the slow claim's duration, and at least this. */
const KEPT = { durationFactor: 20, minMs: 30_000 };
/** The interval between two reads of them: a multiple of a read's duration, and at least this. */
const READ_AGAIN = { durationFactor: 10, minMs: 1_000 };

/**
 * Claims first attempts, also beside many dead rows. While a transaction keeps a snapshot open, PostgreSQL cannot remove
 * the rows of deliveries that have left the queue since, and a claim reads all of them before the first pending one. After
 * a slow claim, this reads the oldest pending delivery of each webhook by a scan of the whole table, which is cheaper than
 * a search by index for each webhook, and the next claims start there. Deliveries that are queued meanwhile for other
 * webhooks, or come back, wait for the next read.
 */
export class PendingClaims {
  readonly #db: Db;
  readonly #webhooks: ClaimedWebhooks;
  readonly #when: typeof WHEN;
  /** The oldest pending delivery of each webhook, by webhook id. */
  #oldest: ReadonlyMap<bigint, string> = new Map();
  /** The time until which claims use it, and the time from which it is read again. */
  #until = Number.NEGATIVE_INFINITY;
  #readAgainAt = Number.NEGATIVE_INFINITY;

  constructor(db: Db, webhooks: ClaimedWebhooks, when = WHEN) {
    this.#db = db;
    this.#webhooks = webhooks;
    this.#when = when;
  }

  /** As `claimPending`. */
  async claim(
    claimant: Claimant,
    options: Omit<Parameters<typeof claimPending>[2], "oldest">,
  ): Promise<ClaimResult & { next: bigint | null }> {
    const began = performance.now();
    if (began < this.#until) {
      if (began >= this.#readAgainAt) await this.#read();
      return claimPending(this.#db, claimant, { ...options, oldest: this.#oldest }, this.#webhooks);
    }
    const claim = await claimPending(this.#db, claimant, options, this.#webhooks);
    const tookMs = performance.now() - began;
    // The claim has succeeded, whatever becomes of the count.
    const isSlow = tookMs >= this.#when.slowClaimMs;
    if (isSlow && (await deadRows(this.#db).catch(() => 0)) >= this.#when.minDeadRows) {
      this.#until = performance.now() + Math.max(KEPT.minMs, tookMs * KEPT.durationFactor);
      this.#readAgainAt = Number.NEGATIVE_INFINITY;
    }
    return claim;
  }

  async #read(): Promise<void> {
    const began = performance.now();
    this.#oldest = await readOldestPending(this.#db);
    const ended = performance.now();
    this.#readAgainAt = ended + Math.max(READ_AGAIN.minMs, (ended - began) * READ_AGAIN.durationFactor);
  }
}

async function deadRows(db: Db): Promise<number> {
  const [found] = await rows<{ dead: number }>(
    db,
    "select n_dead_tup::float8 as dead from pg_stat_user_tables where relid = 'queue'::regclass",
  );
  return found?.dead ?? 0;
}

/** The id of the oldest row in `queue` of each webhook, by webhook id, in the order of the webhooks. */
function readOldestPending(db: Db): Promise<Map<bigint, string>> {
  return db.transaction(async (trx) => {
    // Workers otherwise plan without sequential scans.
    await trx.raw("set local enable_seqscan = on");
    const found = await rows<{ webhookId: bigint; id: string }>(
      trx,
      // min(uuid) is new in PostgreSQL 18.
      `select webhook_id as "webhookId", min(id::text collate "C") as id from queue group by webhook_id order by webhook_id`,
    );
    return new Map(found.map(({ webhookId, id }) => [webhookId, id]));
  });
}
