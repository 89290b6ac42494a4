import { type Db, rows } from "../../../../src/db/database.ts";

/** Where a delivery is. */
export interface Place {
  id: string;
  eventId: string;
  webhookId: bigint;
  table: "queue" | "retries" | "deliveries";
  attempts: number;
  roundStart: number;
  claimedBy: number | null;
  /** Claims without a result. */
  claims: number;
  outcome: string | null;
  reason: string | null;
  /** A retry that is not due for longer than any history takes. */
  waits: boolean;
}

/** A row of `events`. */
export interface StoredEvent {
  id: string;
  recipients: number;
  erased: boolean;
  /** Recipients without a row yet. */
  remaining: number;
}

/** A row of `webhooks`, with the state of its circuit breaker. */
export interface StoredWebhook {
  id: bigint;
  url: string;
  revision: bigint;
  filter: string | null;
  /** By a user or the breaker. */
  paused: boolean;
  deleted: boolean;
  testDelivery: string | null;
  /** Of a probe that is a retry, its attempts so far. */
  probeAttempts: number | null;
  /** Null without a breaker. */
  breaker: string | null;
}

/** What the database holds between two steps. */
export interface Snapshot {
  places: ReadonlyMap<string, Place>;
  events: ReadonlyMap<string, StoredEvent>;
  webhooks: ReadonlyMap<bigint, StoredWebhook>;
  /** By event type: the revision, and the live webhooks. */
  processes: ReadonlyMap<number, { revision: bigint; live: number }>;
}

export const EMPTY: Snapshot = {
  places: new Map(),
  events: new Map(),
  webhooks: new Map(),
  processes: new Map(),
};

/** Whether both are the same in every column. */
export const isSame = (one: Place | null, other: Place | null) => keyOf(one) === keyOf(other);

/** A text that is equal for equal places. */
export const keyOf = (place: Place | null) =>
  JSON.stringify(place, (_key, value) => (typeof value === "bigint" ? String(value) : value));

/** Reads everything. Nothing else uses the database meanwhile. */
export async function readSnapshot(db: Db): Promise<Snapshot> {
  const [places, events, webhooks, processes] = await Promise.all([
    rows<Place>(
      db,
      `select id, event_id as "eventId", webhook_id as "webhookId", 'queue' as table, attempts, attempts as "roundStart",
          claimed_by as "claimedBy", claims, null as outcome, null as reason, false as waits from queue
        union all select id, event_id, webhook_id, 'retries', attempts, round_start, claimed_by, claims, null, null,
          due > now() + interval '1 hour' from retries
        union all select id, event_id, webhook_id, 'deliveries', attempts, round_start, null, 0, outcome::text, reason, false
          from deliveries
        order by id, "table"`,
    ),
    rows<StoredEvent>(
      db,
      `select e.id, e.recipients, e.payload is null as erased, coalesce(f.remaining, 0) as remaining
        from events e left join fan_out f on f.event_id = e.id order by e.id`,
    ),
    rows<StoredWebhook>(
      db,
      `select w.id, w.target_url as url, w.revision, w.filter, w.paused is not null as paused, w.deleted is not null as deleted,
          w.test_delivery as "testDelivery", w.probe_attempts as "probeAttempts", b.state as breaker
        from webhooks w left join webhook_breakers b on b.webhook_id = w.id order by w.id`,
    ),
    rows<{ process: number; revision: bigint; live: number }>(
      db,
      "select process, revision, live from processes order by process",
    ),
  ]);
  const byId = new Map(places.map((place) => [place.id, place]));
  if (byId.size < places.length) throw new Error("a delivery is in two tables");
  return {
    places: byId,
    events: new Map(events.map((event) => [event.id, event])),
    webhooks: new Map(webhooks.map((webhook) => [webhook.id, webhook])),
    processes: new Map(processes.map(({ process, ...rest }) => [process, rest])),
  };
}
