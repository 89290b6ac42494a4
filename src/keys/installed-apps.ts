import { randomUUID } from "node:crypto";
import { stateNotFit } from "../calls/errors/index.ts";
import type { Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { type Db, rows, run } from "../lib/pg/index.ts";
import { takeLock } from "../schema/index.ts";
import { hasRows } from "./api-keys.ts";
import { CREATED_US, type CreatedPage, pageByCreated } from "./created-page.ts";

/** An application that integrators install. `id` is its InstalledApplicationId. */
export interface InstalledAppRow {
  id: string;
  name: string;
  created: Date;
}

/**
 * Creates an installed app, unless the service has `maxApps`. Names need not be unique.
 *
 * @throws DomainError FAILED_PRECONDITION if there are `maxApps` apps
 */
export function createBoundedInstalledApp(db: Db, name: string, maxApps: number): Promise<InstalledAppRow> {
  return db.transaction(async (trx) => {
    await takeLock(trx, "apps");
    if (await hasRows(trx, "installed_apps", maxApps)) {
      throw new DomainError(
        "TOO_MANY_APPS",
        `the service has ${maxApps} installed apps, and at most ${maxApps} are allowed; remove unused apps with DeleteInstalledApp, or ask the operator to raise MAX_INSTALLED_APPS`,
      );
    }
    return createInstalledApp(trx, name);
  });
}

/** Creates an installed app without a limit. Names need not be unique. */
export async function createInstalledApp(db: Db, name: string): Promise<InstalledAppRow> {
  const [row] = await run(db, db("installed_apps").insert({ id: randomUUID(), name }).returning("*"));
  return row as InstalledAppRow;
}

/** A page of the scope's installed apps, oldest first. */
export function listInstalledApps(
  db: Db,
  scope: Scope,
  page: CreatedPage,
): Promise<(InstalledAppRow & { createdUs: bigint })[]> {
  const [inScope, own] = scope === "everything" ? ["true", null] : ["id = :own::uuid", scope.installedAppId];
  const paged = pageByCreated(page);
  return rows(
    db,
    `select id, name, created, ${CREATED_US} from installed_apps
      where ${inScope} and ${paged.sql}`,
    { own, ...paged.bindings },
  );
}

/**
 * Removes an installed app without API keys, including revoked ones, and without webhooks. Deleted webhooks keep its
 * id, which is never reused. `id` must be a UUID.
 *
 * @throws DomainError NOT_FOUND if there is no such app; FAILED_PRECONDITION if it has keys or webhooks
 */
export function removeInstalledApp(db: Db, id: string): Promise<InstalledAppRow> {
  return db.transaction(async (trx) => {
    // The lock blocks the creation of keys for the app, and without keys no webhooks can be registered for it.
    const [app] = await run(trx, trx("installed_apps").select("*").where({ id }).forUpdate());
    if (!app) {
      throw new DomainError(
        "APP_NOT_FOUND",
        `installed_application_id: no installed app has the id ${id}; list them with ListInstalledApps`,
      );
    }
    const [{ keys, webhooks } = { keys: 0, webhooks: 0 }] = await rows<{ keys: number; webhooks: number }>(
      trx,
      `select (select count(*)::int from api_keys where installed_app_id = :id::uuid) as keys,
        (select count(*)::int from webhooks where installed_app_id = :id::uuid and deleted is null) as webhooks`,
      { id },
    );
    if (keys + webhooks > 0) {
      throw stateNotFit(
        `installed_application_id: the app ${id} has ${keys} API keys, including revoked ones, and ${webhooks} webhooks; revoke and remove its keys and delete its webhooks first`,
      );
    }
    await run(trx, trx("installed_apps").where({ id }).delete());
    return app;
  });
}
