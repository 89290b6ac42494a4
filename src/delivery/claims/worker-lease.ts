import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { untilAnswered } from "../../lib/pg/index.ts";
import { type Clock, currentMoment, instanceName, LONG_AGO, type Moment } from "../../lib/process/index.ts";
import type { addWorker, ClaimResult } from "../../queue/index.ts";

/** The number of renewals within the duration of a lease. */
const RENEWALS_PER_LEASE = 4;

/** Dependencies of a lease. */
export interface WorkerLeaseParts {
  clock: Clock;
  log: Logger;
  /** The duration of a lease, in milliseconds. */
  leaseMs: number;
  /** Aborted on shutdown: from then on no row is added, and a wait for the database to add one ends. */
  stopping: AbortSignal;
  /** Statements on `workers`, as in `src/queue/workers.ts`. */
  add: (worker: Parameters<typeof addWorker>[1]) => Promise<number>;
  renew: (id: number, leaseMs: number) => Promise<boolean>;
  remove: (id: number) => Promise<void>;
}

/**
 * The process's row in `workers`. Its claims are valid while it renews that row. When the row expires, another
 * process deletes it, which frees the claims; this process then continues with a new row.
 *
 * The lease is measured from before the renewal is sent, so that this process stops sending before another one can
 * start. It ends by the monotonic clock, or by the wall clock if that is earlier: the monotonic clock stands still while
 * the machine is suspended. If the wall clock is set ahead, the lease seems to have ended, and is renewed at once.
 */
export class WorkerLease {
  readonly #parts: WorkerLeaseParts;
  readonly #end = new AbortController();
  /** The number of unsettled claims, and of claim statements in progress, by worker id. Includes retired ids. */
  readonly #claims = new Map<number, number>();
  /** The Temporal task queue from which only this process takes pumps. A new name at each start. */
  readonly taskQueue = `worker-${randomUUID()}`;
  #current: number | undefined;
  /** The time just before the last successful renewal was sent; LONG_AGO before the first one, and after `verify`. */
  #renewedAt = LONG_AGO;
  /** The monotonic time from which the lease has been valid without interruption. */
  #validSince = Number.POSITIVE_INFINITY;
  #renewing: Promise<void> | undefined;
  #adding: Promise<number> | undefined;

  constructor(parts: WorkerLeaseParts) {
    this.#parts = parts;
  }

  /**
   * Claims deliveries. Retries until the database is available; each delivery must be settled later. If the response
   * to a claim is lost, its rows are unknown: the worker id is retired and later claims use a new one. Once all known
   * claims of the retired id are settled, its row is removed, which frees the rest.
   */
  async claim<T extends ClaimResult>(work: (workerId: number) => Promise<T>, stop: AbortSignal): Promise<T> {
    let claimed: T | undefined;
    const claim = async () => {
      const id = await this.start();
      this.settle(id, -1);
      try {
        claimed = await work(id);
        this.settle(id, -claimed.deliveries.length);
      } catch (error) {
        this.retire(id);
        throw error;
      } finally {
        this.settle(id);
      }
    };
    try {
      await untilAnswered(claim, { signal: stop });
    } catch (error) {
      // `stop` was aborted while the claim succeeded: its deliveries are returned, so that the caller releases them.
      if (!claimed) throw error;
    }
    return claimed as T;
  }

  /**
   * Stops claiming with an id. Called if the result of a statement is unknown: the id may have claims that this process does not know,
   * and the statement could still end later claims of the id. Unknown claims become free when all known ones are settled.
   */
  retire(id: number): void {
    if (this.#current === id) this.#current = undefined;
  }

  /** Subtracts settled claims of an id, which were recorded, released or lost. A negative number adds new claims. */
  settle(id: number, claims = 1): void {
    const known = this.#claims.get(id);
    // The lease of the id has expired meanwhile: its claims are no longer this process's.
    if (known === undefined) return;
    const left = known - claims;
    this.#claims.set(id, left);
    if (left > 0 || id === this.#current) return;
    this.#claims.delete(id);
    // If this fails, the row expires, because it is no longer renewed.
    this.#parts.remove(id).catch(() => {});
  }

  /**
   * Adds the process's row unless it has one, so that runs assign pumps to it. Retries until the database is available or the process
   * stops. Returns the worker id.
   */
  async start(): Promise<number> {
    if (this.#current !== undefined) return this.#current;
    this.#adding ??= this.#add().finally(() => {
      this.#adding = undefined;
    });
    return this.#adding;
  }

  /** Renews the lease at once, and blocks sending until then. Called, for example, if a result matched no claim. */
  verify(): void {
    this.#renewedAt = LONG_AGO;
    void this.#renew();
  }

  /**
   * Whether the lease is valid, so that this process may send its claimed deliveries. Renews the lease at once if only the
   * wall clock says that it has ended.
   */
  isValid(): boolean {
    const { clock, leaseMs } = this.#parts;
    const { now, wall } = currentMoment(clock);
    if (now - this.#renewedAt.now >= leaseMs) return false;
    if (wall - this.#renewedAt.wall < leaseMs) return true;
    this.verify();
    return false;
  }

  /**
   * Whether this process may end expired leases of others: its own has been valid for half its duration. After an outage of
   * the database, all leases have expired, and live processes renew theirs within that time.
   */
  mayEndOthers(): boolean {
    const { clock, leaseMs } = this.#parts;
    return this.isValid() && clock.now() - this.#validSince >= leaseMs / 2;
  }

  /** The worker ids that this process renews. */
  get ids(): number[] {
    return [...this.#claims.keys()];
  }

  /** Whether an id is no longer renewed, so that other processes may claim its deliveries. */
  hasLost(id: number): boolean {
    return !this.#claims.has(id);
  }

  /** Ends the renewals and removes the rows. All claims must be recorded or released before. */
  async close(): Promise<void> {
    this.#end.abort();
    await this.#renewing;
    await this.#adding?.catch(() => {});
    await Promise.allSettled(this.ids.map((id) => this.#parts.remove(id)));
  }

  async #add(): Promise<number> {
    const { add, clock, leaseMs, stopping } = this.#parts;
    const sent = currentMoment(clock);
    const worker = { name: instanceName(), taskQueue: this.taskQueue, leaseMs };
    const signal = AbortSignal.any([this.#end.signal, stopping]);
    const id = await untilAnswered(() => add(worker), { signal });
    this.#current = id;
    this.#claims.set(id, 0);
    if (this.#claims.size === 1) this.#renewed(sent);
    this.#renewing ??= this.#renewAgainAndAgain();
    return id;
  }

  async #renewAgainAndAgain(): Promise<void> {
    const { clock, leaseMs } = this.#parts;
    const { signal } = this.#end;
    while (!signal.aborted) {
      await clock.wait(leaseMs / RENEWALS_PER_LEASE, { signal, ref: false });
      if (!signal.aborted) await this.#renew();
    }
  }

  /** Never rejects. */
  async #renew(): Promise<void> {
    const { clock, leaseMs, log, renew, stopping } = this.#parts;
    const sent = currentMoment(clock);
    try {
      for (const id of this.#claims.keys()) {
        if ((await renew(id, leaseMs)) || !this.#claims.delete(id)) continue;
        this.retire(id);
        log.warn({ workerId: id }, "worker lease expired; another process has released its claims");
      }
      this.#renewed(sent);
      if (!stopping.aborted) await this.start();
    } catch (err) {
      log.warn({ err }, "renewing the worker lease failed");
    }
  }

  #renewed(sent: Moment): void {
    if (sent.now - this.#renewedAt.now >= this.#parts.leaseMs) this.#validSince = sent.now;
    this.#renewedAt = sent;
  }
}
