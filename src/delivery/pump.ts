import { fanOutStep } from "../db/events/fan-out.ts";
import { isTransient, untilAnswered } from "../db/faults.ts";
import { type ClaimedDelivery, claimPending } from "../db/queue/claims.ts";
import { handOver, release, releaseToRun } from "../db/queue/release.ts";
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
  runId: number,
  stop: AbortSignal,
  report: (counts: Readonly<FlowCounts>) => void = () => {},
): Promise<PumpResult> {
  const handover = new Handover(engine, runId);
  const round = new Round();
  const source: FlowSource = {
    async claim(limit, excluded) {
      await handover.settle();
      const passed = round.passesFailing ? engine.failingWebhooks.keys(MOST_PASSED) : [];
      // A fan-out that fails must not lose what was claimed meanwhile.
      const [step, claimed] = await Promise.all([
        fanOutStep(engine.db).catch((err) => fanOutFailed(engine, err)),
        engine.lease.claim(
          (workerId) =>
            claimPending(
              engine.db,
              { workerId, runId },
              { limit, after: round.after, excluded: [...excluded, ...handover.webhooks, ...passed] },
            ),
          stop,
        ),
      ]);
      if (step && step.missing > 0)
        engine.log.error({ ...step }, "an event had fewer recipients than were counted");
      const someWait = excluded.length > 0 || claimed.limited || step !== null;
      return { ...claimed, exhausted: round.claimed(claimed, passed.length > 0, someWait) };
    },
    release: (deliveries) => releaseClaims(engine, deliveries),
  };
  const flow = new DeliveryFlow(engine, source, engine.firstAttempts, handover);
  handover.watch(flow);
  report(flow.counts);

  const { exhausted } = await flow.run(stop);
  await handover.finish();
  return { ...flow.counts, handedOver: handover.webhooks.size, more: !exhausted };
}

function fanOutFailed({ log }: DeliveryEngine, err: unknown): null {
  if (!isTransient(err)) log.error({ err }, "an event could not be fanned out; the next claim tries again");
  return null;
}

/** Gives claimed deliveries back; those whose claim was lost meanwhile are another worker's. */
export async function releaseClaims(
  engine: DeliveryEngine,
  deliveries: readonly ClaimedDelivery[],
): Promise<void> {
  for (const [workerId, some] of Map.groupBy(deliveries, ({ token }) => token.workerId)) {
    await untilAnswered(() => release(engine.db, workerId, some));
    engine.lease.settle(workerId, some.length);
  }
}

/** Keeps the slow apart. */
class Handover implements FlowWatcher {
  readonly webhooks = new Set<bigint>();
  readonly #engine: DeliveryEngine;
  readonly #runId: number;
  #flow: DeliveryFlow | undefined;
  #withdrawn: ClaimedDelivery[] = [];

  constructor(engine: DeliveryEngine, runId: number) {
    this.#engine = engine;
    this.#runId = runId;
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
    const runId = this.#runId;
    for (const [workerId, some] of Map.groupBy(this.#withdrawn.splice(0), ({ token }) => token.workerId)) {
      const ids = some.map(({ id }) => id);
      await untilAnswered(() => releaseToRun(this.#engine.db, { workerId, runId }, ids));
      this.#engine.lease.settle(workerId, ids.length);
    }
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
      await untilAnswered(() => handOver(this.#engine.db, this.#runId, some, HAND_OVER_LIMIT));
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
