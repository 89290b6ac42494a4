import { count, type Db, rows } from "./database.ts";

/** Stores a setting of this instance unless it exists. Returns its current value. */
export async function settingOrNew(db: Db, name: string, value: string): Promise<string> {
  await count(db, "insert into settings (name, value) values (:name, :value) on conflict do nothing", {
    name,
    value,
  });
  const [row] = await rows<{ value: string }>(db, "select value from settings where name = :name", { name });
  return row?.value ?? "";
}

/** Replaces a setting of this instance, unless it was changed since it was read. */
export async function replaceSetting(db: Db, name: string, was: string, value: string): Promise<void> {
  await count(db, "update settings set value = :value where name = :name and value = :was", {
    name,
    value,
    was,
  });
}
