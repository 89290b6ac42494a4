import type { ClaimedDelivery } from "../db/claim-statement.ts";

/** Claimed deliveries that wait to be sent, served webhook by webhook in turn. */
export class WebhookQueues {
  /** In the order of turns: the webhook served last is moved to the end. */
  readonly #queues = new Map<bigint, { host: string; waiting: ClaimedDelivery[] }>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(delivery: ClaimedDelivery, host: string): void {
    let queue = this.#queues.get(delivery.webhookId);
    if (!queue) {
      queue = { host, waiting: [] };
      this.#queues.set(delivery.webhookId, queue);
    }
    queue.waiting.push(delivery);
    this.#size += 1;
  }

  /** Takes one delivery a turn from each webhook that has room, until `more` says no or nobody has room. */
  takeWhile(
    more: () => boolean,
    hasRoom: (webhookId: bigint, host: string) => boolean,
    take: (delivery: ClaimedDelivery, host: string) => void,
  ): void {
    // A webhook that was served goes to the end of the map, where this same loop meets it again.
    for (const [webhookId, queue] of this.#queues) {
      if (!more()) return;
      if (!hasRoom(webhookId, queue.host)) continue;
      const delivery = queue.waiting.shift() as ClaimedDelivery;
      this.#size -= 1;
      this.#queues.delete(webhookId);
      if (queue.waiting.length > 0) this.#queues.set(webhookId, queue);
      take(delivery, queue.host);
    }
  }

  /** Removes and answers what waits for a webhook. */
  take(webhookId: bigint): ClaimedDelivery[] {
    const queue = this.#queues.get(webhookId);
    if (!queue) return [];
    this.#queues.delete(webhookId);
    this.#size -= queue.waiting.length;
    return queue.waiting;
  }

  /** Removes and answers everything. */
  drain(): ClaimedDelivery[] {
    return [...this.#queues.keys()].flatMap((webhookId) => this.take(webhookId));
  }

  webhooksOf(host: string): bigint[] {
    return [...this.#queues].filter(([, queue]) => queue.host === host).map(([webhookId]) => webhookId);
  }

  longerThan(length: number): bigint[] {
    return [...this.#queues]
      .filter(([, queue]) => queue.waiting.length >= length)
      .map(([webhookId]) => webhookId);
  }
}
