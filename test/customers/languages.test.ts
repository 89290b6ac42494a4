import { expect, onTestFinished, test } from "vitest";
import { listCustomers } from "../../src/customers/customer-list.ts";
import { openDatabase } from "../../src/lib/pg/database.ts";
import { migrate } from "../../src/schema/migrate.ts";
import { part } from "../support/parts.ts";
import { publishFor } from "./customer-parts.ts";

/** A database that orders texts as a language does. */
async function databaseIn(language: string) {
  const { url: adminUrl } = await part("postgres");
  const admin = openDatabase(adminUrl, { max: 1, applicationName: "test" });
  onTestFinished(() => admin.destroy());
  const url = new URL(adminUrl);
  url.pathname = `test_${process.pid}_${language}`;
  const name = url.pathname.slice(1);
  await admin.raw(
    `create database ${name} template template0 encoding 'UTF8' locale 'C' locale_provider icu icu_locale '${language}'`,
  );
  onTestFinished(async () => {
    await admin.raw(`drop database ${name} with (force)`);
  });
  await migrate(url.href);
  const db = openDatabase(url.href, { max: 2, applicationName: "test" });
  onTestFinished(() => db.destroy());
  return db;
}

// In Czech, "ch" is a letter after "h", and in Estonian "z" comes before "t".
test.each(["en", "cs", "et"])(
  "a search finds all customers whose user_id begins with it where texts are ordered as in the language %s",
  async (language) => {
    const db = await databaseIn(language);
    const users = [
      "acme-1",
      "ACME-2",
      "acme-3",
      "a-b",
      "ab",
      "c",
      "c1",
      "CH2",
      "ch1",
      "cz",
      "d",
      "s",
      "s~",
      "sz",
      "t",
    ];
    await publishFor(db, ...users);
    await db("customers").insert([{ id: "ch0" }, { id: "C0", display_name: "Chip" }]);
    const all = [...users, "ch0", "C0"];
    for (const search of ["a", "ac", "acme", "acme-", "A", "c", "C", "ch", "s", "s~", "z"]) {
      const found: string[] = [];
      for (let after: string | null = null; ; ) {
        const page = await listCustomers(db, { after, search, limit: 2 });
        found.push(...page.customers.map(({ id }) => id));
        if (page.next === null) break;
        after = page.next;
      }
      const named = "chip".includes(search.toLowerCase()) ? ["C0"] : [];
      const wanted = new Set([...all.filter((id) => id.startsWith(search)), ...named]);
      expect([search, ...found.toSorted()]).toEqual([search, ...[...wanted].sort()]);
    }
  },
);
