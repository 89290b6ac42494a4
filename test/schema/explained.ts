import type { Db } from "../../src/lib/pg/database.ts";

/** A node of a plan as PostgreSQL tells it. */
export interface PlanNode {
  "Node Type": string;
  "Relation Name"?: string;
  "Plan Rows"?: number;
  Plans?: PlanNode[];
}

/** Does the work in a transaction, or in a savepoint of one, and undoes it. */
export async function undone(db: Db, work: (trx: Db) => Promise<void>): Promise<void> {
  const trx = await db.transaction();
  try {
    await work(trx);
  } finally {
    await trx.rollback();
  }
}

/**
 * The plans of the statements that a query makes, in their order, each made just before its statement is run. Of what
 * they change nothing stays.
 */
export async function plansOf(db: Db, query: (db: Db) => Promise<unknown>): Promise<PlanNode[]> {
  const plans: PlanNode[] = [];
  await undone(db, async (trx) => {
    const explained = async (sql: string, bindings: never) => {
      const { rows } = await trx.raw(`explain (format json) ${sql}`, bindings);
      plans.push(rows[0]["QUERY PLAN"][0].Plan);
      return trx.raw(sql, bindings);
    };
    const listening = new Proxy(trx, {
      get(target, property) {
        if (property === "transaction") return (work: (inner: Db) => unknown) => work(listening);
        if (property !== "raw") return Reflect.get(target, property);
        return (sql: string, bindings: never) => {
          const running = explained(sql, bindings);
          // A prepared statement is explained, and run, as any other.
          return Object.assign(running, { options: () => running });
        };
      },
    });
    await query(listening);
  });
  return plans;
}
