import type { Logger } from "pino";
import { type Db, onBehalfOfAll } from "../../lib/pg/index.ts";
import { recordKeyUse } from "../api-keys.ts";

/** Records when each key was last used, without delaying requests. */
export interface KeyUse {
  /** Records the use of a key by a request. */
  note(keyId: string): void;
  /** Writes pending records. */
  close(): Promise<void>;
}

/** The minimum interval between writes for one key, in milliseconds. */
const MIN_WRITE_INTERVAL_MS = 60_000;
/** The time for which uses are collected before one statement writes them, in milliseconds. */
const BATCH_DELAY_MS = 1_000;
/** The maximum number of remembered keys. Beyond it all are forgotten, and some are written sooner. */
const MAX_REMEMBERED_KEYS = 10_000;

/**
 * Creates the record. Pending uses are lost if the process crashes; the stored time is then about a minute too early.
 */
export function createKeyUse(db: Db, log: Logger, gatherMs = BATCH_DELAY_MS): KeyUse {
  /** The time of the last recorded use in this process, by key. */
  const noted = new Map<string, number>();
  const waiting = new Map<string, Date>();
  let timer: NodeJS.Timeout | undefined;
  let underWay: Promise<void> | undefined;
  let closed = false;

  const writeSoon = () => {
    timer ??= setTimeout(() => {
      underWay = write();
    }, gatherMs).unref();
  };

  async function write(): Promise<void> {
    timer = undefined;
    const uses = [...waiting].map(([id, at]) => ({ id, at }));
    waiting.clear();
    if (noted.size > MAX_REMEMBERED_KEYS) noted.clear();
    try {
      // The timer belongs to the first call, whose end must not cancel the write.
      const held = await onBehalfOfAll(() => recordKeyUse(db, uses, MIN_WRITE_INTERVAL_MS));
      for (const { id, at } of uses) if (held.includes(id) && !waiting.has(id)) waiting.set(id, at);
      if (waiting.size > 0 && !closed) writeSoon();
    } catch (err) {
      log.warn({ err }, "recording key use failed");
    }
  }

  return {
    note(keyId) {
      const now = Date.now();
      const before = noted.get(keyId);
      if (before !== undefined && now - before < MIN_WRITE_INTERVAL_MS) return;
      noted.set(keyId, now);
      waiting.set(keyId, new Date(now));
      writeSoon();
    },
    async close() {
      closed = true;
      clearTimeout(timer);
      await underWay;
      if (waiting.size > 0) await write();
    },
  };
}
