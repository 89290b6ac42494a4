import { randomUUID } from "node:crypto";
import { inject } from "vitest";
import { type Db, openDatabase } from "../../src/db/database.ts";

/** A migrated database of a test file's own. */
export interface TestDatabase {
  url: string;
  /** Ends its connections too. */
  drop(): Promise<void>;
}

/** Clones the template, which takes some 50 ms. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  await administer(`create database ${name} template ${inject("templateDatabase")}`);
  const url = new URL(inject("postgresUrl"));
  url.pathname = name;
  return { url: url.href, drop: () => administer(`drop database ${name} with (force)`) };
}

let admin: Db | undefined;

/** By a pool of the process, because to log in takes longer than most of what is done. */
async function administer(sql: string): Promise<void> {
  admin ??= openDatabase(inject("postgresUrl"), { max: 2, applicationName: "test" });
  await admin.raw(sql);
}
