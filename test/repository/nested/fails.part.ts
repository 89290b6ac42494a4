import { expect, test } from "vitest";
import { openDatabase, rows } from "../../../src/lib/pg/database.ts";
import { part } from "../../support/parts.ts";

test("fails, because PostgreSQL is killed", async () => {
  const db = openDatabase((await part("postgres")).url, { max: 1 });
  const [row] = await rows<{ pid: number }>(
    db,
    "select split_part(pg_read_file('postmaster.pid'), chr(10), 1)::int as pid",
  );
  process.kill(row?.pid as number, "SIGKILL");
  await expect
    .poll(() =>
      rows(db, "select 1").then(
        () => "answers",
        () => "is away",
      ),
    )
    .toBe("is away");
  expect("PostgreSQL").toBe("alive");
});
