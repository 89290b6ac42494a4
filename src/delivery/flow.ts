import type { ClaimedDelivery } from "../db/queue/claims.ts";
import { attempt, type DeliveryEngine } from "./engine.ts";
import type { FlowCounts, FlowSource, FlowWatcher } from "./flow-parts.ts";
import { HeldContents } from "./held-contents.ts";
import type { Outcome } from "./outcome.ts";
import type { Slots } from "./slots.ts";
import { takeNote } from "./take-note.ts";
import { targetOf } from "./target.ts";
import { type Room, WebhookQueues } from "./webhook-queues.ts";

const TICK_MS = 250;
/** Below this many startable entries, more are claimed. */
const LOW_WATER = 128;
const CHUNK = 1_024;
/** Claimed and waiting, at most; what blocked receivers hold back counts too. */
const MAX_QUEUED = 2_000;
/** Characters of bodies held, beyond which no more are claimed: events may be large. */
const MAX_HELD = 16 * 2 ** 20;
/** A webhook with this many waiting gets no more for now. */
const MAX_QUEUED_EACH = LOW_WATER;
/** And one without room with this many: the blocked must not fill the queue, and so hold up the others. */
const MAX_BLOCKED_EACH = 4;

/**
 * Sends what a source gives, as slots come free: claims in chunks, keeps within the bounds per host and webhook, and
 * never waits for the slowest of a batch.
 */
export class DeliveryFlow {
  readonly counts: FlowCounts = { sent: 0, delivered: 0, retrying: 0, failed: 0 };
  /** The last failure, for people: `503` or `connection refused (ECONNREFUSED)`. */
  lastFailure: { host: string; what: string } | null = null;

  readonly #engine: DeliveryEngine;
  readonly #source: FlowSource;
  readonly #slots: Slots;
  readonly #watcher: FlowWatcher | undefined;
  readonly #room: Room;
  readonly #queues: WebhookQueues;
  readonly #contents: HeldContents;
  /** `since` the receiver has the request; not known until then. */
  readonly #inFlight = new Map<string, { delivery: ClaimedDelivery; since: number | undefined }>();
  #lastTick = performance.now();
  /** When this process was found to have stood still. */
  #stalledAt = Number.NEGATIVE_INFINITY;
  #wake: () => void = () => {};

  constructor(engine: DeliveryEngine, source: FlowSource, slots: Slots, watcher?: FlowWatcher) {
    this.#engine = engine;
    this.#room = {
      ofHost: (host) => engine.hosts.hasRoom(host),
      ofWebhook: (webhookId) => engine.webhooks.hasRoom(webhookId),
      isBelowShare: (host) => engine.hosts.inFlight(host) < slots.contenders.shareOf(slots.size),
    };
    this.#queues = new WebhookQueues(slots.contenders);
    this.#contents = new HeldContents(engine.db);
    this.#source = source;
    this.#slots = slots;
    this.#watcher = watcher;
  }

  /**
   * Runs until the source is exhausted and everything is recorded, or until `stop` is aborted: then it finishes what
   * is in flight and gives back the rest.
   */
  async run(stop: AbortSignal): Promise<{ exhausted: boolean }> {
    const tick = setInterval(() => this.#onTick(), TICK_MS);
    const wake = () => this.#wake();
    stop.addEventListener("abort", wake);
    let exhausted = false;
    try {
      while (!stop.aborted) {
        this.#startWhatFits();
        if (!exhausted && this.#wantsMore()) {
          const claimed = await this.#source.claim(
            CHUNK,
            this.#queues.supplied(MAX_QUEUED_EACH, this.#enoughBlocked, this.#room),
          );
          exhausted = claimed.exhausted;
          try {
            await this.#enqueue(claimed.deliveries);
          } catch (error) {
            await this.#source.release(claimed.deliveries);
            throw error;
          }
          // Only webhooks that are excluded or limited have more: wait for room, or for the next tick.
          if (claimed.deliveries.length === 0 && (this.#busy() || claimed.limited)) await this.#changed();
        } else if (this.#busy()) {
          await this.#changed();
        } else {
          break;
        }
      }
    } catch (error) {
      // A claim that was waiting for the database when it was time to stop has nothing to tell.
      if (!stop.aborted) throw error;
    } finally {
      // Taken out first: what ends in flight would start what waits.
      const unsent = this.#queues.drain();
      this.#slots.leave(this.#startWhatFits);
      this.#engine.hosts.leave(this.#putBack);
      while (this.#inFlight.size > 0) await this.#changed();
      clearInterval(tick);
      stop.removeEventListener("abort", wake);
      await this.#source.release(unsent);
    }
    return { exhausted };
  }

  /** Claimed and not yet sent. */
  get queued(): number {
    return this.#queues.size;
  }

  /** Takes a webhook's waiting deliveries out of the flow. */
  withdraw(webhookId: bigint): ClaimedDelivery[] {
    const withdrawn = this.#queues.take(webhookId);
    for (const delivery of withdrawn) this.#contents.release(delivery);
    return withdrawn;
  }

  /** The webhooks that have deliveries waiting here. */
  waiting(): Iterable<{ webhookId: bigint; host: string }> {
    return this.#queues.all();
  }

  #busy(): boolean {
    return this.#queues.size > 0 || this.#inFlight.size > 0;
  }

  #wantsMore(): boolean {
    if (this.#queues.size >= MAX_QUEUED || this.#contents.length >= MAX_HELD) return false;
    return this.#queues.size < LOW_WATER || this.#slots.free > 0;
  }

  /** With little to send, whatever there is may be claimed: a webhook without room may have some in a moment. */
  get #enoughBlocked(): number {
    return this.#queues.size < LOW_WATER ? MAX_QUEUED_EACH : MAX_BLOCKED_EACH;
  }

  async #enqueue(deliveries: ClaimedDelivery[]): Promise<void> {
    await this.#contents.hold(deliveries);
    for (const delivery of deliveries) {
      if (this.#watcher?.refuses(delivery)) this.#contents.release(delivery);
      else this.#queues.push(delivery, targetOf(delivery.webhook).host);
    }
  }

  readonly #startWhatFits = (): void => {
    const { webhooks, hosts } = this.#engine;
    this.#queues.takeWhile(
      () => this.#slots.free > 0 && this.#engine.lease.isValid(),
      this.#room,
      (delivery, host) => {
        if (this.#engine.lease.hasLost(delivery.token.workerId)) {
          this.#contents.release(delivery);
          return;
        }
        this.#slots.tryTake();
        webhooks.start(delivery.webhook.id);
        hosts.start(host);
        this.#send(delivery, host);
      },
      (host) => hosts.wait(host, this.#putBack),
    );
    if (this.#queues.size > 0 && this.#slots.free === 0) this.#slots.wait(this.#startWhatFits);
  };

  /** Any flow's delivery to the host has ended. */
  readonly #putBack = (host: string): void => {
    this.#queues.putBack(host);
    // Not before the connection of what has ended is free again: there would be one more.
    setImmediate(this.#startWhatFits);
  };

  #send(delivery: ClaimedDelivery, host: string): void {
    const entry = { delivery, since: undefined as number | undefined };
    this.#inFlight.set(delivery.id, entry);
    let failed: Outcome | undefined;
    attempt(this.#engine, delivery, this.#contents.of(delivery), {
      sent: () => {
        entry.since = performance.now();
      },
      outcome: (outcome) => {
        if (!outcome.delivered) failed = outcome;
        takeNote(this.#engine, delivery.webhook.id, host, outcome);
        // What seems slow over a stall may be this process itself.
        if (performance.now() - outcome.receiverMs > this.#stalledAt)
          this.#watcher?.onOutcome(delivery, outcome);
      },
      recorded: (state) => {
        if (state !== undefined) this.counts.sent += 1;
        if (state === "delivered" || state === "retrying" || state === "failed") this.counts[state] += 1;
        if (failed) this.lastFailure = { host, what: failed.error ?? String(failed.status) };
        this.#inFlight.delete(delivery.id);
        this.#contents.release(delivery);
        this.#engine.lease.settle(delivery.token.workerId);
        this.#slots.give();
        this.#startWhatFits();
        this.#wake();
      },
    });
  }

  #onTick(): void {
    const now = performance.now();
    if (now - this.#lastTick > 2 * TICK_MS) this.#stalledAt = now;
    this.#lastTick = now;
    if (this.#watcher && this.#stalledAt < now) {
      const entries = [...this.#inFlight.values()];
      this.#watcher.onTick(entries.map(({ delivery, since = now }) => ({ delivery, forMs: now - since })));
    }
    this.#wake();
  }

  #changed(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }
}
