import type { Scheduler, Verdict } from "./scheduler.ts";
import type { Kind, Task } from "./task.ts";

/** The number of queued deliveries of a webhook from which claims skip it, however few webhooks have queued deliveries. */
const MAX_QUEUED_PER_WEBHOOK = 1_024;
/**
 * The number of queued deliveries of a kind that the webhooks with queued deliveries share evenly. Claims skip a webhook that has its
 * share, but not below MIN_QUEUED_PER_WEBHOOK. The number is limited because each claim reads past the rows of all queued deliveries.
 */
const SHARED_QUEUE = 4_096;
/**
 * The number of queued deliveries below which claims do not skip a webhook. A webhook without room is skipped from its window's size on,
 * if that is larger; a webhook that hangs or fails, from one queued delivery on.
 */
const MIN_QUEUED_PER_WEBHOOK = 4;
/**
 * The maximum number of queued deliveries of a kind for a host that has no room or is in trouble, in addition to its window's size.
 * Counted by kind, because a busy host always has this many first attempts queued, and they must not keep out its retries.
 */
const MAX_QUEUED_BEYOND_WINDOW = 8;

const NONE: readonly never[] = [];

/** Decides which webhooks claims skip: enough of their deliveries are queued, or their host has no room. */
export class SkippedWebhooks<T extends Task> {
  readonly #scheduler: Scheduler<T>;
  /**
   * A delivery, not queued, of each webhook that claims of the kind skip because it hangs, or its host has no room or is in trouble, and
   * enough deliveries are queued. Separate by kind, so that a pump does not stay for webhooks that have retries only.
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

  /**
   * Whether claims still skip the webhook: if it hangs, until none of its deliveries is queued; if its host is in trouble, until none of
   * the host's is queued; otherwise until the host has room.
   */
  #isBlocked(sending: T): boolean {
    const { webhooks, hosts, lanes } = this.#scheduler;
    const { kind, window, host } = sending;
    if (webhooks.of(window).trouble === "hangs" && lanes[kind].waitingOf(sending) > 0) return true;
    return hosts.isInTrouble(host) ? lanes[kind].waitingForHost(host) > 0 : !hosts.hasRoom(host);
  }

  /**
   * Queues a delivery, unless enough of its kind are queued for its webhook, which hangs, or for its host, which has no room or is in
   * trouble. Claims then skip the webhook.
   *
   * @returns the deliveries to release: the given one if it is not queued, or those queued for the old host of a moved webhook
   */
  queue(sending: T): readonly T[] {
    if (!this.#isFull(sending)) return this.#scheduler.push(sending);
    this.#crowded[sending.kind].set(sending.webhookId, sending);
    return [sending];
  }

  /**
   * Removes all but a few queued deliveries of a webhook or host that has timed out twice in succession. They would keep their payloads
   * for hours, because each waits for the timeouts of those before it. Must be called before `Scheduler.end`.
   *
   * @param verdict the verdict of the attempt that ends
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

  /** One delivery, not queued, of each webhook that is skipped because it hangs, or its host has no room or is in trouble. */
  crowded(): T[] {
    const { first, retry } = this.#crowded;
    return [...first.values(), ...retry.values()];
  }

  /** Stops skipping paused, deleted or changed webhooks: the new host of a moved webhook may have room. */
  forget(webhookIds: ReadonlySet<bigint>): void {
    for (const id of webhookIds) for (const crowded of Object.values(this.#crowded)) crowded.delete(id);
  }
}
