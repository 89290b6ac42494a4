import type { BottleneckCause } from "../contract/stats/bottlenecks.ts";
import { column, count, type Db, rows } from "../lib/pg/index.ts";

/**
 * Adds a row for a process that will claim deliveries. The row expires unless `renewWorker` renews it.
 *
 * @param worker.name the name of the process, for logs
 * @param worker.taskQueue the Temporal task queue from which the process takes the activities of its pumps
 * @param worker.leaseMs the duration of the lease, in milliseconds
 * @returns the worker id for claims
 */
export async function addWorker(
  db: Db,
  worker: { name: string; taskQueue: string; leaseMs: number },
): Promise<number> {
  const [id] = await column<number>(
    db,
    `insert into workers (name, task_queue, lease_until)
      values (:name, :taskQueue, clock_timestamp() + interval '1 millisecond' * :leaseMs::float8) returning id`,
    worker,
  );
  return id as number;
}

/** Lists processes that have a worker with a valid lease. Each process has a task queue of its own, for its pumps. */
export function listLiveWorkers(db: Db): Promise<{ taskQueue: string; name: string }[]> {
  return rows(
    db,
    `select task_queue as "taskQueue", min(name) as name from workers where lease_until > clock_timestamp()
      group by 1 order by min(id)`,
  );
}

/**
 * Renews a lease, even an expired one. Returns false if the row no longer exists.
 *
 * @param bottleneck the cause that currently prevents requests of the process. Defaults to null: none
 */
export async function renewWorker(
  db: Db,
  id: number,
  leaseMs: number,
  bottleneck: BottleneckCause | null = null,
): Promise<boolean> {
  const renewed = await count(
    db,
    `update workers set lease_until = clock_timestamp() + interval '1 millisecond' * :leaseMs::float8,
        bottleneck = :bottleneck::text
      where id = :id::int`,
    { id, leaseMs, bottleneck },
  );
  return renewed === 1;
}

/**
 * Deletes workers with an expired lease, which frees their claims. Returns their names. Deletes none if all leases of the calling process
 * have expired: the statement may have been sent before an outage of the database, during which no worker could renew its lease.
 *
 * @param own worker ids of the calling process. They are not deleted, because the process still renews them
 */
export function endExpiredWorkers(db: Db, own: readonly number[] = []): Promise<string[]> {
  return column<string>(
    db,
    `delete from workers where lease_until < clock_timestamp() and id <> all(:own::int[])
        and (:own::int[] = '{}' or exists (
          select from workers where id = any(:own::int[]) and lease_until > clock_timestamp()
        ))
      returning name`,
    { own: own as number[] },
  );
}

/** Deletes a worker, which frees its remaining claims. The process must have recorded or released all claims that it knows of. */
export async function removeWorker(db: Db, id: number): Promise<void> {
  await count(db, "delete from workers where id = :id::int", { id });
}
