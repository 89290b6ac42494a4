import type { Logger } from "pino";
import type { ProxyUnavailableError } from "./proxy-error.ts";

/** The interval between requests that try an unavailable proxy, in milliseconds. */
const TRY_INTERVAL_MS = 1_000;

/**
 * Whether the outbound proxy can be used. While it cannot, deliveries wait as they do while the database is away; one a
 * second starts, to find out.
 */
export class ProxyState {
  readonly #log: Pick<Logger, "warn" | "info">;
  readonly #now: () => number;
  /** The time at which the proxy became unavailable; undefined while it is available. */
  #failedAt: number | undefined;
  #nextTryAt = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;

  /** @param now monotonic time in milliseconds. Defaults to the system's */
  constructor(log: Pick<Logger, "warn" | "info">, now = () => performance.now()) {
    this.#log = log;
    this.#now = now;
  }

  /** Whether a request may start. Called once for each request. */
  mayStart(): boolean {
    if (this.#failedAt === undefined) return true;
    const now = this.#now();
    if (now < this.#nextTryAt) return false;
    this.#nextTryAt = now + TRY_INTERVAL_MS;
    return true;
  }

  /** Whether the proxy has answered another request since the time. */
  hasAnsweredSince(time: number): boolean {
    return this.#answeredAt > time;
  }

  /** The proxy answered about a receiver, or a receiver over the proxy. @param since the start of what was answered */
  answered(since = this.#now()): void {
    if (this.#failedAt === undefined) {
      this.#answeredAt = this.#now();
      return;
    }
    // An older connection may have outlived the proxy's credentials or process.
    if (since < this.#failedAt) return;
    this.#answeredAt = this.#now();
    const awayMs = Math.round(this.#now() - this.#failedAt);
    this.#failedAt = undefined;
    this.#log.info({ awayMs }, "the outbound proxy is available again");
  }

  failed(error: ProxyUnavailableError): void {
    if (this.#failedAt !== undefined) return;
    this.#failedAt = this.#now();
    this.#nextTryAt = this.#failedAt + TRY_INTERVAL_MS;
    this.#log.warn({ reason: error.reason }, "the outbound proxy is unavailable; deliveries wait");
  }
}
