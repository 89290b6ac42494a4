import { afterAll, beforeAll, expect, test } from "vitest";
import { budgetWarning, readConnectionBudget } from "../../../src/db/connections/connection-budget.ts";
import { type Db, openDatabase, rows } from "../../../src/db/database.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 2 });
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

test("a pool that the server has room for is no reason to warn", async () => {
  const budget = await readConnectionBudget(db, 1);
  expect(budgetWarning(budget, 1, 1)).toBeNull();
  expect(budget.used).toBeGreaterThan(0);
});

test("a pool that it has no room for is, and the warning says what is allowed and what to do", async () => {
  const [{ allowed } = { allowed: 0 }] = await rows<{ allowed: number }>(
    db,
    "select current_setting('max_connections')::int as allowed",
  );
  const budget = await readConnectionBudget(db, allowed);
  expect(budget.available).toBeLessThan(allowed);
  expect(budget.processes).toBe(0);
  expect(budgetWarning(budget, allowed, 1)).toMatch(
    new RegExp(
      `DATABASE_POOL_SIZE=${allowed} .* allows ${budget.available} connections.* lower DATABASE_POOL_SIZE`,
    ),
  );
});

test("the pools of the processes that a service starts count too", async () => {
  const budget = await readConnectionBudget(db, 20);
  const fitting = Math.floor((budget.available - budget.used) / 20);
  expect(budgetWarning(budget, 20, fitting)).toBeNull();
  expect(budgetWarning(budget, 20, fitting + 1)).toMatch(
    new RegExp(`which ${fitting + 1} processes of this service have, .* or DELIVERY_PROCESSES`),
  );
});
