import { expect, test } from "vitest";
import { budgetWarning, readConnectionBudget } from "../../../src/db/connections/connection-budget.ts";
import { rows } from "../../../src/db/database.ts";
import { useDatabase } from "../../support/database.ts";

const db = await useDatabase();

test("a pool that the server has room for is no reason to warn", async () => {
  const budget = await readConnectionBudget(db, 1);
  expect(budgetWarning(budget, 1, 1)).toBeNull();
  expect(budget.used).toBeGreaterThan(0);
});

test("a pool that it has no room for is, and the warning says what is allowed and what to do", async () => {
  const [found] = await rows<{ n: number }>(db, "select current_setting('max_connections')::int as n");
  const allowed = found?.n ?? 0;
  const budget = await readConnectionBudget(db, allowed);
  expect(budget.available).toBeLessThan(allowed);
  expect(budget.processes).toBe(0);
  const said = `DATABASE_POOL_SIZE=${allowed} .* allows ${budget.available} connections.* lower DATABASE_POOL_SIZE`;
  expect(budgetWarning(budget, allowed, 1)).toMatch(new RegExp(said));
});

test("the pools of the processes that a service starts count too", async () => {
  const budget = await readConnectionBudget(db, 20);
  const fitting = Math.floor((budget.available - budget.used) / 20);
  expect(budgetWarning(budget, 20, fitting)).toBeNull();
  const said = `which ${fitting + 1} processes of this service have, .* or DELIVERY_PROCESSES`;
  expect(budgetWarning(budget, 20, fitting + 1)).toMatch(new RegExp(said));
});
