import type { Db } from "./database.ts";
import { count, rows } from "./database.ts";

/** A run as Temporal knows it; continue-as-new keeps both, so it stays the same run. */
export interface RunKey {
  workflowId: string;
  firstRunId: string;
}

/** The run's row, made when it is first asked for. Its lease is set to at least `leaseMs` from now. */
export async function openRun(db: Db, key: RunKey, leaseMs: number): Promise<bigint> {
  const [row] = await rows<{ id: bigint }>(
    db,
    `insert into runs (workflow_id, first_run_id, lease_until)
      values (:workflowId, :firstRunId, now() + interval '1 millisecond' * :leaseMs::float8)
      on conflict (workflow_id, first_run_id) do update set lease_until = greatest(runs.lease_until, excluded.lease_until)
      returning id`,
    { ...key, leaseMs },
  );
  return (row as { id: bigint }).id;
}

/** What a run's activities did, over all of them. */
export interface RunTotals {
  /** Attempts recorded. */
  sent: number;
  delivered: number;
  failed: number;
}

/** Sets the lease to at least `leaseMs` from now, never shorter, and adds to the run's totals. */
export async function renewLease(db: Db, runId: bigint, leaseMs: number, more?: RunTotals): Promise<void> {
  await count(
    db,
    `update runs set lease_until = greatest(lease_until, now() + interval '1 millisecond' * :leaseMs::float8),
        sent = sent + :sent, delivered = delivered + :delivered, failed = failed + :failed
      where id = :runId::bigint and closed is null`,
    { runId, leaseMs, sent: more?.sent ?? 0, delivered: more?.delivered ?? 0, failed: more?.failed ?? 0 },
  );
}

/**
 * Ends a run. Entries it had not brought to an end, after a cancel for example, are pending again with their
 * attempts as counted.
 */
export async function closeRun(db: Db, runId: bigint): Promise<RunTotals & { putBack: number }> {
  return db.transaction(async (trx) => {
    const [totals] = await rows<RunTotals>(
      trx,
      `update runs set closed = coalesce(closed, now()) where id = :runId::bigint returning sent, delivered, failed`,
      { runId },
    );
    return { ...(totals as RunTotals), putBack: await giveBack(trx, runId) };
  });
}

/** Ends every run whose lease ran out, as happens when Temporal's state is lost; answers how many runs. */
export async function closeExpiredRuns(db: Db): Promise<number> {
  const expired = await rows<{ id: bigint }>(
    db,
    "select id from runs where closed is null and lease_until < now() order by id limit 20",
  );
  let ended = 0;
  for (const { id } of expired) {
    await db.transaction(async (trx) => {
      // Another process may be at it, or the run may have come back since.
      const closed = await rows(
        trx,
        `update runs set closed = now() where id = (
          select id from runs where id = :id::bigint and closed is null and lease_until < now() for update skip locked)
          returning id`,
        { id },
      );
      if (closed.length === 0) return;
      await giveBack(trx, id);
      ended += 1;
    });
  }
  return ended;
}

async function giveBack(db: Db, runId: bigint): Promise<number> {
  return count(
    db,
    `update deliveries set state = 'pending', run_id = null, claim_activity = null, claim_attempt = null
      where run_id = :runId::bigint and state in ('delivering', 'retrying')`,
    { runId },
  );
}
