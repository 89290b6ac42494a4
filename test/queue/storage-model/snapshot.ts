import { type Db, rows } from "../../../src/lib/pg/database.ts";

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
  customer: string | null;
  process: number;
  url: string;
  revision: bigint;
  filter: string | null;
  /** By a user or the breaker. */
  paused: boolean;
  /** Whether its receiver wants no requests. */
  held: boolean;
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
  /** By owner and event type, see `typeName`. */
  types: ReadonlyMap<string, StoredType>;
}

/** The revision and the number of the live webhooks of an owner for an event type. */
export interface StoredType {
  customer: string | null;
  process: number;
  revision: number;
  live: number;
  /** Of the operator's: the live webhooks of all customers. */
  customersLive: number;
}

/** Names an event type of an owner. */
export const typeName = ({ customer, process }: Pick<StoredType, "customer" | "process">): string =>
  `${process} of ${customer ?? "the operator"}`;

export const EMPTY: Snapshot = {
  places: new Map(),
  events: new Map(),
  webhooks: new Map(),
  types: new Map(),
};

/** Whether both are the same in every column. */
export function isSame(one: Place | null, other: Place | null): boolean {
  if (!one || !other) return one === other;
  return (Object.keys(one) as (keyof Place)[]).every((column) => one[column] === other[column]);
}

/** One statement, planned once: this is most of what a step of a history costs. */
const EVERYTHING = `select
  (select coalesce(json_agg(p), '[]') from (
    select id, event_id as "eventId", webhook_id as "webhookId", 'queue' as table, attempts, attempts as "roundStart",
        claimed_by as "claimedBy", claims, null as outcome, null as reason, false as waits from queue
      union all select id, event_id, webhook_id, 'retries', attempts, round_start, claimed_by, claims, null, null,
        due > now() + interval '1 hour' from retries
      union all select id, event_id, webhook_id, 'deliveries', attempts, round_start, null, 0, outcome::text, reason, false
        from deliveries
      order by id, "table"
  ) p) as places,
  (select coalesce(json_agg(e), '[]') from (
    select e.id, e.recipients, e.payload is null as erased, coalesce(f.remaining, 0) as remaining
      from events e left join fan_out f on f.event_id = e.id order by e.id
  ) e) as events,
  (select coalesce(json_agg(w), '[]') from (
    select w.id, w.customer, w.process, w.target_url as url, w.revision, w.filter, w.paused is not null as paused,
        coalesce(w.held_until > now(), false) as held, w.deleted is not null as deleted,
        w.test_delivery as "testDelivery", w.probe_attempts as "probeAttempts", b.state as breaker
      from webhooks w left join webhook_breakers b on b.webhook_id = w.id order by w.id
  ) w) as webhooks,
  (select coalesce(json_agg(p), '[]') from (
    select null as customer, process, revision, live, customers_live as "customersLive" from processes
    union all select customer, process, revision, live, 0 from customer_processes
  ) p) as types`;

/** Rows as JSON, in which 64-bit integers are numbers. */
type Row<T> = { [Column in keyof T]: T[Column] extends bigint ? number : T[Column] };

/** Reads everything. Nothing else uses the database meanwhile. */
export async function readSnapshot(db: Db): Promise<Snapshot> {
  const [all] = (await rows(db, EVERYTHING, {}, { prepare: "model_snapshot" })) as [
    {
      places: Row<Place>[];
      events: StoredEvent[];
      webhooks: Row<StoredWebhook>[];
      types: StoredType[];
    },
  ];
  const places = new Map(all.places.map((one) => [one.id, { ...one, webhookId: BigInt(one.webhookId) }]));
  if (places.size < all.places.length) throw new Error("a delivery is in two tables");
  return {
    places,
    events: new Map(all.events.map((event) => [event.id, event])),
    webhooks: new Map(
      all.webhooks.map((one) => [
        BigInt(one.id),
        { ...one, id: BigInt(one.id), revision: BigInt(one.revision) },
      ]),
    ),
    types: new Map(all.types.map((one) => [typeName(one), one])),
  };
}
