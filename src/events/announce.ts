import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { openDatabase } from "../lib/pg/index.ts";
import { announceQueued } from "../queue/index.ts";

/**
 * The minimum interval between announcements of a process, in milliseconds. One announcement covers everything queued
 * within it.
 */
const MIN_INTERVAL_MS = 5;
/** The same interval while the database is unavailable. */
const UNAVAILABLE_INTERVAL_MS = 1_000;

/** Notifies the workers that deliveries were queued. */
export interface Announcer {
  /** Announces asynchronously. Never throws: workers also poll four times a second. */
  announce: () => void;
  close(): Promise<void>;
}

/**
 * Creates an announcer with its own connection. A NOTIFY within each publishing transaction would serialize their
 * commits.
 */
export function createAnnouncer(databaseUrl: string, log: Logger): Announcer {
  const db = openDatabase(databaseUrl, { max: 1, applicationName: "webhook-service-announcer" });
  const stopping = new AbortController();
  let wanted = false;
  let working: Promise<void> | undefined;
  let isAway = false;

  async function work(): Promise<void> {
    while (wanted && !stopping.signal.aborted) {
      wanted = false;
      try {
        await announceQueued(db);
        isAway = false;
      } catch (err) {
        if (stopping.signal.aborted) return;
        if (!isAway) log.warn({ err }, "announcing published events failed; workers find them within 250 ms");
        isAway = true;
      }
      await wait(isAway ? UNAVAILABLE_INTERVAL_MS : MIN_INTERVAL_MS, undefined, {
        signal: stopping.signal,
      }).catch(() => {});
    }
  }

  function announce(): void {
    wanted = true;
    working ??= work().finally(() => {
      working = undefined;
      // Announced while the loop was ending.
      if (wanted && !stopping.signal.aborted) announce();
    });
  }

  return {
    announce,
    async close() {
      stopping.abort();
      await working;
      await db.destroy();
    },
  };
}
