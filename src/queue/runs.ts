import { column, count, type Db, rows } from "../lib/pg/index.ts";

/** A request to open a run. `workflowId` and `firstRunId` identify the run; continue-as-new changes neither. */
export interface RunWish {
  workflowId: string;
  firstRunId: string;
  /** The minimum duration of the run's lease from now, in milliseconds. A longer lease stays. */
  leaseMs: number;
}

/** The row of a run. */
export interface OpenRun {
  id: number;
  /** The time since its start, in milliseconds. */
  ageMs: number;
}

/** Inserts missing runs, extends the leases of the others, and returns the runs in the order of the wishes. */
export async function openRuns(db: Db, wishes: readonly RunWish[]): Promise<OpenRun[]> {
  const opened = await rows<OpenRun & RunWish>(
    db,
    `insert into runs (workflow_id, first_run_id, lease_until)
      select "workflowId", "firstRunId", now() + interval '1 millisecond' * max("leaseMs")
        from json_to_recordset(:wishes::json) as w("workflowId" text, "firstRunId" text, "leaseMs" float8)
        group by 1, 2 order by 1, 2
      on conflict (workflow_id, first_run_id) do update set lease_until = greatest(runs.lease_until, excluded.lease_until)
      returning id, (extract(epoch from now() - started) * 1000)::float8 as "ageMs",
        workflow_id as "workflowId", first_run_id as "firstRunId"`,
    { wishes: JSON.stringify(wishes) },
  );
  return wishes.map(
    ({ workflowId, firstRunId }) =>
      opened.find((run) => run.workflowId === workflowId && run.firstRunId === firstRunId) as OpenRun,
  );
}

/** Totals over the activities of a run. `delivered` and `failed` count deliveries. */
export interface RunTotals {
  /** The number of recorded attempts. */
  sent: number;
  delivered: number;
  failed: number;
}

/** A lease to renew, and the counts since the last renewal. */
export interface Renewal extends RunTotals {
  runId: number;
  leaseMs: number;
}

/** Extends leases to at least `leaseMs` from now, and adds the counts to the runs' totals. */
export async function renewLeases(db: Db, renewals: readonly Renewal[]): Promise<void> {
  await count(
    db,
    `update runs r set lease_until = greatest(lease_until, now() + interval '1 millisecond' * n.lease_ms),
        sent = r.sent + n.sent, delivered = r.delivered + n.delivered, failed = r.failed + n.failed
      from (
        select "runId" as run_id, max("leaseMs") as lease_ms,
          sum(sent)::int as sent, sum(delivered)::int as delivered, sum(failed)::int as failed
        from json_to_recordset(:renewals::json)
          as n("runId" int, "leaseMs" float8, sent int, delivered int, failed int)
        group by 1
      ) n
      where r.id = n.run_id and closed is null`,
    { renewals: JSON.stringify(renewals) },
  );
}

/** The totals of a run at its end. */
export interface RunEnd extends RunTotals {
  /** The number of its open retries. If not 0, the run continues. */
  open: number;
  /** The number of retries released for other runs. */
  putBack: number;
}

/**
 * Closes a run without open retries. Otherwise the run continues.
 *
 * @param abandon whether to close a run with open retries too, which other runs adopt
 */
export async function closeRun(db: Db, runId: number, abandon = false): Promise<RunEnd> {
  const [end] = await rows<RunEnd>(
    db,
    `with put_back as (
        update retries set run_id = null where run_id = :runId::int and :abandon::bool returning id
      )
      update runs set closed = coalesce(closed,
          case when :abandon::bool or not exists (select from retries where run_id = :runId::int) then now() end)
        where id = :runId::int returning sent, delivered, failed,
          case when closed is null then (select count(*)::int from retries where run_id = :runId::int) else 0 end as open,
          (select count(*)::int from put_back) as "putBack"`,
    { runId, abandon },
  );
  return end as RunEnd;
}

/**
 * Closes runs with an expired lease, for example after a loss of Temporal's state, at most 20. Other runs adopt their retries. Returns
 * the number of runs.
 */
export function closeExpiredRuns(db: Db): Promise<number> {
  return db.transaction(async (trx) => {
    // Leaves out runs that another process is closing or whose lease it is renewing.
    const expired = await column<number>(
      trx,
      "select id from runs where closed is null and lease_until < now() order by id limit 20 for update skip locked",
    );
    for (const id of expired) await closeRun(trx, id, true);
    return expired.length;
  });
}
