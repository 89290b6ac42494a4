import type { Logger } from "pino";
import { DomainError } from "../contract/errors.ts";
import { FEATURES } from "../contract/features.ts";
import { type Db, isTransient, untilAnswered } from "../lib/pg/index.ts";
import { type Clock, currentMoment, instanceName, LONG_AGO, systemClock } from "../lib/process/index.ts";
import { addInstance, removeInstance, renewInstance } from "../schema/index.ts";

/** The duration of an instance's lease, in milliseconds. It is renewed four times in that time. */
const LEASE_MS = 20_000;
const RENEWALS_PER_LEASE = 4;

/** The data requires a feature that this release does not know. */
export class OutdatedError extends DomainError {
  override name = "OutdatedError";

  constructor(missing: readonly string[], release: string) {
    super(
      "UNAVAILABLE",
      `the data requires ${missing.join(", ")}, which release ${release} does not know: it publishes and delivers nothing; start the release that the other processes have`,
    );
  }
}

/** Dependencies of an instance. */
export interface InstanceParts {
  db: Db;
  log: Logger;
  release: string;
  role: string;
  stopping: AbortSignal;
  /** Called once if this process must end, because the data requires what it does not know. */
  onOutdated: (error: OutdatedError) => void;
  /** The features that it knows. Defaults to those of this release. */
  features?: readonly string[];
  clock?: Clock;
}

/**
 * This process's row in `instances`, by which others know what it knows of the data. While its lease is valid, no feature can be required
 * that it does not know. Its lease is measured as that of a worker: from before the renewal is sent, by the earlier of two clocks.
 */
export class Instance {
  readonly #parts: InstanceParts;
  readonly #clock: Clock;
  readonly #end = new AbortController();
  #id: number | undefined;
  #renewedAt = LONG_AGO;
  #renewing: Promise<void> | undefined;
  #loop: Promise<void> | undefined;

  constructor(parts: InstanceParts) {
    this.#parts = parts;
    this.#clock = parts.clock ?? systemClock;
  }

  /** Adds the row. @throws OutdatedError if the data requires a feature that this release does not know */
  async start(): Promise<void> {
    await this.#renew();
    this.#loop = this.#renewAgainAndAgain();
  }

  /**
   * To be awaited before this process publishes or claims: renews an expired lease first, as after the machine was suspended.
   *
   * @returns undefined if the lease is valid
   * @throws OutdatedError as `start` does
   */
  admit(): Promise<void> | undefined {
    const { now, wall } = currentMoment(this.#clock);
    const isValid = now - this.#renewedAt.now < LEASE_MS && wall - this.#renewedAt.wall < LEASE_MS;
    if (isValid) return undefined;
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    return this.#renewing;
  }

  /** Removes the row. */
  async close(): Promise<void> {
    this.#end.abort();
    await this.#loop;
    if (this.#id !== undefined) await removeInstance(this.#parts.db, this.#id).catch(() => {});
  }

  async #renewAgainAndAgain(): Promise<void> {
    const { signal } = this.#end;
    while (!signal.aborted) {
      await this.#clock.wait(LEASE_MS / RENEWALS_PER_LEASE, { signal, ref: false });
      if (signal.aborted) return;
      await this.#renew().catch((err: unknown) => {
        if (err instanceof OutdatedError) this.#end.abort();
        // While the database is unavailable, other parts log it.
        else if (!isTransient(err))
          this.#parts.log.warn({ err }, "renewing the lease of this instance failed");
      });
    }
  }

  async #renew(): Promise<void> {
    const { db, onOutdated, stopping } = this.#parts;
    const sent = currentMoment(this.#clock);
    const known = this.#id;
    let missing = known === undefined ? null : await renewInstance(db, known, LEASE_MS);
    if (missing === null) {
      const added = await untilAnswered(() => this.#add(), { signal: stopping });
      this.#id = added.id;
      missing = added.missing;
    }
    if (missing.length === 0) {
      this.#renewedAt = sent;
      return;
    }
    const error = new OutdatedError(missing, this.#parts.release);
    onOutdated(error);
    throw error;
  }

  #add(): ReturnType<typeof addInstance> {
    const { db, release, role, features = FEATURES } = this.#parts;
    return addInstance(db, { name: instanceName(), release, role, features }, LEASE_MS);
  }
}
