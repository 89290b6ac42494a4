import pg from "pg";
import type { Db } from "../database.ts";

/** The errors with which pg reports a connection or statement timeout. */
const TIMEOUT_MESSAGES = /^(timeout expired|Query read timeout)$/;

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
      this.#client ??= await this.#connect(withinMs);
      await this.#client.query("select 1");
      return "works";
    } catch (error) {
      this.close();
      return error instanceof Error && TIMEOUT_MESSAGES.test(error.message) ? "silent" : "refuses";
    }
  }

  /** Closes the connection. The next check opens a new one. */
  close(): void {
    // Not awaited: an unresponsive server never confirms the end.
    this.#client?.end().catch(() => {});
    this.#client = undefined;
  }

  async #connect(withinMs: number): Promise<pg.Client> {
    const client = new pg.Client({
      ...this.#db.client.connectionSettings,
      application_name: "webhook-service-liveness",
      connectionTimeoutMillis: withinMs,
      query_timeout: withinMs,
    });
    client.on("error", () => this.close());
    await client.connect();
    return client;
  }
}
