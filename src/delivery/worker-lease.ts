import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import type { Db } from "../db/database.ts";
import { untilAnswered } from "../db/faults.ts";
import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { addWorker, removeWorker, renewWorker } from "../db/queue/workers.ts";

/** A lease is renewed so many times within its duration. */
const RENEWALS = 4;

/**
 * The process's row in `workers`: its claims hold while it renews that row. When another process has ended the row, since
 * it expired, what this one had claimed is free for all, and this one goes on under a new row.
 *
 * The lease is counted from before a renewal was sent, by a clock that nobody sets: this process stops sending before
 * another one can start.
 */
export class WorkerLease {
  readonly #db: Db;
  readonly #log: Logger;
  readonly #leaseMs: number;
  readonly #end = new AbortController();
  /** Claims that are not settled yet, by the id they were made with; also of ids that claim nothing more. */
  readonly #claims = new Map<number, number>();
  /** Names the process in Temporal: the task queue on which it alone takes pumps, another one at each start. */
  readonly taskQueue = `worker-${randomUUID()}`;
  #current: number | undefined;
  #validUntil = Number.NEGATIVE_INFINITY;
  #renewing: Promise<void> | undefined;
  #adding: Promise<number> | undefined;

  /** @param leaseMs how long a lease lasts, in milliseconds */
  constructor(db: Db, leaseMs: number, log: Logger) {
    this.#db = db;
    this.#leaseMs = leaseMs;
    this.#log = log;
  }

  /**
   * Claims deliveries, each of which is to be settled, and waits for the database if need be. When the answer to a claim is lost, nobody knows what it took: the
   * next claims are made with another id, and this one's row goes, which frees what is left, once all known is settled.
   */
  async claim<T extends { deliveries: readonly ClaimedDelivery[] }>(
    work: (workerId: number) => Promise<T>,
    stop: AbortSignal,
  ): Promise<T> {
    let claimed: T | undefined;
    try {
      await untilAnswered(
        async () => {
          claimed = await this.#claim(work);
        },
        { signal: stop },
      );
    } catch (error) {
      // What was claimed as it was told to stop must not be forgotten.
      if (!claimed) throw error;
    }
    return claimed as T;
  }

  async #claim<T extends { deliveries: readonly ClaimedDelivery[] }>(
    work: (workerId: number) => Promise<T>,
  ): Promise<T> {
    const id = this.#current ?? (await this.#add());
    this.#claims.set(id, (this.#claims.get(id) ?? 0) + 1);
    try {
      const claimed = await work(id);
      this.#claims.set(id, (this.#claims.get(id) ?? 0) + claimed.deliveries.length);
      return claimed;
    } catch (error) {
      this.retire(id);
      throw error;
    } finally {
      this.settle(id);
    }
  }

  /**
   * Claims nothing more with an id, under which the database may have rows that this process knows nothing of. They are free
   * once all known claims of the id are settled.
   */
  retire(id: number): void {
    if (this.#current === id) this.#current = undefined;
  }

  /** Takes note that claims were recorded, released or lost. */
  settle(id: number, claims = 1): void {
    const known = this.#claims.get(id);
    if (known === undefined) return;
    const left = known - claims;
    this.#claims.set(id, left);
    if (left > 0 || id === this.#current) return;
    this.#claims.delete(id);
    // If that fails, its lease expires, since nobody renews it any more.
    removeWorker(this.#db, id).catch(() => {});
  }

  /** Makes the process's row, so that runs give it pumps; waits for the database if need be. */
  async start(): Promise<void> {
    if (this.#current === undefined) await this.#add();
  }

  /** A result matched no claim: nothing starts until the lease has been read again. */
  verify(): void {
    this.#validUntil = Number.NEGATIVE_INFINITY;
    void this.#renewOrWarn();
  }

  /** Whether this process may start sending what it has claimed. */
  isValid(): boolean {
    return performance.now() < this.#validUntil;
  }

  /** The ids that it renews. */
  get ids(): number[] {
    return [...this.#claims.keys()];
  }

  /** Whether what was claimed with an id is free for others by now. */
  hasLost(id: number): boolean {
    return !this.#claims.has(id);
  }

  /** Ends the lease; everything must have been recorded or released before. */
  async close(): Promise<void> {
    this.#end.abort();
    await this.#renewing;
    await this.#adding?.catch(() => {});
    const ids = new Set(this.#claims.keys());
    if (this.#current !== undefined) ids.add(this.#current);
    await Promise.allSettled([...ids].map((id) => removeWorker(this.#db, id)));
  }

  #add(): Promise<number> {
    this.#adding ??= this.#addOne().finally(() => {
      this.#adding = undefined;
    });
    return this.#adding;
  }

  async #addOne(): Promise<number> {
    const sent = performance.now();
    const name = `${hostname()}/${process.pid}`;
    const worker = { name, taskQueue: this.taskQueue, leaseMs: this.#leaseMs };
    const id = await untilAnswered(() => addWorker(this.#db, worker), { signal: this.#end.signal });
    this.#current = id;
    this.#claims.set(id, 0);
    if (this.#claims.size === 1) this.#validUntil = sent + this.#leaseMs;
    this.#renewing ??= this.#renewAgainAndAgain();
    return id;
  }

  async #renewAgainAndAgain(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      await wait(this.#leaseMs / RENEWALS, undefined, { signal, ref: false }).catch(() => {});
      if (signal.aborted) return;
      await this.#renewOrWarn();
    }
  }

  async #renewOrWarn(): Promise<void> {
    try {
      await this.#renew();
    } catch (err) {
      this.#log.warn({ err }, "the worker's lease could not be renewed");
    }
  }

  async #renew(): Promise<void> {
    const sent = performance.now();
    for (const id of this.#claims.keys()) {
      if (await renewWorker(this.#db, id, this.#leaseMs)) continue;
      if (!this.#claims.delete(id)) continue;
      if (this.#current === id) this.#current = undefined;
      this.#log.warn(
        { workerId: id },
        "this worker's lease had expired, and another process has freed its claims",
      );
    }
    this.#validUntil = sent + this.#leaseMs;
    if (this.#current === undefined) await this.#add();
  }
}
