import { expect, test } from "vitest";
import { empty, useDatabase } from "../support/database.ts";
import { expectApart } from "./customers.ts";

const db = await useDatabase();
const open = async () => {
  await empty(db);
  return db;
};

test("whatever customers and the operator do, no delivery is of another customer's event, and none is missing", async () => {
  const counts = await expectApart(open, { customers: 12, events: 300, steps: 12 }, 3);
  for (const [what, n] of Object.entries(counts)) expect(n, what).toBeGreaterThan(0);
});
