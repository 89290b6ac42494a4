import type { ClaimedDelivery } from "../db/claim-statement.ts";

interface Queue {
  webhookId: bigint;
  host: string;
  waiting: ClaimedDelivery[];
}

/**
 * Claimed deliveries that wait to be sent, served webhook by webhook in turn. A webhook without room is set aside
 * until a delivery to its host has ended, so that a thousand that are busy cost nothing.
 */
export class WebhookQueues {
  readonly #queues = new Map<bigint, Queue>();
  /** In the order of turns: the webhook served last is moved to the end. */
  readonly #inTurn = new Set<Queue>();
  /** Those set aside, by host, in the order of their turns. */
  readonly #aside = new Map<string, Set<Queue>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  push(delivery: ClaimedDelivery, host: string): void {
    const webhookId = delivery.webhook.id;
    let queue = this.#queues.get(webhookId);
    if (!queue) {
      queue = { webhookId, host, waiting: [] };
      this.#queues.set(webhookId, queue);
      this.#inTurn.add(queue);
    }
    queue.waiting.push(delivery);
    this.#size += 1;
  }

  /**
   * Takes one delivery a turn from each webhook that has room, until `more` says no or nobody has room.
   *
   * @param setAside told the host of a webhook that had no room; `hasRoomAgain` is to be called for it
   */
  takeWhile(
    more: () => boolean,
    hasRoom: (webhookId: bigint, host: string) => boolean,
    take: (delivery: ClaimedDelivery, host: string) => void,
    setAside: (host: string) => void,
  ): void {
    // A webhook that was served goes to the end, where this same loop meets it again.
    for (const queue of this.#inTurn) {
      if (!more()) return;
      this.#inTurn.delete(queue);
      if (hasRoom(queue.webhookId, queue.host)) {
        const delivery = queue.waiting.shift() as ClaimedDelivery;
        this.#size -= 1;
        if (queue.waiting.length > 0) this.#inTurn.add(queue);
        else this.#queues.delete(queue.webhookId);
        take(delivery, queue.host);
      } else {
        const others = this.#aside.get(queue.host);
        if (others) others.add(queue);
        else this.#aside.set(queue.host, new Set([queue]));
        setAside(queue.host);
      }
    }
  }

  /**
   * Puts webhooks that were set aside for a host back in turn: as many as the host has places, of those that have
   * room themselves.
   *
   * @returns whether any stay aside
   */
  hasRoomAgain(host: string, places: number, hasRoom: (webhookId: bigint) => boolean): boolean {
    const aside = this.#aside.get(host);
    if (!aside) return false;
    let left = places;
    for (const queue of aside) {
      if (left === 0) break;
      if (!hasRoom(queue.webhookId)) continue;
      aside.delete(queue);
      this.#inTurn.add(queue);
      left -= 1;
    }
    if (aside.size === 0) this.#aside.delete(host);
    return aside.size > 0;
  }

  /** Removes and answers what waits for a webhook. */
  take(webhookId: bigint): ClaimedDelivery[] {
    const queue = this.#queues.get(webhookId);
    if (!queue) return [];
    this.#queues.delete(webhookId);
    this.#inTurn.delete(queue);
    const aside = this.#aside.get(queue.host);
    if (aside?.delete(queue) && aside.size === 0) this.#aside.delete(queue.host);
    this.#size -= queue.waiting.length;
    return queue.waiting;
  }

  /** Removes and answers everything. */
  drain(): ClaimedDelivery[] {
    return [...this.#queues.keys()].flatMap((webhookId) => this.take(webhookId));
  }

  webhooksOf(host: string): bigint[] {
    return [...this.#queues.values()]
      .filter((queue) => queue.host === host)
      .map(({ webhookId }) => webhookId);
  }

  longerThan(length: number): bigint[] {
    return [...this.#queues.values()]
      .filter(({ waiting }) => waiting.length >= length)
      .map(({ webhookId }) => webhookId);
  }
}
