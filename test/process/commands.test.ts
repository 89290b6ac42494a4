import { expect, onTestFinished, test } from "vitest";
import { explain } from "../../src/config/explain.ts";
import { openDatabase } from "../../src/lib/pg/database.ts";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { node, startProgram } from "../support/program.ts";

test.each([
  {
    what: "a setting of the demo that cannot be used",
    command: node("demo/main.ts"),
    environment: { LOG_LEVEL: "no" },
    says: /^Invalid configuration:\nLOG_LEVEL: .*"no"/m,
  },
  {
    what: "an unknown option",
    command: node("demo/main.ts", "--foo"),
    says: /^The demo failed: Unknown option '--foo'/m,
  },
  {
    what: "a key for a DATA_DIR without a database",
    command: node("src/admin-key.ts"),
    says: /^Creating a key failed: there is no database in .*; set DATABASE_URL/m,
  },
])(
  "$what is explained in words, without the place in the code, and the program ends with 1",
  async ({ command, environment = {}, says }) => {
    const DATA_DIR = await temporaryFolder();
    const { ended, printed } = startProgram(command, { environment: { DATA_DIR, ...environment } });
    expect([await ended, printed()]).toEqual([1, expect.stringMatching(says)]);
    expect(printed()).not.toMatch(/^ +at /m);
  },
);

test("if several parts cannot be stopped, each error is reported, the first one first", async () => {
  const parts = new AsyncDisposableStack();
  for (const name of ["database", "API", "worker"])
    parts.defer(() => Promise.reject(new Error(`the ${name} does not stop`)));
  const error = await parts.disposeAsync().catch((reason) => reason);
  expect(explain("Stopping failed", error)).toBe(
    "Stopping failed: the worker does not stop\n  and: the API does not stop\n  and: the database does not stop\n(set LOG_LEVEL=debug for details)",
  );
});

test("npm run migrate waits for the database, prepares its schema and ends", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  const db = openDatabase(database.url, { max: 1 });
  onTestFinished(async () => {
    await db.destroy();
    await gateway.close();
    await database.drop();
  });
  await db.raw("drop schema public cascade; create schema public");
  await gateway.set("refuse");
  const SECRET_KEY = Buffer.alloc(32, 1).toString("base64");
  const environment = { ROLE: "api", LOG_LEVEL: "warn", DATABASE_URL: gateway.url, SECRET_KEY };
  const program = startProgram(node("src/migrate.ts"), { environment });
  await program.until(/waiting for the database/);
  await gateway.set("pass");
  expect(await program.ended).toBe(0);
  expect(await db("knex_migrations").pluck("name")).toContain("0001-initial");
});
