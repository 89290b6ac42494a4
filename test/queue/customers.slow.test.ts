import { expect, test } from "vitest";
import { empty, useDatabase } from "../support/database.ts";
import { expectApart } from "./customers.ts";

const db = await useDatabase();
const open = async () => {
  await empty(db);
  return db;
};

test("of 1,000 customers and 10,000 events, no delivery is of another customer's event, and none is missing", async () => {
  const counts = await expectApart(open, { customers: 1_000, events: 10_000, steps: 100 }, 1);
  expect(counts.ofCustomers).toBeGreaterThan(1_000);
});
