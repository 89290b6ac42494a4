import type { Db } from "./database.ts";

const TRIES = 5;

/**
 * Runs `work` in a transaction, and the whole again when PostgreSQL chose it in a deadlock (40P01) or could not
 * serialise it (40001). Within a caller's transaction it runs once: only the outermost can be tried again.
 */
export async function transactionWithRetry<T>(db: Db, work: (trx: Db) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await db.transaction(work);
    } catch (error) {
      if (db.isTransaction || attempt === TRIES || !isConflict(error)) throw error;
    }
  }
}

function isConflict(error: unknown): boolean {
  const code = (error as { code?: string } | null)?.code;
  return code === "40P01" || code === "40001";
}
