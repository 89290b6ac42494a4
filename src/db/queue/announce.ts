import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { openDatabase } from "../database.ts";
import { announceQueued } from "./changes.ts";

/** Least time between two announcements of a process, in milliseconds: what is queued within it goes with one. */
const GAP_MS = 5;
/** The same while the database does not answer. */
const AWAY_GAP_MS = 1_000;

/** Tells the workers that something was queued. */
export interface Announcer {
  /** Returns at once and never throws: workers look for themselves too, four times a second. */
  announce: () => void;
  close(): Promise<void>;
}

/**
 * Announces over a connection of its own: within each publishing transaction, an announcement would make commits wait for
 * one another.
 */
export function createAnnouncer(databaseUrl: string, log: Logger): Announcer {
  const db = openDatabase(databaseUrl, { max: 1, applicationName: "webhook-service-announcements" });
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
        if (!isAway)
          log.warn({ err }, "published events cannot be announced; workers find them within 250 ms");
        isAway = true;
      }
      await wait(isAway ? AWAY_GAP_MS : GAP_MS, undefined, { signal: stopping.signal }).catch(() => {});
    }
  }

  function announce(): void {
    wanted = true;
    working ??= work().finally(() => {
      working = undefined;
      // Announced while the work was ending.
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
