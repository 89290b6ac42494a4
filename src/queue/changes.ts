import { column, connect, type Db, plainArray, rows, UnfitSessionError } from "../lib/pg/index.ts";
import { HOLDS_CHANNEL, isHeld } from "./holds.ts";

/** The notification channel for queued deliveries. */
const CHANNEL = "webhook_deliveries";

/** A dedicated connection that reports changes of webhooks, queued deliveries and holds. Outside the pool, so it is never busy. */
export type ChangeFeed = Awaited<ReturnType<typeof openChangeFeed>>;

/**
 * Connects to the database, listens for queued deliveries and holds, and reports the holds that last. Rejects if that fails.
 *
 * @param url of the database itself: connections of a pooler cannot listen
 * @param queued called whenever deliveries were queued, by any process
 * @param held called with the id of each webhook, or of each endpoint, whose receiver asks for no requests, and the time in milliseconds
 */
export async function openChangeFeed(
  url: string,
  queued: () => void,
  held: (window: bigint | string, holdMs: number) => void = () => {},
) {
  const settings = { application_name: "webhook-service-changes", keepAlive: true, query_timeout: 5_000 };
  const { client } = await connect(url, settings);
  const heldWindow = (window: string, holdMs: number) =>
    held(window.includes("-") ? window : BigInt(window), holdMs);
  client.on("notification", ({ channel, payload = "" }) => {
    if (channel !== HOLDS_CHANNEL) return queued();
    const [window = "", holdMs] = payload.split(" ");
    heldWindow(window, Number(holdMs));
  });
  try {
    await client.query(`listen ${CHANNEL}`);
    await client.query(`listen ${HOLDS_CHANNEL}`);
    const lasting = await client.query<{ window: string; holdMs: number }>(
      `select coalesce(w.endpoint_id::text, w.id::text) as window,
          (extract(epoch from max(w.held_until) - now()) * 1000)::float8 as "holdMs"
        from webhooks w where ${isHeld("w")} and w.deleted is null group by 1`,
    );
    for (const { window, holdMs } of lasting.rows) heldWindow(window, holdMs);
  } catch (error) {
    await client.end().catch(() => {});
    throw error;
  }
  /** What the last look has read. */
  let last: { xmin: string; revision: string; customers: Map<string, string> } | undefined;
  return {
    /**
     * Reads whose webhooks were moved to another URL, paused, resumed or deleted, or got another filter, other secrets, key pairs or
     * request settings since the last look; of the operator, also new ones. Rejects once the connection has ended or can only read: the server may then be outdated,
     * and results of requests could not be recorded.
     *
     * @returns the customers, null for the operator; "all" from the first look, because any may have changed before it
     */
    async look(): Promise<Changed> {
      const { rows: found } = await client.query<LookRow>({
        name: "webhook_changes",
        text: LOOK,
        values: [last?.xmin ?? null],
      });
      const [{ isReadOnly, xmin, revision, customers }] = found as [LookRow];
      if (isReadOnly) throw new UnfitSessionError("the session is read-only");
      const before = last;
      last = { xmin, revision, customers: new Map(customers) };
      if (!before) return "all";
      // Transactions that had not ended at the last look are read again, with those that ended before it.
      const changed = customers.filter(
        ([customer, revisions]) => before.customers.get(customer) !== revisions,
      );
      return new Set([
        ...(revision === before.revision ? [] : [null]),
        ...changed.map(([customer]) => customer),
      ]);
    },
    close: () => client.end().catch(() => {}),
  };
}

/** Whose webhooks have changed: customers by their user_id, and null for the operator. */
export type Changed = ReadonlySet<string | null> | "all";

interface LookRow {
  isReadOnly: boolean;
  /** The oldest transaction that had not ended: all before it are seen. */
  xmin: string;
  /** The sum of the revisions of the operator's webhooks. */
  revision: string;
  /** Each with its revisions by event type. */
  customers: [customer: string, revisions: string][];
}

/**
 * Reads the operator's revision, and the customers whose webhooks were changed by transactions that had not ended at the last look ($1).
 * The first look reads those that have not ended now: the second look compares with them. The order and the limit, which is never
 * reached, force the planner to use the index on `changed`, whatever its statistics.
 */
const LOOK = `
  select current_setting('transaction_read_only') = 'on' as "isReadOnly",
    pg_snapshot_xmin(pg_current_snapshot())::text as xmin,
    (select coalesce(sum(revision), 0)::text from processes) as revision,
    (select coalesce(json_agg(json_build_array(customer, revisions)), '[]') from (
      select customer, string_agg(process || ' ' || revision, ',' order by process) as revisions from (
        select customer, process, revision from customer_processes
        where changed >= coalesce($1::xid8, pg_snapshot_xmin(pg_current_snapshot())) order by changed limit (select 1000000000)
      ) c group by customer
    ) c) as customers`;

/** A webhook of which a process has claimed deliveries, with its revision at the claim. */
export interface HeldWebhook {
  id: bigint;
  revision: bigint;
  /** The user_id of its customer. Defaults to null: a webhook of the operator. */
  customer?: string | null | undefined;
  /** The id of the claimed delivery, if there is only one. */
  onlyId?: string;
}

/**
 * Returns the webhooks whose claimed deliveries must be released: they are paused or deleted, do not exist, or have another revision
 * than at the claim. Only users' changes raise the revision; the service's own writes, such as rate-limit tokens, do not. Leaves out a
 * paused webhook of which only `test_delivery` is claimed: a test event's delivery, or the probe of a circuit breaker.
 */
export async function loadStopped(db: Db, held: readonly HeldWebhook[]): Promise<bigint[]> {
  if (held.length === 0) return [];
  return column<bigint>(
    db,
    `select distinct k.id from unnest(:ids::bigint[], :revisions::bigint[], :onlyIds::uuid[]) k(id, revision, only_id)
        left join webhooks w on w.id = k.id
      where w.id is null or w.paused is not null and (w.test_delivery = k.only_id) is not true or w.deleted is not null
        or w.revision <> k.revision
      order by k.id`,
    {
      ids: plainArray(held.map(({ id }) => id)),
      revisions: plainArray(held.map(({ revision }) => revision)),
      onlyIds: plainArray(held.map(({ onlyId }) => onlyId ?? null)),
    },
  );
}

/** Notifies all workers that deliveries were queued. */
export async function announceQueued(db: Db): Promise<void> {
  await rows(db, "select pg_notify(:channel, '')", { channel: CHANNEL });
}
