import { DomainError } from "../contract/errors.ts";
import { count, type Db, rows, run } from "../lib/pg/index.ts";
import { ADVISORY_LOCKS } from "./advisory-locks.ts";

/** A process that publishes or delivers. */
export interface NewInstance {
  /** As `instanceName` gives it, also to rows of `workers`: one without an instance of its name is of an older release. */
  name: string;
  release: string;
  role: string;
  /** The features that it knows. */
  features: readonly string[];
}

/** An instance that does not know a required feature. */
interface Lacking {
  name: string;
  release: string;
  role: string;
}

/** A feature cannot be required, because a live process does not know it. */
export class FeatureUnknownError extends DomainError {
  override name = "FeatureUnknownError";
}

/** SQL for the required features that an instance does not know. @param known SQL for those that it knows */
const missing = (known: string) =>
  `array(select r.name from required_features r where r.name <> all(${known}) order by r.name)`;

/**
 * Adds an instance. Its row expires unless renewed.
 *
 * @param leaseMs the duration of the lease, in milliseconds
 * @returns its id, and the required features that it does not know
 */
export function addInstance(
  db: Db,
  { features, ...instance }: NewInstance,
  leaseMs: number,
): Promise<{ id: number; missing: string[] }> {
  return db.transaction(async (trx) => {
    await lockFeatures(trx, "shared");
    await count(trx, "delete from instances where lease_until < clock_timestamp() - interval '1 hour'");
    const [added] = await rows<{ id: number; missing: string[] }>(
      trx,
      `insert into instances as i (name, release, role, features, lease_until)
        values (:name, :release, :role, :features::text[], clock_timestamp() + interval '1 millisecond' * :leaseMs::float8)
        returning id, ${missing("i.features")} as missing`,
      { ...instance, features: [...features], leaseMs },
    );
    return added as { id: number; missing: string[] };
  });
}

/**
 * Renews a lease, even an expired one.
 *
 * @returns the required features that the instance does not know; null if its row was deleted
 */
export function renewInstance(db: Db, id: number, leaseMs: number): Promise<string[] | null> {
  return db.transaction(async (trx) => {
    await lockFeatures(trx, "shared");
    const [renewed] = await rows<{ missing: string[] }>(
      trx,
      `update instances i set lease_until = clock_timestamp() + interval '1 millisecond' * :leaseMs::float8
        where id = :id::int returning ${missing("i.features")} as missing`,
      { id, leaseMs },
    );
    return renewed?.missing ?? null;
  });
}

/** Deletes an instance that has ended. */
export async function removeInstance(db: Db, id: number): Promise<void> {
  await run(db, db("instances").where({ id }).delete());
}

/**
 * Requires a feature of each process, from the end of the transaction on: those that do not know it end, or do not start. Call it in
 * the transaction that writes the first row that needs it.
 *
 * @throws FeatureUnknownError FAILED_PRECONDITION if a live process does not know it
 */
export async function requireFeature(trx: Db, feature: string): Promise<void> {
  const isRequired = await run(trx, trx("required_features").select("name").where({ name: feature }));
  if (isRequired.length > 0) return;
  await lockFeatures(trx, "exclusive");
  const lacking = await rows<Lacking>(trx, LACKING, { feature });
  if (lacking.length > 0) {
    const named = lacking
      .map(({ name, release, role }) => `${name} (release ${release}, ${role})`)
      .join(", ");
    throw new FeatureUnknownError(
      "STATE_NOT_FIT",
      `this needs the feature ${feature}, which these processes do not know: ${named}; upgrade or end them, and try again`,
    );
  }
  await run(trx, trx("required_features").insert({ name: feature }).onConflict("name").ignore());
}

/**
 * Live processes that do not know `:feature`. Releases before 0.4.0 have no row in `instances`: their workers have one in `workers`, and
 * this release gives its connections another `application_name`.
 */
const LACKING = `
  select name, release, role from instances
    where lease_until > clock_timestamp() and :feature::text <> all(features)
  union all
  select w.name, 'before 0.4.0', 'worker' from workers w
    where w.lease_until > clock_timestamp() and not exists (select from instances i where i.name = w.name)
  union all
  select coalesce(host(a.client_addr), 'this machine'), 'before 0.4.0', 'connections: ' || count(*)
    from pg_stat_activity a
    where a.datname = current_database() and a.application_name in ('webhook-service', 'webhook-service-announcements')
    group by a.client_addr
  order by 1
  limit 10`;

/** Instances are added and renewed while no feature is being required. */
async function lockFeatures(trx: Db, mode: "shared" | "exclusive"): Promise<void> {
  const lock = mode === "shared" ? "pg_advisory_xact_lock_shared" : "pg_advisory_xact_lock";
  await rows(trx, `select ${lock}(:features::bigint)`, { features: ADVISORY_LOCKS.features });
}
