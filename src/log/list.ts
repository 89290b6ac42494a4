import { type Condition, type Scope, webhookIn } from "../calls/index.ts";
import { eventMatches, type MatchingEvents } from "../events/index.ts";
import { type Bindings, column, type Db, rows } from "../lib/pg/index.ts";
import { WORKERS } from "../queue/index.ts";
import { firstIdOf, idRangeOf } from "../schema/index.ts";
import {
  COLUMNS,
  type DeliveryRow,
  type DeliveryStateName,
  FINAL_STATES,
  LAST,
  type ListedRow,
  TABLES,
  toDelivery,
} from "./deliveries.ts";
import { namePartOf, type SearchText } from "./search-text.ts";

/** A filter of deliveries. Omitted fields do not restrict. */
export interface DeliveryFilter {
  deliveryId?: string | undefined;
  webhookId?: bigint | undefined;
  eventId?: string | undefined;
  /** The number of the WebhookProcess. */
  process?: number | undefined;
  states?: readonly DeliveryStateName[] | undefined;
  /** The earliest creation time, inclusive. */
  from?: Date | undefined;
  /** The latest creation time, exclusive. */
  to?: Date | undefined;
  /** Only deliveries older than this id: the next page. */
  before?: string | undefined;
  /** Only deliveries newer than this id, closest first: the previous page. */
  after?: string | undefined;
  /** The start of `HTTP` and the status of the latest attempt, of its error if it had no response, or of the reason, in lower case. */
  error?: string | undefined;
}

/** Restricts deliveries to those of matching webhooks or events. */
interface Matching {
  /** A webhook's host, with or without its port, as in its normalised URL. */
  host?: string | undefined;
  /** The start of a webhook's normalised URL. */
  url?: string | undefined;
  /** A part of a webhook's name, in lower case. */
  name?: string | undefined;
  /** Words that each identify the delivery, by itself, its webhook or its event. */
  words?: readonly SearchText[] | undefined;
  /** The id ranges of events. */
  events?: MatchingEvents["events"] | undefined;
}

/** A page of deliveries, newest first. */
export interface DeliveryPage {
  deliveries: DeliveryRow[];
  /**
   * The id at which the search stopped early; rows beyond it were not examined. Null if the page is full or no rows
   * are left.
   */
  searchedTo: string | null;
}

/**
 * The maximum number of rows examined per table, or per webhook in it: about 50 ms of work. A selective filter may
 * end its page early.
 */
const MAX_SCANNED = 20_000;
/** The same where each row is compared in other tables. */
export const MAX_COMPARED = 5_000;
/**
 * The maximum number of webhooks whose rows are read separately. A search over more webhooks reads all rows, except that of a customer:
 * the rows of others must not end its pages early.
 */
const MAX_WEBHOOKS = 100;

/**
 * A page of the scope's deliveries, newest first; with `after`, the oldest ones that are newer. Ids are UUIDv7 and
 * therefore sorted by time.
 *
 * Reads each table in id order over the index that fits the filter best, up to the size of the page or `MAX_SCANNED`
 * rows.
 */
export async function listDeliveries(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter & Matching,
  limit: number,
  scanned = filter.error === undefined ? MAX_SCANNED : MAX_COMPARED,
): Promise<DeliveryPage> {
  const webhooks = await webhooksOf(db, scope, filter);
  if (webhooks?.length === 0) return { deliveries: [], searchedTo: null };
  const ascending = filter.after !== undefined;
  const order = ascending ? "asc" : "desc";
  const { bounds, conditions, bindings } = restrictions(scope, filter);
  const { events } = filter;
  const reading: Reading = {
    bounds: bounds.map((bound) => bound("d.id")),
    conditions,
    from: sourceOf(webhooks, events !== undefined),
    order,
    fits: !filter.words && filter.error === undefined && limit <= scanned / (webhooks?.length ?? 1),
    error: filter.error === undefined ? undefined : errorConditions(bounds),
  };
  const parts = TABLES.flatMap((table) => partsOf(table, filter.states)).map((part) => read(part, reading));
  if (parts.length === 0) return { deliveries: [], searchedTo: null };
  // One statement and therefore one snapshot: a delivery that changes tables is neither missed nor listed twice.
  const found = await rows<ListedRow & { searched: boolean; matches: boolean }>(
    db,
    `select page.id, "eventId", "webhookId", process, url, name, customer, state, attempts, "roundStart", "retryAt", finished, reason,
        case when state <> all(:finalStates::text[]) and attempts > 0 then (
          select ${LAST("a")} from attempts a
          where ${["a.delivery_id = page.id", ...bounds.map((bound) => bound("a.delivery_id"))].join(" and ")}
            and a.number = page.attempts
        ) else last end as last, searched, matches
      from (
        select * from (${parts.map((part) => `(${part})`).join(" union all ")}) part order by id ${order} limit :limit::int
      ) page`,
    {
      ...bindings,
      error: filter.error ?? null,
      webhooks,
      webhookCount: webhooks?.length ?? 1,
      events: events?.map(({ id }) => id) ?? [],
      firsts: events?.map(({ first }) => first) ?? [],
      lasts: events?.map(({ last }) => last) ?? [],
      finalStates: FINAL_STATES,
      limit,
      scanned,
    },
  );
  const older = (a: string, b: string) => (ascending ? a > b : a < b);
  // Where a search stopped early, rows beyond are not known. A full page ends before.
  const horizon = found.find(({ searched }) => searched)?.id ?? null;
  const page = found
    .filter(({ id, matches }) => matches && (horizon === null || !older(id, horizon)))
    .map(({ searched: _searched, matches: _matches, ...row }) => toDelivery(row));
  if (ascending) page.reverse();
  return { deliveries: page, searchedTo: page.length < limit ? horizon : null };
}

/** The ids of the webhooks that match scope and filter; null if there are too many or nothing restricts them. */
async function webhooksOf(db: Db, scope: Scope, filter: DeliveryFilter & Matching): Promise<bigint[] | null> {
  const { process, webhookId, deliveryId, eventId, events, host, name } = filter;
  const isOfCustomer = scope !== "everything" && scope.customer !== null;
  // Few rows are examined in any case, so conditions on the rows are enough. A customer's events have webhooks of the operator, too.
  if (deliveryId !== undefined || ((eventId !== undefined || events) && !isOfCustomer)) return null;
  if (scope === "everything" && process === undefined && host === undefined && name === undefined)
    return webhookId === undefined ? null : [webhookId];
  const { sql, bindings } = webhookConditions(scope, filter);
  const found = await column<bigint>(
    db,
    `select w.id from webhooks w where ${sql} ${webhookId === undefined ? "" : "and w.id = :webhookId::bigint"}
      limit :most::int`,
    { ...bindings, webhookId, most: isOfCustomer ? null : MAX_WEBHOOKS + 1 },
  );
  return found.length > MAX_WEBHOOKS && !isOfCustomer ? null : found;
}

/** The host and port of a webhook, as in the index `webhooks_host`. */
const AUTHORITY = `(split_part(w.target_url, '/', 3)) collate "C"`;

function webhookConditions(scope: Scope, { process, host, url, name }: DeliveryFilter & Matching): Condition {
  const all = [
    webhookIn(scope, "w"),
    process !== undefined && { sql: "w.process = :process::int", bindings: { process } },
    host !== undefined && atUrl({ host, url }, ""),
    name !== undefined && named(name, ""),
  ];
  return joined(all, " and ");
}

/** @param conditions false for none */
function joined(conditions: readonly (Condition | false)[], by: " and " | " or "): Condition {
  const some = conditions.filter((condition) => condition !== false);
  return {
    sql: some.map(({ sql }) => sql).join(by),
    bindings: Object.assign({}, ...some.map(({ bindings }) => bindings)),
  };
}

/** Whether a webhook has a host and the start of a URL. @param n distinguishes the names of the values */
function atUrl({ host, url }: { host: string; url?: string | undefined }, n: number | ""): Condition {
  // With any port: a semicolon is the character after the colon.
  const ofHost = `(${AUTHORITY} = :host${n} or (${AUTHORITY} > :hostPorts${n} and ${AUTHORITY} < :hostEnd${n}))`;
  return {
    sql: url === undefined ? ofHost : `(${ofHost} and starts_with(w.target_url, :url${n}))`,
    bindings: {
      ...{ [`host${n}`]: host, [`hostPorts${n}`]: `${host}:`, [`hostEnd${n}`]: `${host};` },
      ...(url === undefined ? {} : { [`url${n}`]: url }),
    },
  };
}

/** Whether a webhook's name contains a text. */
function named(part: string, n: number | ""): Condition {
  return {
    sql: `(w.name is not null and position(:name${n} in lower(w.name)) > 0)`,
    bindings: { [`name${n}`]: part },
  };
}

/** Whether a scope may search for idempotency keys. They belong to publishers, not to installed apps. */
export const knowsKeys = (scope: Scope): boolean => scope === "everything";

/** Whether a word identifies a delivery, as in `searchDeliveries`. */
function identifiedBy(scope: Scope, word: SearchText, n: number): Condition {
  const { text, uuid, webhookId, host, url } = word;
  const name = namePartOf(word);
  const [id, webhook] = [`uuid${n}`, `webhookId${n}`];
  return joined(
    [
      uuid !== undefined && {
        sql: `d.id = :${id}::uuid or d.event_id = :${id}::uuid`,
        bindings: { [id]: uuid },
      },
      webhookId !== undefined && {
        sql: `d.webhook_id = :${webhook}::bigint`,
        bindings: { [webhook]: String(webhookId) },
      },
      host !== undefined && atUrl({ host, url }, n),
      name !== undefined && named(name, n),
      eventMatches("d.event_id", text, n, { keys: knowsKeys(scope) }),
    ],
    " or ",
  );
}

/**
 * `bounds` restrict the ids in a column, which every index contains and by which tables are partitioned; `conditions` are
 * checked per row.
 */
function restrictions(
  scope: Scope,
  filter: DeliveryFilter & Matching,
): { bounds: ((column: string) => string)[]; conditions: string[]; bindings: Bindings } {
  const { deliveryId, webhookId, eventId, from, to, before, after } = filter;
  const bounds: ((column: string) => string)[] = [];
  const { sql, bindings } = webhookConditions(scope, filter);
  const conditions = [sql];
  for (const [n, word] of (filter.words ?? []).entries()) {
    const identified = identifiedBy(scope, word, n);
    conditions.push(`(${identified.sql})`);
    Object.assign(bindings, identified.bindings);
  }
  const bound = (condition: string, name: string, value: string) => {
    bounds.push((column) => `${column} ${condition} :${name}::uuid`);
    bindings[name] = value;
  };
  if (deliveryId !== undefined) bound("=", "deliveryId", deliveryId);
  if (before !== undefined) bound("<", "before", before);
  if (after !== undefined) bound(">", "after", after);
  if (from) bound(">=", "from", firstIdOf(from));
  if (to) bound("<", "to", firstIdOf(to));
  if (eventId !== undefined) {
    const { first, last } = idRangeOf(eventId);
    bound(">=", "eventFrom", first);
    bound("<=", "eventTo", last);
    conditions.push("d.event_id = :eventId::uuid");
    bindings.eventId = eventId;
  }
  if (webhookId !== undefined) {
    conditions.push("d.webhook_id = :webhookId::bigint");
    bindings.webhookId = webhookId;
  }
  return { bounds, conditions, bindings };
}

/** Whether the latest error of a row begins with `:error`, by table. */
function errorConditions(bounds: readonly ((column: string) => string)[]): Record<Part["table"], string> {
  const begins = (row: string, reason: string) =>
    `starts_with(lower(coalesce(${reason}, 'HTTP ' || ${row}.status, ${row}.error)), :error::text)`;
  const own = [
    "a.delivery_id = d.id",
    "a.number = d.attempts",
    ...bounds.map((bound) => bound("a.delivery_id")),
  ];
  const ofAttempt = `exists (select from attempts a where ${own.join(" and ")} and ${begins("a", "null")})`;
  return {
    queue: ofAttempt,
    retries: ofAttempt,
    deliveries: `coalesce(${begins("d", "d.reason")}, false)`,
  };
}

/** The states of the rows of a part of a list, if they are not all of its table. */
interface PartStates {
  /** A condition that a partial index has. */
  indexed?: string;
  /** A condition that no index covers. */
  state?: string;
}

/** A part of a list: the rows of a table, or of one state. */
interface Part extends PartStates {
  table: (typeof TABLES)[number];
}

const IS_CLAIMED = `d.claimed_by = any(${WORKERS})`;
const ended = (outcome: DeliveryStateName) => `d.outcome = '${outcome}'`;
/** The states by table. Most ended deliveries are delivered, or filtered where a webhook has a filter: no index has these alone. */
const STATES: Record<Part["table"], Partial<Record<DeliveryStateName, PartStates>>> = {
  queue: {
    pending: { state: `(d.claimed_by is null or not ${IS_CLAIMED})` },
    delivering: { state: IS_CLAIMED },
  },
  retries: { retrying: {} },
  deliveries: {
    delivered: { state: ended("delivered") },
    failed: { indexed: ended("failed") },
    cancelled: { indexed: ended("cancelled") },
    filtered: { state: ended("filtered") },
  },
};

function partsOf(table: Part["table"], states: readonly DeliveryStateName[] = []): Part[] {
  const all = Object.entries(STATES[table]);
  const wanted = all.filter(([name]) => states.includes(name as DeliveryStateName));
  if (states.length === 0 || wanted.length === all.length) return [{ table }];
  return wanted.map(([, part]) => ({ table, ...part }));
}

/** The parameters shared by the parts of a list. */
interface Reading {
  bounds: readonly string[];
  conditions: readonly string[];
  from: Source;
  order: "asc" | "desc";
  /** Whether at least as many rows of each webhook may be read as a page has. */
  fits: boolean;
  /** The condition on the latest error; undefined for none. */
  error: Record<Part["table"], string> | undefined;
}

/** Which rows are read: all, those of one webhook, of several webhooks, of events, or of events and only for some webhooks. */
type Source = "all" | "one" | "several" | "events" | "events of webhooks";

function sourceOf(webhooks: readonly bigint[] | null, ofEvents: boolean): Source {
  if (ofEvents) return webhooks ? "events of webhooks" : "events";
  if (webhooks === null) return "all";
  return webhooks.length === 1 ? "one" : "several";
}

/**
 * The query of a part: rows in id order until `limit` rows match or `scanned` rows were examined. In the second case, the
 * last examined row has `searched` set, and is there even if it does not match. Conditions on ids and indexes apply where
 * rows are read; all others where they are examined.
 */
function read({ table, indexed, state }: Part, reading: Reading): string {
  const { bounds, from, order, fits, error } = reading;
  const conditions = error ? [...reading.conditions, error[table]] : reading.conditions;
  // Each row of these webhooks matches, so a page needs no more rows of any of them.
  const complete = from === "several" && state === undefined && fits;
  const most = from === "several" ? "greatest(1, :scanned::int / :webhookCount::int)" : ":scanned::int";
  const numbered = `d.*, row_number() over (order by d.id ${order}) as place`;
  const rowsOf = (more: readonly string[], selected = numbered) => {
    const all = [...bounds, ...(indexed === undefined ? [] : [indexed]), ...more];
    const where = all.length > 0 ? `where ${all.join(" and ")}` : "";
    return `select ${selected} from ${table} d ${where} order by d.id ${order} limit ${complete ? ":limit::int" : most}`;
  };
  const ofEvents = (webhooksOf: string, more: readonly string[]) => `select ${numbered} from (
      select d.* from unnest(:events::uuid[], :firsts::uuid[], :lasts::uuid[]) named(id, first, last) ${webhooksOf}
      cross join lateral (
        ${rowsOf(["d.id >= named.first", "d.id <= named.last", "d.event_id = named.id", ...more], "d.*")}
      ) d
    ) d order by d.id ${order} limit :scanned::int`;
  const source = {
    all: () => rowsOf([]),
    one: () => rowsOf(["d.webhook_id = (:webhooks::bigint[])[1]"]),
    several: () => `select d.* from unnest(:webhooks::bigint[]) named(id)
      cross join lateral (${rowsOf(["d.webhook_id = named.id"])}) d`,
    events: () => ofEvents("", []),
    "events of webhooks": () =>
      ofEvents("cross join unnest(:webhooks::bigint[]) own(id)", ["d.webhook_id = own.id"]),
  }[from]();
  const searched = complete ? "false" : `d.place = ${most}`;
  const matches = state === undefined ? "w.matches" : `w.matches and ${state}`;
  return `
    select ${COLUMNS[table]}, ${searched} as searched, ${matches} as matches
    from (${source}) d cross join lateral (
      -- Looked up row by row, so that no more rows are read than the page needs.
      select w.process, w.url, w.name, w.customer, ${conditions.join(" and ")} as matches from webhooks w where w.id = d.webhook_id offset 0
    ) w where (${matches}) or ${searched} order by d.id ${order} limit :limit::int`;
}
