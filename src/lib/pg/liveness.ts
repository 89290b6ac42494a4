import type pg from "pg";
import type { ConnectedClient } from "./cancel-request.ts";
import { connect, SESSION_STATE, type SessionState } from "./connect.ts";
import type { Db } from "./database.ts";
import { isReadOnlyFault, UnfitSessionError } from "./faults.ts";

/** The length of the ticks that measure a timeout, in milliseconds. */
const TICK_MS = 50;

/** What a check of PostgreSQL finds: whether its sessions can write or only read, or it refuses statements, or does not respond. */
export type Liveness = "writes" | "reads" | "refuses" | "silent";

/** Checks whether PostgreSQL responds. Uses a separate connection, because all connections of the pool may be busy. */
export class LivenessProbe {
  readonly #db: Db;
  #client: pg.Client | undefined;
  #connecting: AbortController | undefined;

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Whether PostgreSQL responds within `withinMs` milliseconds to a new connection, if there is none yet, and then within
   * the same time to a statement. An error, such as a refused connection, counts as a response: statements then fail
   * quickly without this check. Never rejects.
   */
  async answers(withinMs: number): Promise<boolean> {
    return (await this.ask(withinMs)) !== "silent";
  }

  /** Checks as `answers` does, and says what was found. Never rejects. */
  async ask(withinMs: number): Promise<Liveness> {
    try {
      if (
        !(await isDoneWithin(withinMs, this.#connected())) ||
        !(await isDoneWithin(withinMs, this.#readState()))
      ) {
        // The socket is destroyed first: an unresponsive server never confirms the end of the connection.
        (this.#client as unknown as ConnectedClient | undefined)?.connection.stream.destroy();
        this.close();
        return "silent";
      }
      return "writes";
    } catch (error) {
      // A session that is read-only stays so when the database becomes writable again.
      this.close();
      return isReadOnlyFault(error) ? "reads" : "refuses";
    }
  }

  /** Closes the connection. The next check opens a new one. */
  close(): void {
    this.#connecting?.abort();
    this.#client?.end().catch(() => {});
    this.#client = undefined;
  }

  async #connected(): Promise<void> {
    if (this.#client) return;
    this.#connecting = new AbortController();
    const { signal } = this.#connecting;
    const { connectionSettings } = this.#db.client;
    const settings = { ...connectionSettings, application_name: "webhook-service-liveness" };
    const { client } = await connect(connectionSettings.connectionString, settings, { signal });
    client.on("error", () => this.close());
    if (signal.aborted) client.end().catch(() => {});
    else this.#client = client;
  }

  /** @throws UnfitSessionError */
  async #readState(): Promise<void> {
    const found = await this.#client?.query<SessionState>(SESSION_STATE);
    if (found?.rows[0]?.isReadOnly) throw new UnfitSessionError("the session is read-only");
  }
}

/**
 * Whether the work is done within `ms` milliseconds. Time in which this process was too busy to handle a response hardly
 * counts: the timeout is a number of ticks, and a late tick counts as one. After each tick, the event loop handles the responses
 * that have arrived.
 *
 * @throws the error of the work
 */
function isDoneWithin(ms: number, work: Promise<unknown>): Promise<boolean> {
  return new Promise((resolve, reject) => {
    let left = Math.ceil(ms / TICK_MS);
    const timer = setInterval(() => {
      left -= 1;
      if (left > 0) return;
      clearInterval(timer);
      resolve(false);
    }, TICK_MS);
    work.then(() => resolve(true), reject).finally(() => clearInterval(timer));
  });
}
