import pg from "pg";
import type { ConnectedClient } from "./cancel-request.ts";
import type { Db } from "./database.ts";

/** The length of the ticks that measure a timeout, in milliseconds. */
const TICK_MS = 50;

/** Checks whether PostgreSQL responds. Uses a separate connection, because all connections of the pool may be busy. */
export class LivenessProbe {
  readonly #db: Db;
  #client: pg.Client | undefined;

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Whether PostgreSQL responds within `withinMs` milliseconds to a new connection, if there is none yet, and then within
   * the same time to a statement. An error, such as a refused connection, counts as a response: statements then fail
   * quickly without this check. Never rejects.
   */
  async answers(withinMs: number): Promise<boolean> {
    return (await this.#ask(withinMs)) !== "silent";
  }

  /** Like `answers`, but an error counts as false: whether PostgreSQL executes statements. Never rejects. */
  async works(withinMs: number): Promise<boolean> {
    return (await this.#ask(withinMs)) === "works";
  }

  async #ask(withinMs: number): Promise<"works" | "refuses" | "silent"> {
    try {
      if (
        !(await isDoneWithin(withinMs, this.#connected())) ||
        !(await isDoneWithin(withinMs, this.#select()))
      ) {
        // The socket is destroyed first: an unresponsive server never confirms the end of the connection.
        (this.#client as unknown as ConnectedClient | undefined)?.connection.stream.destroy();
        this.close();
        return "silent";
      }
      return "works";
    } catch {
      this.close();
      return "refuses";
    }
  }

  /** Closes the connection. The next check opens a new one. */
  close(): void {
    this.#client?.end().catch(() => {});
    this.#client = undefined;
  }

  async #connected(): Promise<void> {
    if (this.#client) return;
    const client = new pg.Client({
      ...this.#db.client.connectionSettings,
      application_name: "webhook-service-liveness",
    });
    client.on("error", () => this.close());
    this.#client = client;
    await client.connect();
  }

  async #select(): Promise<void> {
    await this.#client?.query("select 1");
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
