import { connect, type Db, plainArray, rows, UnfitSessionError } from "../lib/pg/index.ts";
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
  return {
    /**
     * Reads a number that increases whenever a webhook is created, moved to another URL, paused, resumed or deleted, or gets another
     * filter, other secrets, key pairs or request settings. Rejects once the connection has ended or can only read: the server may
     * then be outdated, and results of requests could not be recorded.
     */
    async revision() {
      const { rows: found } = await client.query<{ revision: string; isReadOnly: boolean }>({
        name: "webhook_revision",
        text: `select coalesce(sum(revision), 0)::text as revision,
            current_setting('transaction_read_only') = 'on' as "isReadOnly" from processes`,
      });
      if (found[0]?.isReadOnly) throw new UnfitSessionError("the session is read-only");
      return BigInt(found[0]?.revision ?? 0);
    },
    close: () => client.end().catch(() => {}),
  };
}

/** A webhook of which a process has claimed deliveries, with its revision at the claim. */
export interface HeldWebhook {
  id: bigint;
  revision: bigint;
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
  const found = await rows<{ id: bigint }>(
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
  return found.map(({ id }) => id);
}

/** Notifies all workers that deliveries were queued. */
export async function announceQueued(db: Db): Promise<void> {
  await rows(db, "select pg_notify(:channel, '')", { channel: CHANNEL });
}
