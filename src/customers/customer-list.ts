import { OWN_USERS } from "../contract/catalogue.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import { type CustomerRow, readCustomers } from "./customers.ts";

/** The maximum number of display names that one page examines. */
const MAX_NAMES = 20_000;
/** The maximum number of user ids that one page examines where those with a prefix are in no range. */
const MAX_EXAMINED = 1_000;
/** A character that is after all visible ASCII, by bytes and in languages: a CJK ideograph. */
const AFTER_ALL = "\u9fa5";

/** Users that are no customers. */
const NO_CUSTOMERS = Object.values(OWN_USERS);

/** A page of customers. */
export interface CustomerPage {
  customers: CustomerRow[];
  /** The id after which the next page begins; null on the last page. */
  next: string | null;
}

/**
 * A page of the customers after an id, in the order of the database: those with a row, and those that only events name. Finds the latter
 * one by one, each by the index of users of every partition. A page that has examined enough ends, perhaps without a customer.
 *
 * @param after null for the first page
 * @param search only those whose id begins with it or whose display name contains it; empty for all
 */
export async function listCustomers(
  db: Db,
  { after, search, limit }: { after: string | null; search: string; limit: number },
): Promise<CustomerPage> {
  const isRange = search === "" || (await isInRange(db, search));
  const most = isRange ? limit + 1 + NO_CUSTOMERS.length : MAX_EXAMINED;
  const inRange = isRange && search ? "e.user_id >= :search and e.user_id < :search || :afterAll" : "true";
  const found = await rows<{ id: string | null; horizon: string | null }>(
    db,
    `with recursive used(id, n) as (
        (select e.user_id, 1 from events e where e.user_id > :after and ${inRange} order by e.user_id limit 1)
        union all
        select (select e.user_id from events e where e.user_id > used.id and ${inRange} order by e.user_id limit 1), n + 1
        from used where used.id is not null and n < :most::int
      ),
      named as materialized (
        select id, display_name from customers
        where :search <> '' and display_name is not null and id > :after order by id limit ${MAX_NAMES}
      ),
      horizon(id) as (
        select min(last) from (
          select max(id) as last from used having count(id) = :most::int
          union all select max(id) from named having count(*) = ${MAX_NAMES}
        ) ends
      ),
      found as (
        (select id from used where starts_with(id, :search))
        union (
          select id from customers where id > :after and id collate "C" >= :search
            and id collate "C" < :search || :afterAll order by id limit :most::int
        )
        union (select id from named where strpos(lower(display_name), lower(:search)) > 0)
      )
      select f.id, h.id as horizon from horizon h
        left join lateral (
          select id from found where id <> all(:noCustomers::text[]) and (h.id is null or id <= h.id)
          order by id limit :limit::int + 1
        ) f on true
      order by f.id`,
    { after: after ?? "", search, afterAll: AFTER_ALL, most, limit, noCustomers: NO_CUSTOMERS },
  );
  const ids = found.flatMap(({ id }) => id ?? []);
  const shown = ids.slice(0, limit);
  const isFull = ids.length > limit;
  return {
    customers: await readCustomers(db, shown),
    next: isFull ? (shown.at(-1) ?? null) : (found[0]?.horizon ?? null),
  };
}

/**
 * Whether the database orders all user ids that begin with a text between this text and the text followed by `AFTER_ALL`. Other ids may lie
 * there, too, such as those in another case. Tries all pairs of next characters, because some languages order two characters as one letter,
 * such as "ch".
 */
async function isInRange(db: Db, search: string): Promise<boolean> {
  const [found] = await rows<{ inRange: boolean }>(
    db,
    `select bool_and(id >= :search::text and id < :search::text || :afterAll::text) as "inRange"
      from generate_series(33, 126) a, generate_series(33, 126) b, lateral (select :search::text || chr(a) || chr(b) as id) i`,
    { search, afterAll: AFTER_ALL },
  );
  return found?.inRange === true;
}
