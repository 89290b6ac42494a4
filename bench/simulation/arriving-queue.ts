import type { Claimant } from "../../src/db/queue/claims.ts";
import { type Random, weighted } from "../../test/support/random.ts";
import { QueueTable } from "../../test/support/simulation/queue-table.ts";
import type { Measuring, SimulatedWebhook } from "../../test/support/simulation/receivers.ts";
import type { SimulatedDatabase } from "../../test/support/simulation/simulated-database.ts";

/** The arrival times of deliveries, in milliseconds. */
export interface Arrivals {
  perSecond: number;
  untilMs: number;
}

/** The table `queue` with Poisson arrivals. */
export class ArrivingQueue extends QueueTable {
  readonly #random: Random;
  readonly #draw: () => number;
  readonly #gapMs: number;
  readonly #untilMs: number;
  #nextArrival: number;

  constructor(
    webhooks: readonly SimulatedWebhook[],
    { perSecond, untilMs }: Arrivals,
    database: SimulatedDatabase,
    measurements: Measuring,
    random: Random,
  ) {
    super(webhooks, database, measurements);
    this.#random = random;
    this.#draw = weighted(
      webhooks.map(({ weight }) => weight),
      random,
    );
    this.#gapMs = 1_000 / perSecond;
    this.#untilMs = untilMs;
    this.#nextArrival = this.#gap();
  }

  /** The arrival time of the oldest unclaimed row of webhooks with a behaviour. */
  oldestUnclaimed(behaviour: SimulatedWebhook["host"]["behaviour"]): number | undefined {
    let oldest: number | undefined;
    this.free.forEach((rows, n) => {
      if (rows.size === 0 || this.webhooks[n]?.host.behaviour !== behaviour) return;
      if (oldest === undefined || rows.firstTime < oldest) oldest = rows.firstTime;
    });
    return oldest;
  }

  /** Adds all deliveries that arrive before now. */
  arrive(): void {
    const until = Math.min(this.database.now, this.#untilMs);
    while (this.#nextArrival <= until) {
      this.add(this.#draw(), this.#nextArrival);
      this.#nextArrival += this.#gap();
    }
  }

  override claim(
    claimant: Claimant,
    options: Parameters<QueueTable["claim"]>[1],
  ): ReturnType<QueueTable["claim"]> {
    this.arrive();
    return super.claim(claimant, options);
  }

  #gap(): number {
    return -Math.log(1 - this.#random()) * this.#gapMs;
  }
}
