import type { ClaimedDelivery, ClaimToken } from "../db/claim-statement.ts";
import { claimPending, takeOver } from "../db/delivery-claims.ts";
import { handOver, release } from "../db/delivery-release.ts";
import { untilAnswered } from "../db/faults.ts";
import { type DeliveryEngine, SLOW_MS } from "./engine.ts";
import { DeliveryFlow } from "./flow.ts";
import type { FlowCounts, FlowSource, FlowWatcher } from "./flow-parts.ts";
import type { Outcome } from "./outcome.ts";
import { targetOf } from "./target.ts";

/** Pending entries of one slow webhook that move to the run, at most. */
const HAND_OVER_LIMIT = 10_000;
/** Failing webhooks that a claim passes by, at most: it is told of each, which costs more than it saves beyond that. */
const MOST_PASSED = 1_000;
/** Slow webhooks whose entries move in one statement. */
const HANDED_OVER_AT_ONCE = 10;

/** Where the next pump of this process starts its round, so that no webhook is always first. */
let rotation = 0n;

/** Goes round the webhooks by id and knows when a whole round found nothing to claim. */
class Round {
  after = rotation;
  /** Whether webhooks that fail are passed by: until a whole round found nothing else. */
  passesFailing = true;
  #whole = false;
  #found = false;
  #passed = false;
  #someWait = false;

  /**
   * Takes note of a claim; true when nothing is left but what is excluded for good.
   *
   * @param passed whether it passed webhooks by that fail
   * @param someWait whether it left out webhooks that may have more in a moment
   */
  claimed(claim: { touched: number; next: bigint | null }, passed: boolean, someWait: boolean): boolean {
    if (this.after === 0n) {
      this.#whole = true;
      this.#found = this.#passed = this.#someWait = false;
    }
    this.#found ||= claim.touched > 0;
    this.#passed ||= passed;
    this.#someWait ||= someWait;
    this.after = rotation = claim.next ?? 0n;
    if (claim.next !== null || !this.#whole) return false;
    this.passesFailing = this.#found || !this.#passed;
    return !this.#found && !this.#passed && !this.#someWait;
  }
}

/** What a pump did. */
export interface PumpResult extends FlowCounts {
  /** Webhooks whose deliveries it left to the run, untried, since they are slow. */
  handedOver: number;
  /** It ended with deliveries still pending. */
  more: boolean;
}

/**
 * First attempts: claims pending deliveries as slots come free and sends them, until none is left or `stop` is
 * aborted. A webhook or host that is slow or does not answer in time is handed over: what waits for it stays with
 * the run, untried, for the retry activity.
 *
 * @param report is given the counts, which go on changing
 */
export async function pump(
  engine: DeliveryEngine,
  token: ClaimToken,
  stop: AbortSignal,
  report: (counts: Readonly<FlowCounts>) => void = () => {},
): Promise<PumpResult> {
  const handover = new Handover(engine, token);
  const round = new Round();
  const source: FlowSource = {
    async claim(limit, excluded) {
      await handover.settle();
      const passed = round.passesFailing ? engine.failingWebhooks.keys(MOST_PASSED) : [];
      const claimed = await untilAnswered(
        () =>
          claimPending(engine.db, token, {
            limit,
            after: round.after,
            excluded: [...excluded, ...handover.webhooks, ...passed],
          }),
        { signal: stop },
      );
      const someWait = excluded.length > 0 || claimed.limited;
      return { ...claimed, exhausted: round.claimed(claimed, passed.length > 0, someWait) };
    },
    release: (ids) => untilAnswered(() => release(engine.db, token, ids, "pending")),
  };
  const flow = new DeliveryFlow(engine, token, source, engine.firstAttempts, handover);
  handover.watch(flow);
  report(flow.counts);

  const inherited =
    token.attempt > 1 ? await untilAnswered(() => takeOver(engine.db, token), { signal: stop }) : undefined;
  const { exhausted } = await flow.run(stop, inherited?.deliveries);
  await handover.finish();
  return { ...flow.counts, handedOver: handover.webhooks.size, more: !exhausted };
}

/** Keeps the slow apart. */
class Handover implements FlowWatcher {
  readonly webhooks = new Set<bigint>();
  readonly #engine: DeliveryEngine;
  readonly #token: ClaimToken;
  #flow: DeliveryFlow | undefined;
  #withdrawn: ClaimedDelivery[] = [];

  constructor(engine: DeliveryEngine, token: ClaimToken) {
    this.#engine = engine;
    this.#token = token;
  }

  watch(flow: DeliveryFlow): void {
    this.#flow = flow;
  }

  onOutcome(delivery: ClaimedDelivery, { receiverMs, hostFault }: Outcome): void {
    if (receiverMs > SLOW_MS) this.#mark(delivery, hostFault);
  }

  onTick(inFlight: Iterable<{ delivery: ClaimedDelivery; forMs: number }>): void {
    for (const { delivery, forMs } of inFlight) if (forMs > SLOW_MS) this.#mark(delivery, false);
    // What waits learns here from others' deliveries too: of this flow, and of the other pumps.
    const { hosts, slowHosts } = this.#engine;
    for (const { webhookId, host } of [...(this.#flow?.waiting() ?? [])]) {
      if (hosts.stuckFor(host) > SLOW_MS) slowHosts.mark(host);
      if (this.#isSlow(webhookId, host)) this.#markWebhook(webhookId);
    }
  }

  refuses(delivery: ClaimedDelivery): boolean {
    if (!this.#isSlow(delivery.webhook.id, targetOf(delivery.webhook).host)) return false;
    this.#markWebhook(delivery.webhook.id);
    this.#withdrawn.push(delivery);
    return true;
  }

  /** Leaves to the run what was claimed and withdrawn. */
  async settle(): Promise<void> {
    const ids = this.#withdrawn.splice(0).map(({ id }) => id);
    await untilAnswered(() => release(this.#engine.db, this.#token, ids, "run"));
  }

  /**
   * Leaves to the run what is still pending for the slow, too. Not before the end: nobody's delivery waits for it, and
   * the others' would have to share the database with it. A process that is to end leaves it pending.
   */
  async finish(): Promise<void> {
    await this.settle();
    const slow = [...this.webhooks];
    while (slow.length > 0 && !this.#engine.stopping.aborted) {
      const some = slow.splice(0, HANDED_OVER_AT_ONCE);
      await untilAnswered(() => handOver(this.#engine.db, this.#token, some, HAND_OVER_LIMIT));
    }
  }

  #isSlow(webhookId: bigint, host: string): boolean {
    const { slowWebhooks, slowHosts } = this.#engine;
    return this.webhooks.has(webhookId) || slowWebhooks.has(webhookId) || slowHosts.has(host);
  }

  #mark(delivery: ClaimedDelivery, wholeHost: boolean): void {
    this.#engine.slowWebhooks.mark(delivery.webhook.id);
    this.#markWebhook(delivery.webhook.id);
    if (!wholeHost) return;
    const { host } = targetOf(delivery.webhook);
    this.#engine.slowHosts.mark(host);
    for (const waiting of [...(this.#flow?.waiting() ?? [])]) {
      if (waiting.host === host) this.#markWebhook(waiting.webhookId);
    }
  }

  #markWebhook(webhookId: bigint): void {
    if (this.webhooks.has(webhookId)) return;
    this.webhooks.add(webhookId);
    this.#withdrawn.push(...(this.#flow?.withdraw(webhookId) ?? []));
  }
}
