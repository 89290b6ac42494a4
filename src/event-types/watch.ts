import type { Logger } from "pino";
import { builtInTypes, isNotice, isOffered, setRegisteredTypes } from "../contract/catalogue.ts";
import { type Db, gathering, isTransient, rows } from "../lib/pg/index.ts";
import { systemClock } from "../lib/process/index.ts";
import { buildAhead } from "./build-ahead.ts";
import { buildEntries } from "./entries.ts";
import { readCatalogue, readRevision, type StoredCatalogue } from "./registry.ts";

/** The interval between looks at the catalogue's revision, in milliseconds. Each is one statement that reads one row of an index. */
const POLL_MS = 1_000;
/** The maximum number of event types that are built before they are used: they take some 17 MiB. */
const MAX_AHEAD = 1_000;

/** Keeps this process's catalogue as the database has it. */
export interface EventTypesWatch {
  close(): void;
  /** Resolves when this process knows all event types that were registered before the call. */
  refresh(): Promise<void>;
}

const EMPTY: StoredCatalogue = { revision: 0n, files: [], types: [] };
// One each for the process, as the catalogue that they make.
let current: EventTypesWatch | undefined;
let stored = EMPTY;

/** The registered event types that this process knows, as stored. The same object until they change. */
export function storedEventTypes(): StoredCatalogue {
  return stored;
}

/** `refresh` of the watch of this process. Resolves at once if there is none. */
export async function refreshEventTypes(): Promise<void> {
  await current?.refresh();
}

/** Whether a number is an event type. Asks the database before it says no, because another process may have registered it. */
export async function isKnownProcess(number: number): Promise<boolean> {
  if (!isOffered(number)) await refreshEventTypes();
  return isOffered(number);
}

/**
 * Reads the registered event types again within a second of each change. Call `refresh` before this process serves or claims.
 *
 * @param options.builtIn false hides the built-in event types that no webhook has. Defaults to true
 * @param options.ahead whether the first 1,000 event types are built after they are read, so that no call waits for it. Defaults to false
 */
export function watchEventTypes(
  db: Db,
  log: Logger,
  { builtIn = true, ahead = false }: { builtIn?: boolean; ahead?: boolean } = {},
): EventTypesWatch {
  const end = new AbortController();
  let known: bigint | undefined;
  /** Ends the building of event types. */
  let building = new AbortController();

  async function load(): Promise<void> {
    if ((await readRevision(db)) === known) return;
    const catalogue = await readCatalogue(db);
    const hidden = builtIn ? [] : await unusedTypes(db);
    const entries = buildEntries(catalogue.files, catalogue.types);
    setRegisteredTypes(entries, hidden);
    stored = catalogue;
    known = catalogue.revision;
    building.abort();
    if (!ahead) return;
    building = new AbortController();
    const { signal } = building;
    void buildAhead(entries.slice(0, MAX_AHEAD), signal).catch((err) => {
      log.error({ err }, "building the registered event types failed");
    });
  }

  // Calls share a look, but none that has begun: it may have read before they asked.
  const shareLoad = gathering<void, void>(
    async (asked) => {
      await load();
      return asked.map(() => undefined);
    },
    { most: Number.POSITIVE_INFINITY, atOnce: 1 },
  );
  const refresh = () => shareLoad();

  async function poll(): Promise<void> {
    let isFailing = false;
    while (!end.signal.aborted) {
      await systemClock.wait(POLL_MS, { signal: end.signal, ref: false });
      if (end.signal.aborted) return;
      try {
        await refresh();
        isFailing = false;
      } catch (err) {
        // While the database is unavailable, other parts log it.
        if (!isFailing && !end.signal.aborted && !isTransient(err))
          log.error({ err }, "reading the registered event types failed; those known before stay in use");
        isFailing = true;
      }
    }
  }
  void poll();

  const watch: EventTypesWatch = {
    refresh,
    close() {
      end.abort();
      building.abort();
      if (current === watch) current = undefined;
    },
  };
  current = watch;
  return watch;
}

/** The built-in event types without webhooks. */
async function unusedTypes(db: Db): Promise<number[]> {
  const used = await rows<{ process: number }>(
    db,
    "select process from processes where live + customers_live > 0 and process = any(:processes::int[])",
    { processes: builtInTypes.map(({ number }) => number) },
  );
  const inUse = new Set(used.map(({ process }) => process));
  return builtInTypes.map(({ number }) => number).filter((number) => !isNotice(number) && !inUse.has(number));
}
