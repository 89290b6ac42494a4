import type { Scheduler, Verdict } from "./scheduler.ts";
import type { Kind, Task } from "./task.ts";

/** The number of queued deliveries per webhook from which it is excluded from claims, however few webhooks have some. */
const MAX_QUEUED_PER_WEBHOOK = 1_024;
/**
 * The number of queued deliveries of a kind that webhooks share evenly: one that has its part is excluded from claims, unless it
 * has fewer than MIN_QUEUED_PER_WEBHOOK. Each claim reads past all that are queued.
 */
const SHARED_QUEUE = 4_096;
/**
 * The number of queued deliveries below which no webhook is excluded from claims, unless it fails. One with a full window is
 * excluded from as many as the window's size, if that is larger.
 */
const MIN_QUEUED_PER_WEBHOOK = 4;
/**
 * The maximum number of queued deliveries of a kind for a host that has no room or hangs, in addition to its window's size. First
 * attempts, of which a busy host always has as many queued, must leave room for retries.
 */
const MAX_QUEUED_BEYOND_WINDOW = 8;

const NONE: readonly never[] = [];

/** Decides which webhooks claims skip: enough of their deliveries are queued, or their host has no room. */
export class SkippedWebhooks<T extends Task> {
  readonly #scheduler: Scheduler<T>;
  /**
   * Deliveries of webhooks that have enough queued and hang, or whose host has no room or hangs: the webhooks are excluded
   * from claims of the kind, until this ends or none is queued. A pump must not wait for webhooks that have retries only.
   */
  readonly #crowded: Record<Kind, Map<bigint, T>> = { first: new Map(), retry: new Map() };

  constructor(scheduler: Scheduler<T>) {
    this.#scheduler = scheduler;
  }

  /** The webhooks that a claim of a kind skips. */
  of(kind: Kind): bigint[] {
    const skipped: bigint[] = [];
    const { webhooks, lanes } = this.#scheduler;
    const queues = [...lanes[kind].windows.values()];
    const queued = queues.reduce((sum, queue) => sum + queue.webhooks.size, 0);
    const most = Math.min(MAX_QUEUED_PER_WEBHOOK, Math.ceil(SHARED_QUEUE / queued));
    for (const { window, host, webhooks: sharing } of queues) {
      const { allowed, inFlight, trouble } = webhooks.of(window);
      const hasRoom = inFlight < allowed && this.#isOpen(host.host);
      const enough = Math.max(MIN_QUEUED_PER_WEBHOOK, hasRoom ? most : Math.min(most, allowed));
      for (const [webhookId, { length }] of sharing)
        if (length >= (trouble === "none" ? enough : 1)) skipped.push(webhookId);
    }
    const crowded = this.#crowded[kind];
    for (const [webhookId, sending] of crowded) {
      if (this.#isBlocked(sending)) skipped.push(webhookId);
      else crowded.delete(webhookId);
    }
    return skipped;
  }

  /** Whether its webhook stays excluded. Hanging receivers get as few deliveries again when those queued have started. */
  #isBlocked(sending: T): boolean {
    const { webhooks, hosts, lanes } = this.#scheduler;
    const { kind, window, host } = sending;
    if (webhooks.of(window).trouble === "hangs" && lanes[kind].waitingOf(sending) > 0) return true;
    return hosts.isInTrouble(host) ? lanes[kind].waitingForHost(host) > 0 : !hosts.hasRoom(host);
  }

  /**
   * Queues a delivery, unless its webhook or host has enough of its kind queued, and hangs or, as a host, has no room: its
   * webhook is skipped then.
   *
   * @returns those not queued: it, or others of its webhook from before that was moved
   */
  queue(sending: T): readonly T[] {
    if (!this.#isFull(sending)) return this.#scheduler.push(sending);
    this.#crowded[sending.kind].set(sending.webhookId, sending);
    return [sending];
  }

  /**
   * Removes queued deliveries, apart from a few, of a webhook or host that has timed out twice in succession. They would keep
   * their payloads for hours: each waits for the timeouts of those before it.
   *
   * @param verdict of a delivery that ends
   * @returns the removed deliveries
   */
  removeHanging({ window, host }: T, verdict: Verdict): readonly T[] {
    const { webhooks, hosts } = this.#scheduler;
    const isOfHost = verdict.host === "timeout" && hosts.of(host).trouble === "hangs";
    const isOfWindow = verdict.webhook === "timeout" && webhooks.of(window).trouble === "hangs";
    if (!isOfHost && !isOfWindow) return NONE;
    const queued = this.#scheduler.remove((each) => isOfHost || each.window === window, host);
    return queued.flatMap((each) => this.queue(each));
  }

  #isFull(sending: T): boolean {
    const { webhooks, hosts, lanes } = this.#scheduler;
    const { kind, window, host } = sending;
    const hangs = webhooks.of(window).trouble === "hangs";
    if (hangs && lanes[kind].waitingOf(sending) >= MIN_QUEUED_PER_WEBHOOK) return true;
    if (this.#isOpen(host)) return false;
    return lanes[kind].waitingForHost(host) >= MAX_QUEUED_BEYOND_WINDOW + hosts.of(host).allowed;
  }

  #isOpen(host: string): boolean {
    const { hosts } = this.#scheduler;
    return hosts.hasRoom(host) && !hosts.isInTrouble(host);
  }

  /** Deliveries, not queued, of the webhooks that are skipped until their hosts have room, or those queued have started. */
  crowded(): T[] {
    const { first, retry } = this.#crowded;
    return [...first.values(), ...retry.values()];
  }

  /** Stops skipping paused, deleted or changed webhooks: a moved one may have room at its new host. */
  forget(webhookIds: ReadonlySet<bigint>): void {
    for (const id of webhookIds) for (const crowded of Object.values(this.#crowded)) crowded.delete(id);
  }
}
