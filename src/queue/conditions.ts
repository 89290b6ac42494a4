import { NIL_ID } from "../schema/index.ts";

/**
 * SQL for the ids in `workers`, as an array that a statement evaluates once. Only the claims of these workers are valid. Also for other
 * modules, as are `isFree` and `ofWebhook`: conditions on rows that their statement reads with other tables, in one snapshot.
 */
export const WORKERS = "array(select id from workers)";

/** SQL for whether no worker with a row in `workers` has claimed a row of `queue` or `retries`. @param table its name in the query */
export const isFree = (table: string) =>
  `(${table}.claimed_by is null or ${table}.claimed_by <> all(${WORKERS}))`;

/** SQL for the largest UUID: no id of a delivery sorts after it. */
export const MAX_ID = "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid";

/**
 * SQL for whether a row of `queue` or `retries` belongs to a webhook. For statements that read the oldest rows of the webhook with
 * `order by webhook_id, id limit …`. With `webhook_id =` and `order by id`, the planner may read the whole table by its
 * primary key until it finds a row of the webhook.
 *
 * @param first SQL for the smallest delivery id. Defaults to the nil UUID
 * @param last SQL for the largest delivery id. Defaults to the largest UUID
 */
export const ofWebhook = (table: string, webhookId: string, first = `'${NIL_ID}'::uuid`, last = MAX_ID) =>
  `(${table}.webhook_id, ${table}.id) >= (${webhookId}, ${first}) and (${table}.webhook_id, ${table}.id) <= (${webhookId}, ${last})`;

/**
 * SQL for whether row `t` of `retries` belongs to a webhook in a run. For statements that read these rows with
 * `order by run_id, webhook_id, due`. Like `ofWebhook`, it leaves the planner one index to choose from.
 *
 * @param last SQL for the latest due time to include
 */
export const retriesOf = (runId: string, webhookId: string, last: string) =>
  `(t.run_id, t.webhook_id, t.due) >= (${runId}, ${webhookId}, '-infinity'::timestamptz)
    and (t.run_id, t.webhook_id, t.due) <= (${runId}, ${webhookId}, ${last})`;

/**
 * SQL of a recursive query `name(column, n)`: the distinct values of a column of a table, in ascending order, numbered from 1. The last
 * row is null if the values ended before `most`; callers must ignore it. Makes one index lookup per value, however many rows have it.
 *
 * @param options.where SQL for the rows to read. Defaults to all
 * @param options.most SQL for the maximum number of values. Defaults to no limit
 * @param options.order SQL for the columns to order by, which select the index. Defaults to the column
 */
export const distinctOf = (
  name: string,
  column: string,
  table: "queue" | "retries",
  { where = "true", most = "null", order = column },
) => `
  ${name}(${column}, n) as (
    (select ${column}, 1 from ${table} where ${where} order by ${order} limit 1)
    union all
    select (select t.${column} from ${table} t where ${where} and t.${column} > ${name}.${column} order by ${order} limit 1), n + 1
    from ${name} where ${name}.${column} is not null and (n < ${most}) is not false
  )`;

/** SQL for the number of rows of a webhook in `queue`, claimed ones included, at most `limit`. Both parameters are SQL. */
export const pendingUpTo = (webhookId: string, limit: string) =>
  `(select count(*)::int from (
    select from queue q where ${ofWebhook("q", webhookId)} order by q.webhook_id, q.id limit ${limit}
  ) pending)`;

/** SQL for the rate limit of a webhook in deliveries a second; null for none. @param webhook its row in the query */
export const ratePerSecond = (webhook: string) =>
  `(${webhook}.rate_limit::float8 / coalesce(${webhook}.rate_period_seconds, 1))`;
