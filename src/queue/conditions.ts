import { NIL_ID } from "../schema/index.ts";

/** The ids of workers with valid claims, as an array that a statement evaluates once. */
export const WORKERS = "array(select id from workers)";

/** The condition that a row of `queue` or `retries` is not claimed. @param table its name in the query */
export const isFree = (table: string) =>
  `(${table}.claimed_by is null or ${table}.claimed_by <> all(${WORKERS}))`;

/** SQL for the largest UUID: no id of a delivery sorts after it. */
export const MAX_ID = "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid";

/**
 * SQL for the condition that a row of `queue` or `retries` is of a webhook, for statements that read its oldest rows with
 * `order by webhook_id, id limit …`. With `webhook_id =` and `order by id`, the planner may read the whole table by its
 * primary key until it finds a row of the webhook.
 *
 * @param first SQL for the smallest id
 * @param last SQL for the largest id
 */
export const ofWebhook = (table: string, webhookId: string, first = `'${NIL_ID}'::uuid`, last = MAX_ID) =>
  `(${table}.webhook_id, ${table}.id) >= (${webhookId}, ${first}) and (${table}.webhook_id, ${table}.id) <= (${webhookId}, ${last})`;

/**
 * SQL for the condition that row `t` of `retries` is of a webhook in a run, for statements that read them with
 * `order by run_id, webhook_id, due`. Like `ofWebhook`, it leaves the planner one index to choose from.
 *
 * @param last SQL for the latest time at which they are due
 */
export const retriesOf = (runId: string, webhookId: string, last: string) =>
  `(t.run_id, t.webhook_id, t.due) >= (${runId}, ${webhookId}, '-infinity'::timestamptz)
    and (t.run_id, t.webhook_id, t.due) <= (${runId}, ${webhookId}, ${last})`;

/**
 * SQL of a recursive query `name(column, n)`: the distinct values of a column of a table, in order, numbered from 1, and perhaps null at
 * the end. One index probe for each, however many rows each has.
 *
 * @param options.where SQL for the rows to read. Defaults to all
 * @param options.most SQL for the maximum number of values. Defaults to no limit
 * @param options.order SQL for the columns of the index. Defaults to the column
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

/** The number of pending deliveries of a webhook, at most `limit`, in SQL. Both parameters are SQL. */
export const pendingUpTo = (webhookId: string, limit: string) =>
  `(select count(*)::int from (
    select from queue q where ${ofWebhook("q", webhookId)} order by q.webhook_id, q.id limit ${limit}
  ) pending)`;
