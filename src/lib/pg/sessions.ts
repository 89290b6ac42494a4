import type pg from "pg";
import type { SessionState } from "./connect.ts";
import { isReadOnlyFault } from "./faults.ts";

/**
 * The maximum age of a read-only session on a primary, in milliseconds. Its reads are current, so statements may use the session; but
 * a session stays read-only when the database becomes writable again.
 */
const READ_ONLY_AGE_MS = 1_000;

interface Opened {
  /** The time before its connection was opened, by the monotonic clock in milliseconds. */
  since: number;
  /** The time after which it is not used again, by the same clock. */
  until: number;
}

/** The sessions of a pool. Decides which of them statements may use. */
export class PoolSessions {
  readonly #opened = new WeakMap<pg.Client, Opened>();
  #retiredBefore = Number.NEGATIVE_INFINITY;

  /**
   * Adds a session. If it answers later that it is read-only, all sessions are retired: the others are on the same server, or as old.
   *
   * @param since the time before its connection was opened, by the monotonic clock in milliseconds
   */
  add(client: pg.Client, { isReadOnly }: SessionState, since: number): void {
    const until = isReadOnly ? performance.now() + READ_ONLY_AGE_MS : Number.POSITIVE_INFINITY;
    this.#opened.set(client, { since, until });
    const { connection } = client as unknown as { connection: NodeJS.EventEmitter };
    connection.on("errorMessage", (error: pg.DatabaseError) => {
      if (isReadOnlyFault(error) && !isReadOnly) this.retire();
    });
  }

  /** Ends all sessions opened so far, each before its next statement. */
  retire(): void {
    this.#retiredBefore = performance.now();
  }

  isUsable(client: pg.Client): boolean {
    const { since, until } = this.#opened.get(client) as Opened;
    return since > this.#retiredBefore && performance.now() < until;
  }
}
