import type { ClaimedDelivery } from "../db/queue/claims.ts";
import type { Contenders } from "./contenders.ts";

/** A webhook's deliveries, of a host's webhooks. */
interface WebhookQueue {
  webhookId: bigint;
  host: HostQueue;
  waiting: ClaimedDelivery[];
}

interface HostQueue {
  host: string;
  /** In the order of turns: the webhook served last is at the end. */
  webhooks: Set<WebhookQueue>;
  /** Whether something could be sent to it, as far as is known. */
  contends: boolean;
}

/** Who may have one more in flight. */
export interface Room {
  ofHost(host: string): boolean;
  ofWebhook(webhookId: bigint): boolean;
  /** Whether the host has less than its share of what may be in flight in all. */
  isBelowShare(host: string): boolean;
}

/**
 * Claimed deliveries that wait to be sent, served host by host in turn, and webhook by webhook within a host: hosts
 * get the same share however many webhooks they have, and a few connections serve a host rather than a burst of
 * many. A host without room is set aside until a delivery to it has ended, so that a thousand busy ones cost nothing.
 */
export class WebhookQueues {
  readonly #contenders: Contenders;
  readonly #webhooks = new Map<bigint, WebhookQueue>();
  readonly #hosts = new Map<string, HostQueue>();
  /** Hosts in the order of turns, without those set aside. */
  readonly #inTurn = new Set<HostQueue>();
  #size = 0;

  constructor(contenders: Contenders) {
    this.#contenders = contenders;
  }

  get size(): number {
    return this.#size;
  }

  push(delivery: ClaimedDelivery, host: string): void {
    const webhookId = delivery.webhook.id;
    let queue = this.#webhooks.get(webhookId);
    if (!queue) {
      queue = { webhookId, host: this.#host(host), waiting: [] };
      this.#webhooks.set(webhookId, queue);
      queue.host.webhooks.add(queue);
      // One that was set aside may have room for this webhook.
      this.#contend(queue.host);
    }
    queue.waiting.push(delivery);
    this.#size += 1;
  }

  /**
   * Takes one delivery a turn from each host that has room, until `more` says no or nobody has room.
   *
   * @param setAside told a host that had no room, or whose webhooks had none, or that has its share of what others
   *   wait for too; `putBack` is to be called for it
   */
  takeWhile(
    more: () => boolean,
    room: Room,
    take: (delivery: ClaimedDelivery, host: string) => void,
    setAside: (host: string) => void,
  ): void {
    // A host that was served goes to the end, where this same loop meets it again.
    for (const host of this.#inTurn) {
      if (!more()) return;
      this.#inTurn.delete(host);
      const isBelowShare = room.isBelowShare(host.host);
      const queue = isBelowShare && room.ofHost(host.host) ? nextOf(host, room) : undefined;
      if (queue) {
        const delivery = queue.waiting.shift() as ClaimedDelivery;
        this.#size -= 1;
        host.webhooks.delete(queue);
        if (queue.waiting.length > 0) host.webhooks.add(queue);
        else this.#forget(queue);
        if (host.webhooks.size > 0) this.#inTurn.add(host);
        take(delivery, host.host);
      } else {
        if (isBelowShare) this.#contendNoMore(host);
        setAside(host.host);
      }
    }
  }

  /** A host that was set aside takes its turns again. */
  putBack(host: string): void {
    const queue = this.#hosts.get(host);
    if (queue) this.#contend(queue);
  }

  /** Removes and answers what waits for a webhook. */
  take(webhookId: bigint): ClaimedDelivery[] {
    const queue = this.#webhooks.get(webhookId);
    if (!queue) return [];
    this.#forget(queue);
    this.#size -= queue.waiting.length;
    return queue.waiting;
  }

  /** Removes and answers everything. */
  drain(): ClaimedDelivery[] {
    return [...this.#webhooks.keys()].flatMap((webhookId) => this.take(webhookId));
  }

  /** The webhooks with deliveries waiting, and their hosts. */
  *all(): Iterable<{ webhookId: bigint; host: string }> {
    for (const { webhookId, host } of this.#webhooks.values()) yield { webhookId, host: host.host };
  }

  /** Webhooks that have enough waiting: `most`, or `few` when they have no room. */
  supplied(most: number, few: number, room: Room): bigint[] {
    const found: bigint[] = [];
    for (const { webhookId, host, waiting } of this.#webhooks.values()) {
      if (waiting.length < few) continue;
      const open = room.ofHost(host.host) && room.ofWebhook(webhookId);
      if (!open || waiting.length >= most) found.push(webhookId);
    }
    return found;
  }

  #host(host: string): HostQueue {
    let queue = this.#hosts.get(host);
    if (!queue) {
      queue = { host, webhooks: new Set(), contends: false };
      this.#hosts.set(host, queue);
    }
    return queue;
  }

  #contend(host: HostQueue): void {
    this.#inTurn.add(host);
    if (!host.contends) this.#contenders.join(host.host);
    host.contends = true;
  }

  #contendNoMore(host: HostQueue): void {
    if (host.contends) this.#contenders.leave(host.host);
    host.contends = false;
  }

  #forget(queue: WebhookQueue): void {
    const { host } = queue;
    this.#webhooks.delete(queue.webhookId);
    host.webhooks.delete(queue);
    if (host.webhooks.size > 0) return;
    this.#hosts.delete(host.host);
    this.#inTurn.delete(host);
    this.#contendNoMore(host);
  }
}

function nextOf(host: HostQueue, room: Room): WebhookQueue | undefined {
  for (const queue of host.webhooks) if (room.ofWebhook(queue.webhookId)) return queue;
  return undefined;
}
