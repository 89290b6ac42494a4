import fc from "fast-check";
import { test } from "vitest";
import { textArray } from "../../../src/lib/pg/array-literal.ts";
import { openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { part } from "../../support/parts.ts";

test("texts of any characters reach PostgreSQL unchanged", async ({ expect, onTestFinished }) => {
  const db = openDatabase((await part("postgres")).url, { max: 1 });
  onTestFinished(() => db.destroy());
  const text = fc.oneof(
    fc.string({ unit: "binary" }).map((some) => some.replaceAll("\0", "").toWellFormed()),
    fc.constantFrom("", "NULL", "{}", '"', "\\", "\n\t\u0001\u2028", '{"a":"\\"\\\\,b"}', "🌍, and 'more'"),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(text)), async (texts) => {
      const [row] = await rows<{ texts: (string | null)[] }>(db, "select :texts::text[] as texts", {
        texts: textArray(texts),
      });
      expect(row?.texts).toEqual(texts);
    }),
  );
});
