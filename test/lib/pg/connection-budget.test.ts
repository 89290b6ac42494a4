import { expect, test } from "vitest";
import { budgetWarning, readConnectionBudget } from "../../../src/lib/pg/connection-budget.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { useDatabase } from "../../support/database.ts";

const db = await useDatabase();

test("pools that the server has room for are no reason to warn; others are, and the warning says what is allowed and what to do", async () => {
  const [found] = await rows<{ n: number }>(db, "select current_setting('max_connections')::int as n");
  const allowed = found?.n ?? 0;
  const all = await readConnectionBudget(db, allowed);
  expect(all).toMatchObject({ processes: 0, used: expect.toSatisfy((used: number) => used > 0) });
  expect(all.available).toBeLessThan(allowed);
  const tooMany = `DATABASE_POOL_SIZE=${allowed} .* allows ${all.available} connections.* lower DATABASE_POOL_SIZE`;
  expect(budgetWarning(all, allowed, 1)).toMatch(new RegExp(tooMany));
  // The pools of the processes that a service starts count, too.
  const budget = await readConnectionBudget(db, 20);
  const fitting = Math.floor((budget.available - budget.used) / 20);
  expect(budgetWarning(budget, 20, fitting)).toBeNull();
  const said = `which ${fitting + 1} processes of this service have, .* or DELIVERY_PROCESSES`;
  expect(budgetWarning(budget, 20, fitting + 1)).toMatch(new RegExp(said));
});
