import { randomUUID } from "node:crypto";
import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** An application that integrators install; `id` is its InstalledApplicationId. */
export interface InstalledAppRow {
  id: string;
  name: string;
  created: Date;
}

/** Makes an installed app; names need not differ. */
export async function createInstalledApp(db: Db, name: string): Promise<InstalledAppRow> {
  const [row] = await rows<InstalledAppRow>(
    db,
    "insert into installed_apps (id, name) values (:id::uuid, :name) returning id, name, created",
    { id: randomUUID(), name },
  );
  return row as InstalledAppRow;
}

/** Every installed app, oldest first. */
export function listInstalledApps(db: Db): Promise<InstalledAppRow[]> {
  return rows<InstalledAppRow>(db, "select id, name, created from installed_apps order by created, id");
}

/** Whether there is such an app. `id` must be a UUID. */
export async function installedAppExists(db: Db, id: string): Promise<boolean> {
  return (await rows(db, "select 1 from installed_apps where id = :id::uuid", { id })).length > 0;
}
