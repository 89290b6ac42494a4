import type { Claimant } from "../../src/queue/claims.ts";
import type { Random } from "../../test/support/random.ts";
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

/** Draws indexes by their weights, each in constant time (Walker's alias method). */
function weighted(weights: readonly number[], random: Random): () => number {
  const size = weights.length;
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const chance = Float64Array.from(weights, (weight) => (weight / sum) * size);
  const alias = new Uint32Array(size);
  const small: number[] = [];
  const large: number[] = [];
  chance.forEach((each, index) => {
    (each < 1 ? small : large).push(index);
  });
  while (small.length > 0 && large.length > 0) {
    const less = small.pop() as number;
    const more = large.at(-1) as number;
    alias[less] = more;
    chance[more] = (chance[more] as number) + (chance[less] as number) - 1;
    if ((chance[more] as number) < 1) small.push(large.pop() as number);
  }
  for (const index of [...small, ...large]) chance[index] = 1;
  return () => {
    const place = random() * size;
    const index = Math.floor(place);
    return place - index < (chance[index] as number) ? index : (alias[index] as number);
  };
}
