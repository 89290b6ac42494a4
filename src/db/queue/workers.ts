import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";

/** The ids of workers whose claims hold, as an array that a statement reads once. */
export const WORKERS = "array(select id from workers)";

/** That nobody holds a row of `queue` or `retries`. @param table its name in the query */
export const isFree = (table: string) =>
  `(${table}.claimed_by is null or ${table}.claimed_by <> all(${WORKERS}))`;

/**
 * Makes a row for a process that is about to claim deliveries; it expires unless it is renewed.
 *
 * @param worker.taskQueue on which it takes pumps in Temporal
 * @param worker.leaseMs how long the lease lasts, in milliseconds
 * @returns the id that its claims carry
 */
export async function addWorker(
  db: Db,
  worker: { name: string; taskQueue: string; leaseMs: number },
): Promise<number> {
  const [added] = await rows<{ id: number }>(
    db,
    `insert into workers (name, task_queue, lease_until)
      values (:name, :taskQueue, clock_timestamp() + interval '1 millisecond' * :leaseMs::float8) returning id`,
    worker,
  );
  return (added as { id: number }).id;
}

/** The workers that live: one for each process, by the task queue on which it takes pumps. */
export function listLiveWorkers(db: Db): Promise<{ taskQueue: string; name: string }[]> {
  return rows(
    db,
    `select task_queue as "taskQueue", min(name) as name from workers where lease_until > clock_timestamp()
      group by 1 order by min(id)`,
  );
}

/** Renews a lease, also one that has expired, as long as nobody has ended it; false once somebody has. */
export async function renewWorker(db: Db, id: number, leaseMs: number): Promise<boolean> {
  const renewed = await count(
    db,
    `update workers set lease_until = clock_timestamp() + interval '1 millisecond' * :leaseMs::float8
      where id = :id::int`,
    { id, leaseMs },
  );
  return renewed === 1;
}

/**
 * Ends workers whose lease has expired, so that their claims are free; answers their names.
 *
 * @param own ids of the caller's process, which renews them itself once the database is back
 */
export async function endExpiredWorkers(db: Db, own: readonly number[] = []): Promise<string[]> {
  const ended = await rows<{ name: string }>(
    db,
    "delete from workers where lease_until < clock_timestamp() and id <> all(:own::int[]) returning name",
    { own: own as number[] },
  );
  return ended.map(({ name }) => name);
}

/** Ends a worker that has nothing claimed any more. */
export async function removeWorker(db: Db, id: number): Promise<void> {
  await count(db, "delete from workers where id = :id::int", { id });
}
