import type { ClaimedWebhook } from "../../db/queue/webhooks.ts";
import type { Clock } from "../../process/clock.ts";
import type { Kind, Scheduler, Task } from "./scheduler.ts";

/** The number of queued deliveries per webhook from which it is excluded from claims, however few webhooks have some. */
const MAX_QUEUED_PER_WEBHOOK = 1_024;
/**
 * The number of queued deliveries of a kind that webhooks share evenly: one that has its part is excluded from claims, unless it
 * has fewer than MIN_QUEUED_PER_WEBHOOK. Each claim reads past all that are queued.
 */
const SHARED_QUEUE = 4_096;
/**
 * The number of queued deliveries below which no webhook is excluded from claims. One with a full window is excluded from as many as
 * the window's size, if that is larger.
 */
const MIN_QUEUED_PER_WEBHOOK = 4;
/** The maximum number of queued deliveries for a host without room, in addition to its window's size. */
const MAX_QUEUED_BEYOND_WINDOW = 8;
/** The cache time of the list of webhooks excluded from claims, in milliseconds. */
const CACHE_MS = 5;

/** Decides which webhooks claims skip: enough of their deliveries are queued, or their host has no room. */
export class SkippedWebhooks {
  readonly #scheduler: Scheduler<Task>;
  readonly #clock: Clock;
  /**
   * Webhooks of hosts without room that have enough queued deliveries, with deliveries of the kind: excluded from claims of
   * that kind until the host has room. A pump must not wait for webhooks that have retries only.
   */
  readonly #crowded: Record<Kind, Map<bigint, ClaimedWebhook>> = {
    first: new Map(),
    retry: new Map(),
  };
  /** The cached result for retries: hundreds of retry passes ask at the same time. */
  #retries: { at: number; webhookIds: readonly bigint[] } | undefined;

  constructor(scheduler: Scheduler<Task>, clock: Clock) {
    this.#scheduler = scheduler;
    this.#clock = clock;
  }

  /** The webhooks that a claim of a kind skips. */
  of(kind: Kind): readonly bigint[] {
    // Not cached: only one pump claims at a time, and its latest claim must count.
    if (kind === "first") return this.#find(kind);
    const now = this.#clock.now();
    if (this.#retries && now - this.#retries.at < CACHE_MS) return this.#retries.webhookIds;
    const webhookIds = this.#find(kind);
    this.#retries = { at: now, webhookIds };
    return webhookIds;
  }

  #find(kind: Kind): bigint[] {
    const skipped: bigint[] = [];
    const queues = [...this.#scheduler.queues(kind)];
    const most = Math.min(MAX_QUEUED_PER_WEBHOOK, Math.ceil(SHARED_QUEUE / queues.length));
    for (const { webhookId, window, host, waiting } of queues) {
      if (waiting < MIN_QUEUED_PER_WEBHOOK) continue;
      if (waiting < most) {
        if (this.#scheduler.hasRoom(window, host)) continue;
        if (waiting < this.#scheduler.webhooks.of(window).allowed) continue;
      }
      skipped.push(webhookId);
    }
    const crowded = this.#crowded[kind];
    for (const [webhookId, { target }] of crowded) {
      if (this.#scheduler.hosts.hasRoom(target.host)) crowded.delete(webhookId);
      else skipped.push(webhookId);
    }
    return skipped;
  }

  /**
   * Skips the webhook of a task until its host has room, if the host has none and its queue is full.
   *
   * @returns whether it is skipped
   */
  skipIfFull({ kind, webhookId, host }: Task, webhook: ClaimedWebhook): boolean {
    if (this.#scheduler.hosts.hasRoom(host)) return false;
    const { allowed } = this.#scheduler.hosts.of(host);
    if (this.#scheduler.waitingForHost(host) < MAX_QUEUED_BEYOND_WINDOW + allowed) return false;
    this.#crowded[kind].set(webhookId, webhook);
    return true;
  }

  /** The webhooks that are skipped until their hosts have room. */
  crowded(): Set<ClaimedWebhook> {
    const { first, retry } = this.#crowded;
    return new Set([...first.values(), ...retry.values()]);
  }

  /** Stops skipping paused, deleted or moved webhooks: a moved one may have room at its new host. */
  forget(webhookIds: ReadonlySet<bigint>): void {
    for (const id of webhookIds) for (const crowded of Object.values(this.#crowded)) crowded.delete(id);
  }
}
