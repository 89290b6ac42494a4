import pg from "pg";
import type { ConnectedClient } from "./cancel-request.ts";
import type { Db } from "./database.ts";

/** The interval in which a timeout counts, in milliseconds. */
const TICK_MS = 50;

/** Checks whether PostgreSQL responds, over a separate connection, because all pooled ones may be busy. */
export class LivenessProbe {
  readonly #db: Db;
  #client: pg.Client | undefined;

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * Returns false if PostgreSQL responds neither to the connection nor to a statement within `withinMs` milliseconds
   * each. An error, such as a refused connection, counts as a response: statements then fail on their own. Never
   * rejects.
   */
  async answers(withinMs: number): Promise<boolean> {
    return (await this.#ask(withinMs)) !== "silent";
  }

  /** Whether PostgreSQL executes a statement within `withinMs` milliseconds; an error means no. Never rejects. */
  async works(withinMs: number): Promise<boolean> {
    return (await this.#ask(withinMs)) === "works";
  }

  async #ask(withinMs: number): Promise<"works" | "refuses" | "silent"> {
    try {
      if (
        !(await isDoneWithin(withinMs, this.#connected())) ||
        !(await isDoneWithin(withinMs, this.#select()))
      ) {
        // An unresponsive server never confirms the end.
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
 * Whether some work is done within `ms` milliseconds, without the time in which this process was busy: after each tick, the
 * event loop first handles what has arrived. A late tick counts as one that is in time.
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
