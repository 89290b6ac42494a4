import { count, type Db, run } from "../lib/pg/index.ts";

/** Stores a setting of this instance unless it exists. Returns its current value. */
export async function settingOrNew(db: Db, name: string, value: string): Promise<string> {
  await run(db, db("settings").insert({ name, value }).onConflict().ignore());
  const [row] = await run(db, db("settings").select("value").where({ name }));
  return row?.value ?? "";
}

/** Stores a setting of this instance, also if it exists. */
export async function storeSetting(db: Db, name: string, value: string): Promise<void> {
  await run(db, db("settings").insert({ name, value }).onConflict("name").merge());
}

/**
 * Takes the turn of an action that one of all processes does once per interval, in seconds. True if this process may do
 * it now. A next turn later than an interval from now does not count: the clock of the database was set back since.
 *
 * @param name of the turn; the time of the next one is kept under it
 */
export async function takeTurn(db: Db, name: string, everySeconds: number): Promise<boolean> {
  // clock_timestamp(), because another process may have taken the turn since this transaction began, at now().
  const taken = await count(
    db,
    `insert into settings as s (name, value) values (:name, (now() + make_interval(secs => :everySeconds::int))::text)
      on conflict (name) do update set value = excluded.value where s.value::timestamptz <= now()
        or s.value::timestamptz > clock_timestamp() + make_interval(secs => :everySeconds::int)`,
    { name, everySeconds },
  );
  return taken === 1;
}

/** Sets the time of the next turn of an action, in seconds from now. */
export async function setNextTurn(db: Db, name: string, inSeconds: number): Promise<void> {
  await count(
    db,
    "update settings set value = (now() + make_interval(secs => :inSeconds::int))::text where name = :name",
    { name, inSeconds },
  );
}

/** Replaces a fact about this instance, unless somebody else has replaced it since it was read. */
export async function replaceSetting(db: Db, name: string, was: string, value: string): Promise<void> {
  await run(db, db("settings").where({ name, value: was }).update({ value }));
}
