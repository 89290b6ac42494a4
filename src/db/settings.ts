import { count, type Db, rows } from "./database.ts";

/** Sets a fact about this instance unless it is set, and answers it as it is now. */
export async function settingOrNew(db: Db, name: string, value: string): Promise<string> {
  await count(db, "insert into settings (name, value) values (:name, :value) on conflict do nothing", {
    name,
    value,
  });
  const [row] = await rows<{ value: string }>(db, "select value from settings where name = :name", { name });
  return row?.value ?? "";
}

/** Replaces a fact about this instance, unless somebody else has replaced it since it was read. */
export async function replaceSetting(db: Db, name: string, was: string, value: string): Promise<void> {
  await count(db, "update settings set value = :value where name = :name and value = :was", {
    name,
    value,
    was,
  });
}
