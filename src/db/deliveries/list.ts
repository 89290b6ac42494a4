import type { Bindings, Db } from "../database.ts";
import { rows } from "../database.ts";
import { firstIdOf } from "../partitions.ts";
import { WORKERS } from "../queue/workers.ts";
import { type Scope, webhookIn } from "../scope.ts";
import {
  COLUMNS,
  type DeliveryRow,
  type DeliveryStateName,
  type ListedRow,
  TABLES,
  toDelivery,
} from "./deliveries.ts";

/** Which deliveries are meant; what is left out does not restrict. */
export interface DeliveryFilter {
  deliveryId?: string | undefined;
  webhookId?: bigint | undefined;
  eventId?: string | undefined;
  /** Number of the WebhookProcess. */
  process?: number | undefined;
  states?: readonly DeliveryStateName[] | undefined;
  /** Created at this time or later. */
  from?: Date | undefined;
  /** Created before this time. */
  to?: Date | undefined;
  /** Only those older than this id: where the page before ended. */
  before?: string | undefined;
  /** Only those newer than this id, and of these the ones next to it: a page back. */
  after?: string | undefined;
}

/** A page of deliveries, newest first. */
export interface DeliveryPage {
  deliveries: DeliveryRow[];
  /**
   * The id that the search has come to, when it ended early: rows beyond it were not looked at. Null when it found as
   * many as it may answer, or there are no more.
   */
  searchedTo: string | null;
}

/**
 * Rows that a page looks at, at most, of a table or of one webhook in it: some 50 ms of work. A filter that lets few of
 * them through ends its page early.
 */
const MAX_SCANNED = 20_000;
/** A search over so many webhooks, at most, reads the rows of each; one over more reads everybody's. */
const MAX_WEBHOOKS = 100;

/**
 * A page of the scope's deliveries, newest first; with `after` the oldest that are newer than it. UUIDv7 ids are in the
 * order of time.
 *
 * Every table is read in the order of ids, by the index that fits the filter best, and no further than the page needs or
 * `MAX_SCANNED` rows.
 */
export async function listDeliveries(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
  scanned = MAX_SCANNED,
): Promise<DeliveryPage> {
  const webhooks = await webhooksOf(db, scope, filter);
  if (webhooks?.length === 0) return { deliveries: [], searchedTo: null };
  const ascending = filter.after !== undefined;
  const order = ascending ? "asc" : "desc";
  const { bounds, conditions, bindings } = restrictions(scope, filter);
  const reading: Reading = { bounds, conditions, webhooks: webhooks?.length ?? null, order };
  const parts = TABLES.flatMap((table) => partsOf(table, filter.states)).map((part, place) =>
    read(part, place, reading),
  );
  if (parts.length === 0) return { deliveries: [], searchedTo: null };
  // One statement, and so one snapshot: a delivery that moves on meanwhile is neither missed nor listed twice.
  const found = await rows<ListedRow & { searched: string | null }>(
    db,
    `select * from (${parts.map((part) => `(${part})`).join(" union all ")}) part`,
    { ...bindings, webhooks, webhookCount: webhooks?.length ?? 1, limit, scanned },
  );
  const older = (a: string, b: string) => (ascending ? a > b : a < b);
  // The row that a part ends with tells how far it has searched, when that is not to the end.
  const horizon = found
    .map(({ searched }) => searched)
    .filter((id) => id !== null)
    .reduce<string | null>((nearest, id) => (nearest === null || older(nearest, id) ? id : nearest), null);
  const page = found
    .filter(({ id, searched }) => searched === null && (horizon === null || !older(id, horizon)))
    .sort((a, b) => (a.id === b.id ? 0 : older(a.id, b.id) ? 1 : -1))
    .slice(0, limit)
    .map(({ searched: _, ...row }) => toDelivery(row));
  if (ascending) page.reverse();
  return { deliveries: page, searchedTo: page.length < limit ? horizon : null };
}

/** The ids of the webhooks that scope and filter let through; null when there are too many, or nothing restricts them. */
async function webhooksOf(db: Db, scope: Scope, filter: DeliveryFilter): Promise<bigint[] | null> {
  const { process, webhookId, deliveryId, eventId } = filter;
  // Few rows are looked at whatever their webhook, so the conditions alone will do.
  if (deliveryId !== undefined || eventId !== undefined) return null;
  if (scope === "everything" && process === undefined && webhookId === undefined) return null;
  const { sql, bindings } = webhookConditions(scope, filter);
  const found = await rows<{ id: bigint }>(
    db,
    `select w.id from webhooks w where ${sql} ${webhookId === undefined ? "" : "and w.id = :webhookId::bigint"}
      limit :most::int`,
    { ...bindings, webhookId, most: MAX_WEBHOOKS + 1 },
  );
  return found.length > MAX_WEBHOOKS ? null : found.map(({ id }) => id);
}

function webhookConditions(scope: Scope, { process }: DeliveryFilter): { sql: string; bindings: Bindings } {
  const inScope = webhookIn(scope, "w");
  if (process === undefined) return inScope;
  return { sql: `w.process = :process::int and ${inScope.sql}`, bindings: { process, ...inScope.bindings } };
}

/** `bounds` are of ids, which every index has; `conditions` are looked at row by row. */
function restrictions(
  scope: Scope,
  filter: DeliveryFilter,
): { bounds: string[]; conditions: string[]; bindings: Bindings } {
  const { deliveryId, webhookId, eventId, from, to, before, after } = filter;
  const bounds: string[] = [];
  const { sql, bindings } = webhookConditions(scope, filter);
  const conditions = [sql];
  const bound = (condition: string, name: string, value: string) => {
    bounds.push(`d.id ${condition} :${name}::uuid`);
    bindings[name] = value;
  };
  if (deliveryId !== undefined) bound("=", "deliveryId", deliveryId);
  if (before !== undefined) bound("<", "before", before);
  if (after !== undefined) bound(">", "after", after);
  if (from) bound(">=", "from", firstIdOf(from));
  if (to) bound("<", "to", firstIdOf(to));
  if (eventId !== undefined) {
    // An event and its deliveries have the first eight bytes in common.
    bound(">=", "eventFrom", `${eventId.slice(0, 18)}-0000-000000000000`);
    bound("<=", "eventTo", `${eventId.slice(0, 18)}-ffff-ffffffffffff`);
    conditions.push("d.event_id = :eventId::uuid");
    bindings.eventId = eventId;
  }
  if (webhookId !== undefined) {
    conditions.push("d.webhook_id = :webhookId::bigint");
    bindings.webhookId = webhookId;
  }
  return { bounds, conditions, bindings };
}

/** A part of a list: the rows of a table, or those of one state, which may have an index of their own. */
interface Part {
  table: (typeof TABLES)[number];
  /** What the index is restricted to. */
  indexed: string | null;
  /** What only some of the table's rows are. */
  state: string | null;
}

function partsOf(table: Part["table"], states: readonly DeliveryStateName[] = []): Part[] {
  const all = states.length === 0;
  if (table === "retries") {
    return all || states.includes("retrying") ? [{ table, indexed: null, state: null }] : [];
  }
  if (table === "queue") {
    const [pending, delivering] = [states.includes("pending"), states.includes("delivering")];
    const held = `d.claimed_by = any(${WORKERS})`;
    if (all || (pending && delivering)) return [{ table, indexed: null, state: null }];
    if (pending) return [{ table, indexed: null, state: `(d.claimed_by is null or not ${held})` }];
    return delivering ? [{ table, indexed: null, state: held }] : [];
  }
  const outcomes = (["delivered", "failed", "cancelled"] as const).filter((state) => states.includes(state));
  if (all || outcomes.length === 3) return [{ table, indexed: null, state: null }];
  return outcomes.map((outcome) => {
    const state = `d.outcome = '${outcome}'`;
    // Most deliveries are delivered: these have no index of their own.
    return outcome === "delivered" ? { table, indexed: null, state } : { table, indexed: state, state: null };
  });
}

/** What is common to the parts of a list. */
interface Reading {
  bounds: readonly string[];
  conditions: readonly string[];
  /** How many webhooks are named; null when all rows are read. */
  webhooks: number | null;
  order: "asc" | "desc";
}

/**
 * Reads a part: rows in the order of ids, until `limit` pass or `scanned` were looked at. In the second case one more
 * row, with `searched` alone, tells how far it came. What restricts ids or picks an index is stated where rows are read,
 * everything else where they are looked at.
 */
function read({ table, indexed, state }: Part, place: number, reading: Reading): string {
  const { bounds, conditions, webhooks, order } = reading;
  const rowsOf = (more: readonly string[], limit: string) => {
    const all = [...bounds, ...(indexed === null ? [] : [indexed]), ...more];
    const where = all.length > 0 ? `where ${all.join(" and ")}` : "";
    return `select d.* from ${table} d ${where} order by d.id ${order} limit ${limit}`;
  };
  const each = ":scanned::int / :webhookCount::int";
  const source = {
    all: () => rowsOf([], ":scanned::int"),
    one: () => rowsOf(["d.webhook_id = (:webhooks::bigint[])[1]"], ":scanned::int"),
    several: () => `select d.* from unnest(:webhooks::bigint[]) named(id)
      cross join lateral (${rowsOf(["d.webhook_id = named.id"], each)}) d`,
  }[webhooks === null ? "all" : webhooks === 1 ? "one" : "several"]();
  const last =
    webhooks === null || webhooks === 1
      ? `select d.id from (${source}) d order by d.id ${order} offset :scanned::int - 1 limit 1`
      : `select d.id from unnest(:webhooks::bigint[]) named(id) cross join lateral (
          select d.id from (${rowsOf(["d.webhook_id = named.id"], each)}) d order by d.id ${order} offset ${each} - 1 limit 1
        ) d order by d.id ${order} limit 1`;
  const passed = `passed_${place}`;
  // Each webhook is read to a place of its own: a full page may reach beyond the nearest of these.
  const several =
    webhooks === null || webhooks === 1
      ? ""
      : ` or exists (select from ${passed} p where p.id ${order === "desc" ? "<" : ">"} last.id)`;
  return `
    with ${passed} as materialized (
      select ${COLUMNS[table]} from (${source}) d cross join lateral (
        -- Looked up row by row, so that no more rows are read than the page needs.
        select w.process, w.url from webhooks w where w.id = d.webhook_id and ${conditions.join(" and ")} offset 0
      ) w ${state === null ? "" : `where ${state}`} order by d.id ${order} limit :limit::int
    )
    select p.*, null::uuid as searched from ${passed} p
    union all
    select none.*, last.id from (${last}) last left join ${passed} none on false
      where (select count(*) from ${passed}) < :limit::int${several}`;
}
