import type { Logger } from "pino";
import { audited, OPERATOR } from "../audit/index.ts";
import type { Db } from "../lib/pg/index.ts";
import { systemClock } from "../lib/process/index.ts";
import { FeatureUnknownError } from "../schema/index.ts";
import { readEventTypesFrom } from "./read-event-types.ts";
import { type Audited, isUnchangedSet, registerEventTypes } from "./registry.ts";

/** The delay before another try while a process of an older release runs, in milliseconds. */
const RETRY_MS = 2_000;

/**
 * Registers the event types of EVENT_TYPES. While processes of an older release run, as in a rolling upgrade, they are registered later:
 * a start that waited would keep the older processes running.
 *
 * @param path of a `.binpb` file or of a folder of `.proto` files
 * @param stopping ends the tries
 * @throws Error with all problems
 */
export async function registerConfiguredTypes(
  db: Db,
  path: string,
  { log, stopping }: { log: Logger; stopping: AbortSignal },
): Promise<void> {
  const given = await readEventTypesFrom(path);
  // To check thousands of event types takes seconds, which each start would take.
  if (await isUnchangedSet(db, given)) {
    log.info({ path }, "EVENT_TYPES are registered already");
    return;
  }
  const register = async () => {
    const audit: Audited = (change) => audited(db, OPERATOR, change);
    const { changes, revision } = await registerEventTypes(db, given, { audit, signal: stopping });
    log.info({ path, eventTypes: changes.length, revision }, "EVENT_TYPES are registered");
  };
  try {
    await register();
  } catch (error) {
    if (!(error instanceof FeatureUnknownError)) throw error;
    log.warn({ err: error, path }, "EVENT_TYPES are registered when no process of an older release runs");
    void registerLater(register, { log, stopping });
  }
}

async function registerLater(
  register: () => Promise<void>,
  { log, stopping }: { log: Logger; stopping: AbortSignal },
): Promise<void> {
  for (;;) {
    await systemClock.wait(RETRY_MS, { signal: stopping, ref: false });
    if (stopping.aborted) return;
    try {
      await register();
      return;
    } catch (err) {
      const isExpected = err instanceof FeatureUnknownError || stopping.aborted;
      if (!isExpected) log.error({ err }, "registering EVENT_TYPES failed; retrying");
    }
  }
}
