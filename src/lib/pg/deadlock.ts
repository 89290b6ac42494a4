import { transactionInTurn } from "./call-signal.ts";
import type { Db } from "./database.ts";

/** The maximum number of times that a transaction is executed. */
const MAX_ATTEMPTS = 5;

/**
 * Runs `work` in a transaction. Repeats the whole transaction, up to 4 times and without a pause, if PostgreSQL aborted
 * it for a deadlock (40P01) or a serialization failure (40001). Inside a caller's transaction, runs it once: only the
 * outermost transaction can be repeated.
 */
export async function transactionWithRetry<T>(db: Db, work: (trx: Db) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transactionInTurn(db, () => db.transaction(work));
    } catch (error) {
      if (db.isTransaction || attempt === MAX_ATTEMPTS || !isConflict(error)) throw error;
    }
  }
}

function isConflict(error: unknown): boolean {
  const code = (error as { code?: string } | null)?.code;
  return code === "40P01" || code === "40001";
}
