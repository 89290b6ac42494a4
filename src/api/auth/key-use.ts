import type { Logger } from "pino";
import { onBehalfOfAll } from "../../db/connections/call-signal.ts";
import type { Db } from "../../db/database.ts";
import { recordKeyUse } from "../../db/keys/api-keys.ts";

/** Keeps when each key was last used, without a request ever waiting for it. */
export interface KeyUse {
  /** A request came with this key. */
  note(keyId: string): void;
  /** Writes what is still to be written. */
  close(): Promise<void>;
}

/** A key's time is written at most this often. */
const EVERY_MS = 60_000;
/** Keys whose time is due are gathered for so long, then written by one statement. */
const GATHER_MS = 1_000;
/** More keys than these in a minute are forgotten together; some are then written sooner. */
const MOST_REMEMBERED = 10_000;

/** What is not yet written when the process dies is lost: the time is then a minute or so too early. */
export function createKeyUse(db: Db, log: Logger, gatherMs = GATHER_MS): KeyUse {
  /** By key, when its use was last taken down here. */
  const noted = new Map<string, number>();
  const waiting = new Map<string, Date>();
  let timer: NodeJS.Timeout | undefined;
  let underWay: Promise<void> | undefined;

  async function write(): Promise<void> {
    timer = undefined;
    const uses = [...waiting].map(([id, at]) => ({ id, at }));
    waiting.clear();
    if (noted.size > MOST_REMEMBERED) noted.clear();
    try {
      // The timer is one of whichever call came first, whose end must not stop it.
      await onBehalfOfAll(() => recordKeyUse(db, uses, EVERY_MS));
    } catch (err) {
      log.warn({ err }, "when keys were last used could not be written");
    }
  }

  return {
    note(keyId) {
      const now = Date.now();
      const before = noted.get(keyId);
      if (before !== undefined && now - before < EVERY_MS) return;
      noted.set(keyId, now);
      waiting.set(keyId, new Date(now));
      timer ??= setTimeout(() => {
        underWay = write();
      }, gatherMs).unref();
    },
    async close() {
      clearTimeout(timer);
      await underWay;
      if (waiting.size > 0) await write();
    },
  };
}
