import type { BottleneckCause } from "../../contract/stats/bottlenecks.ts";

/**
 * In each turn of the event loop, as many requests start as have ended, at least one, and `perTurn` more if the thread has worked for less
 * than `turnMs` milliseconds since the last starts. Arrived responses are read first, so receivers that answer at once have only as many
 * requests in flight as the thread handles in `turnMs`. With more in flight, each request would cost more processor time.
 */
const GROWTH = { perTurn: 16, turnMs: 8 };
/** The number of unrecorded results from which no request starts: a crash would repeat all of these attempts. */
export const MAX_UNRECORDED = 128;
/**
 * The number of attempts in doubt (requests in flight and unrecorded results) from which no request starts. If DELIVERY_MAX_IN_FLIGHT is
 * larger, it is used instead. A crash repeats no more attempts than that.
 */
const MAX_IN_DOUBT = 200;
/**
 * The wait for a new connection above which no request starts, in milliseconds. The wait counts toward an attempt's timeout: many
 * receivers that close each connection could make attempts to other receivers fail.
 */
const MAX_HANDSHAKE_BACKLOG_MS = 250;

/** The limits of the starts of requests, whatever their receivers. */
export class StartLimits {
  readonly #maxInDoubt: number;
  /** The number of attempts that have ended since `startsPerTurn` was last called, and the thread's processor time at that call. */
  #ended = 0;
  #workedMs = 0;

  /** @param maxInFlight the maximum number of requests in flight */
  constructor(maxInFlight: number) {
    this.#maxInDoubt = Math.max(MAX_IN_DOUBT, maxInFlight);
  }

  /** Must be called for each attempt that has ended. */
  ended(): void {
    this.#ended += 1;
  }

  /** The number of requests that may start in this turn. @param workedMs the thread's processor time, in milliseconds */
  startsPerTurn(workedMs: number): number {
    const grows = workedMs - this.#workedMs < GROWTH.turnMs;
    const most = Math.max(1, this.#ended + (grows ? GROWTH.perTurn : 0));
    this.#ended = 0;
    this.#workedMs = workedMs;
    return most;
  }

  /** The cause that prevents all requests; undefined without one. @param backlogMs the wait for a new connection, in milliseconds */
  heldBy(inFlight: number, unrecorded: number, backlogMs: number): BottleneckCause | undefined {
    if (unrecorded >= MAX_UNRECORDED) return "database";
    if (inFlight + unrecorded >= this.#maxInDoubt) return inFlight > unrecorded ? "limit" : "database";
    return backlogMs > MAX_HANDSHAKE_BACKLOG_MS ? "handshakes" : undefined;
  }
}
