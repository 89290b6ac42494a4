import { createHash } from "node:crypto";
import { type Recorder, SERVICE_WIDE } from "../audit/index.ts";
import { FIRST_REGISTERED } from "../contract/catalogue.ts";
import { DomainError, type FieldViolation } from "../contract/errors.ts";
import { count, type Db, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { requireFeature, takeLock } from "../schema/index.ts";
import type { CatalogueProblem, RegistrationPlan, StoredFile, StoredType } from "./model.ts";
import { planRegistration } from "./plan.ts";

/** The registered event types as stored. */
export interface StoredCatalogue {
  /** Raised by each change; 0 without any. */
  revision: bigint;
  files: readonly StoredFile[];
  types: readonly StoredType[];
}

/** What a registration did to an event type. The names are stored. */
export type ChangeKind = "added" | "changed" | "unchanged" | "deprecated" | "offered_again";

/** An event type of a registration. */
export interface TypeChange {
  type: Omit<StoredType, "deprecated">;
  kind: ChangeKind;
  /** In words. */
  changes: readonly string[];
}

/** A registration. */
export interface Registration {
  /** In the order of numbers. */
  changes: readonly TypeChange[];
  /** The revision of the catalogue after it. */
  revision: bigint;
}

/** Runs a change of the catalogue in a transaction that also has its audit entries. */
export type Audited = <T>(change: (trx: Db, record: Recorder) => Promise<T>) => Promise<T>;

const TYPE_COLUMNS = ["process", "name", "alias", "message", "deprecated"] as const;

/** The revision of the catalogue. One look at an index. */
export async function readRevision(db: Db): Promise<bigint> {
  const [row] = await rows<{ revision: bigint }>(
    db,
    "select coalesce(max(revision), 0) as revision from event_type_registrations",
  );
  return (row as { revision: bigint }).revision;
}

/** The catalogue at one moment. */
export function readCatalogue(db: Db): Promise<StoredCatalogue> {
  return transactionWithRetry(db, async (trx) => {
    await count(trx, "set transaction isolation level repeatable read, read only");
    return {
      revision: await readRevision(trx),
      files: await run(trx, trx("catalogue_files").select("path", "descriptor").orderBy("path")),
      types: await run(
        trx,
        trx("event_types")
          .select(...TYPE_COLUMNS)
          .orderBy("process"),
      ),
    };
  });
}

const hashOf = (set: Uint8Array) => createHash("sha256").update(set).digest();

/** Whether the latest registration of a FileDescriptorSet is the latest change, so that another one would change nothing. */
export async function isUnchangedSet(db: Db, set: Uint8Array): Promise<boolean> {
  const [latest] = await rows<{ same: boolean }>(
    db,
    `select set_sha256 = :hash::bytea as same from event_type_registrations order by revision desc limit 1`,
    { hash: hashOf(set) },
  );
  return latest?.same ?? false;
}

/** Stores that registering a FileDescriptorSet changes nothing in a revision. */
async function rememberSet(db: Db, set: Uint8Array, revision: bigint): Promise<void> {
  await run(
    db,
    db("event_type_registrations")
      .where({ revision })
      .update({ set_sha256: hashOf(set) }),
  );
}

/** A registration is refused. Its message has all problems, a line for each. */
export class RefusedRegistrationError extends DomainError {
  override name = "RefusedRegistrationError";

  constructor(problems: readonly CatalogueProblem[]) {
    const lines = problems.map(({ file, line, subject, problem, remedy }) => {
      const place = line === undefined ? file : `${file}:${line}`;
      return [place, subject, `${problem}; ${remedy.charAt(0).toLowerCase()}${remedy.slice(1)}`]
        .filter((part) => part !== "")
        .join(": ");
    });
    const violations = lines.map(
      (line): FieldViolation => ({ field: "file_descriptor_set", description: line }),
    );
    const summary = `file_descriptor_set is refused, and nothing is registered (problems: ${lines.length})`;
    super("FIELDS_INVALID", [summary, ...lines].join("\n"), { violations });
  }
}

/** Ends the transaction of a dry run without its changes. */
const DRY_RUN = new Error("dry run");

/**
 * Registers the event types of a FileDescriptorSet. What is registered already is unchanged, and writes nothing. Safe under concurrent
 * calls: the plan of a call that another one has overtaken is made again.
 *
 * @param options.dryRun whether nothing is written in the end. Defaults to false
 * @throws RefusedRegistrationError with all problems
 * @throws FeatureUnknownError FAILED_PRECONDITION while a live process does not know registered event types
 */
export async function registerEventTypes(
  db: Db,
  given: Uint8Array,
  options: { audit: Audited; dryRun?: boolean; signal?: AbortSignal | undefined },
): Promise<Registration> {
  for (;;) {
    const stored = await readCatalogue(db);
    const plan = await planRegistration(stored, given, options.signal);
    if (plan.problems.length > 0) throw new RefusedRegistrationError(plan.problems);
    const changes = changesOf(plan, stored.types);
    if (plan.files.length === 0 && changes.every(({ kind }) => kind === "unchanged")) {
      if (!options.dryRun) await rememberSet(db, given, stored.revision);
      return { changes, revision: stored.revision };
    }
    const revision = stored.revision + 1n;
    const isStored = await options
      .audit(async (trx, record) => {
        await takeLock(trx, "eventTypes");
        if ((await readRevision(trx)) !== stored.revision) return false;
        await requireFeature(trx, "event-types");
        await storePlan(trx, plan.files, changes, revision);
        await rememberSet(trx, given, revision);
        const named = (wanted: ChangeKind) =>
          changes.filter(({ kind }) => kind === wanted).map(({ type }) => type.name);
        await record({
          action: "event_types_registered",
          target: { ...SERVICE_WIDE, id: String(revision) },
          after: { added: named("added"), changed: named("changed") },
        });
        if (options.dryRun) throw DRY_RUN;
        return true;
      })
      .catch((error: unknown) => {
        if (error === DRY_RUN) return true;
        throw error;
      });
    if (isStored) return { changes, revision: options.dryRun ? stored.revision : revision };
  }
}

/**
 * All event types of a plan, in the order of their numbers. New ones without a number get the smallest that is free: there are more
 * numbers than event types that a plan allows.
 */
function changesOf(plan: RegistrationPlan, types: readonly StoredType[]): TypeChange[] {
  const used = new Set([...types, ...plan.added].map(({ process }) => process));
  let next = FIRST_REGISTERED;
  const added = plan.added.map(({ process, ...type }): TypeChange => {
    while (process === undefined && used.has(next)) next += 1;
    const number = process ?? next++;
    return { type: { ...type, process: number }, kind: "added", changes: [] };
  });
  const changed = plan.changed.map(
    ({ type, changes, alias }): TypeChange => ({ type: { ...type, alias }, kind: "changed", changes }),
  );
  const unchanged = plan.unchanged.map((type): TypeChange => ({ type, kind: "unchanged", changes: [] }));
  return [...added, ...changed, ...unchanged].sort((a, b) => a.type.process - b.type.process);
}

async function storePlan(
  trx: Db,
  files: readonly StoredFile[],
  changes: readonly TypeChange[],
  revision: bigint,
): Promise<void> {
  await count(
    trx,
    `insert into catalogue_files (path, descriptor)
      select path, descriptor from unnest(:paths::text[], :descriptors::bytea[]) f(path, descriptor)
      on conflict (path) do update set descriptor = excluded.descriptor`,
    {
      paths: files.map(({ path }) => path),
      descriptors: files.map(({ descriptor }) => Buffer.from(descriptor)),
    },
  );
  const written = changes.filter(({ kind }) => kind !== "unchanged");
  await count(
    trx,
    `insert into event_types (process, name, alias, message)
      select process, name, alias, message
        from jsonb_to_recordset(:types::jsonb) t(process int, name text, alias text, message text)
      on conflict (process) do update set alias = excluded.alias`,
    { types: JSON.stringify(written.map(({ type }) => type)) },
  );
  await storeChanges(trx, written, revision);
}

async function storeChanges(trx: Db, changes: readonly TypeChange[], revision: bigint): Promise<void> {
  await run(trx, trx("event_type_registrations").insert({ revision }));
  await count(
    trx,
    `insert into event_type_changes (process, revision, kind, changes)
      select process, :revision::bigint, kind, array(select jsonb_array_elements_text(changes))
        from jsonb_to_recordset(:changes::jsonb) c(process int, kind text, changes jsonb)`,
    {
      revision,
      changes: JSON.stringify(
        changes.map(({ type, kind, changes: words }) => ({ process: type.process, kind, changes: words })),
      ),
    },
  );
}

/**
 * Ends the registration of new webhooks for a registered event type, or allows it again.
 *
 * @param wanted its number, or its name or alias
 * @throws DomainError NOT_FOUND if no registered event type has the number or name
 */
export function deprecateEventType(
  audit: Audited,
  wanted: number | string,
  isDeprecated: boolean,
): Promise<{ change: TypeChange; revision: bigint }> {
  return audit(async (trx, record) => {
    await takeLock(trx, "eventTypes");
    const query = trx("event_types").select(...TYPE_COLUMNS);
    const [found] = await run(
      trx,
      typeof wanted === "number"
        ? query.where({ process: wanted })
        : query.where({ name: wanted }).orWhere({ alias: wanted }),
    );
    if (!found) throw noSuchType(wanted);
    const { deprecated, ...type } = found;
    const was = await readRevision(trx);
    if ((deprecated !== null) === isDeprecated)
      return { change: { type, kind: "unchanged", changes: [] }, revision: was };
    const { process, name } = type;
    await run(
      trx,
      trx("event_types")
        .where({ process })
        .update({ deprecated: isDeprecated ? trx.fn.now() : null }),
    );
    const change: TypeChange = { type, kind: isDeprecated ? "deprecated" : "offered_again", changes: [] };
    await storeChanges(trx, [change], was + 1n);
    await record({
      action: "event_type_deprecated",
      target: { ...SERVICE_WIDE, id: String(process), name, process },
      before: { deprecated: !isDeprecated },
      after: { deprecated: isDeprecated },
    });
    return { change, revision: was + 1n };
  });
}

function noSuchType(wanted: number | string): DomainError {
  return new DomainError(
    "NOT_FOUND",
    `there is no registered event type ${typeof wanted === "number" ? wanted : JSON.stringify(wanted)}; ListEventTypes lists them, those of this service with built_in, which cannot be deprecated`,
  );
}

/** A change of an event type in the past. */
export interface PastChange {
  process: number;
  revision: bigint;
  registered: Date;
  kind: ChangeKind;
  changes: string[];
}

/** The maximum number of past changes of an event type that are shown. */
const MAX_PAST_CHANGES = 100;

/** The latest changes of event types, newest first. */
export function readPastChanges(db: Db, processes: readonly number[]): Promise<PastChange[]> {
  return rows<PastChange>(
    db,
    `select c.* from unnest(:processes::int[]) p(process) cross join lateral (
        select c.process, c.revision, r.registered, c.kind, c.changes
          from event_type_changes c join event_type_registrations r using (revision)
          where c.process = p.process order by c.revision desc limit ${MAX_PAST_CHANGES}) c`,
    { processes },
  );
}
