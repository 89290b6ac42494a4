import pg from "pg";
import type { Db } from "../database.ts";

/** What pg says when a connection or a statement was not answered in time. */
const UNANSWERED = /^(timeout expired|Query read timeout)$/;

/** Asks whether PostgreSQL answers, over a connection beside the pool: that of the pool may all be busy. */
export class LivenessProbe {
  readonly #db: Db;
  #client: pg.Client | undefined;

  constructor(db: Db) {
    this.#db = db;
  }

  /**
   * False when PostgreSQL answers neither the connection nor a statement within `withinMs` milliseconds each. An error,
   * such as a refused connection, is an answer: statements fail by themselves then. Never rejects.
   */
  async answers(withinMs: number): Promise<boolean> {
    try {
      this.#client ??= await this.#connect(withinMs);
      await this.#client.query("select 1");
      return true;
    } catch (error) {
      this.close();
      return !(error instanceof Error && UNANSWERED.test(error.message));
    }
  }

  /** Closes the connection; the next question opens another one. */
  close(): void {
    // A server that does not answer would never confirm the end.
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
