import { LeastLoaded } from "./least-loaded.ts";
import { type Evidence, Windows } from "./windows.ts";

/** First attempts and retries wait apart: each has its part of the budget. */
export type Kind = "first" | "retry";

/** What waits to be sent. */
export interface Task {
  readonly kind: Kind;
  readonly webhookId: bigint;
  readonly host: string;
}

/** What an attempt showed about its webhook and its host. */
export interface Verdict {
  webhook: Evidence;
  host: Evidence;
}

/** A webhook that tasks wait for. */
export interface WaitingWebhook {
  webhookId: bigint;
  host: string;
  waiting: number;
}

/** The part of the budget that retries have while first attempts wait too: a fifth. */
const RETRY_PART = 5;
/** The part of the budget that receivers that did not answer in time may hold: a quarter. */
const PROBE_PART = 4;

/** The tasks of one webhook and kind, oldest first. */
interface WebhookQueue<T> {
  readonly webhookId: bigint;
  readonly host: HostQueue<T>;
  tasks: T[];
  /** Tasks before this one have been taken. */
  first: number;
}

/** The webhooks of one host that have tasks of a kind waiting. */
interface HostQueue<T> {
  readonly host: string;
  readonly webhooks: Map<bigint, WebhookQueue<T>>;
  /** Tasks of all of them. */
  waiting: number;
  /** Those that may have room, by how much they have in flight. */
  readonly ready: LeastLoaded<WebhookQueue<T>>;
}

/** All that waits of one kind. */
class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly webhooks = new Map<bigint, WebhookQueue<T>>();
  /** Hosts that may have room, by how much they have in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Hosts that did not answer in time and may be tried, and webhooks of others that did not. They take turns. */
  readonly hanging = new Set<WebhookQueue<T> | HostQueue<T>>();
  waiting = 0;
}

/**
 * Decides who may send next. A pure data structure: it sends nothing and knows no clock.
 *
 * A task starts when the budget, its host's window and its webhook's window have room. The next slot goes to the host
 * with the fewest requests in flight, and there to the webhook with the fewest (max-min fairness), so that a few that
 * are busy or slow leave room for all others. A receiver that did not answer in time gets one request at a time, a
 * probe, and all probes together have at most a quarter of the budget.
 */
export class Scheduler<T extends Task> {
  readonly webhooks: Windows<bigint>;
  readonly hosts: Windows<string>;
  /** Requests in flight, at most; may be changed at any time. */
  budget: number;
  readonly #lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  readonly #inFlight: Record<Kind, number> = { first: 0, retry: 0 };
  #turn = 0;
  /**
   * Probes in flight, and whether they count in their host's window. One to a webhook that hangs does not: it could hold
   * the only slot of its neighbours.
   */
  readonly #probes = new Map<T, boolean>();

  /** @param limits the most in flight in all, to one host and to one webhook */
  constructor(limits: { budget: number; perHost: number; perWebhook: number }) {
    this.budget = limits.budget;
    this.hosts = new Windows(limits.perHost);
    this.webhooks = new Windows(limits.perWebhook);
  }

  get inFlight(): number {
    return this.#inFlight.first + this.#inFlight.retry;
  }

  /** Tasks of a kind that wait. */
  waiting(kind: Kind): number {
    return this.#lanes[kind].waiting;
  }

  /** Tasks that wait for a host, over all of its webhooks. */
  waitingForHost(host: string): number {
    return (
      (this.#lanes.first.hosts.get(host)?.waiting ?? 0) + (this.#lanes.retry.hosts.get(host)?.waiting ?? 0)
    );
  }

  /** The webhooks with waiting tasks of a kind: how many wait, and how many may be in flight. */
  *queues(kind: Kind): Iterable<WaitingWebhook> {
    for (const { webhookId, host, tasks, first } of this.#lanes[kind].webhooks.values())
      yield { webhookId, host: host.host, waiting: tasks.length - first };
  }

  /** Whether the windows of a webhook and its host have room, and not only for a probe. */
  hasRoom(webhookId: bigint, host: string): boolean {
    return this.webhooks.isOpen(webhookId) && this.hosts.isOpen(host);
  }

  push(task: T): void {
    const lane = this.#lanes[task.kind];
    const queue = lane.webhooks.get(task.webhookId) ?? this.#addQueue(lane, task);
    queue.tasks.push(task);
    queue.host.waiting += 1;
    lane.waiting += 1;
  }

  /** Takes the task that is to start now; undefined when nothing may. `end` is to be called for it. */
  next(): T | undefined {
    if (this.inFlight >= this.budget) return undefined;
    return this.#isRetrysTurn()
      ? (this.#take("retry") ?? this.#take("first"))
      : (this.#take("first") ?? this.#take("retry"));
  }

  /** Whether retries have less than their part in flight; of a small budget they have each fifth turn. */
  #isRetrysTurn(): boolean {
    if (this.budget >= RETRY_PART) return this.#inFlight.retry < Math.floor(this.budget / RETRY_PART);
    this.#turn = (this.#turn + 1) % RETRY_PART;
    return this.#turn === 0;
  }

  /** Takes note of the end of a task that `next` answered. */
  end(task: T, verdict: Verdict): void {
    this.#inFlight[task.kind] -= 1;
    const hostHung = this.hosts.of(task.host).timedOut;
    this.webhooks.end(task.webhookId, verdict.webhook);
    const counted = this.#probes.get(task);
    if (counted === false) this.hosts.learn(task.host, verdict.host);
    else this.hosts.end(task.host, verdict.host);
    this.#probes.delete(task);
    if (hostHung && !this.hosts.of(task.host).timedOut) this.#refreshWebhooks(task.host);
    this.#refresh(task);
  }

  /** Takes the waiting tasks that `wanted` names out. */
  remove(wanted: (task: T) => boolean): T[] {
    const removed: T[] = [];
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      for (const queue of [...lane.webhooks.values()]) {
        const kept: T[] = [];
        for (const task of queue.tasks.slice(queue.first)) (wanted(task) ? removed : kept).push(task);
        const gone = queue.tasks.length - queue.first - kept.length;
        lane.waiting -= gone;
        queue.host.waiting -= gone;
        queue.tasks = kept;
        queue.first = 0;
        if (kept.length === 0) this.#forget(lane, queue);
      }
    }
    return removed;
  }

  #addQueue(lane: Lane<T>, { webhookId, host: name }: T): WebhookQueue<T> {
    let host = lane.hosts.get(name);
    if (!host) {
      host = { host: name, webhooks: new Map(), waiting: 0, ready: new LeastLoaded() };
      lane.hosts.set(name, host);
    }
    const queue: WebhookQueue<T> = { webhookId, host, tasks: [], first: 0 };
    lane.webhooks.set(webhookId, queue);
    host.webhooks.set(webhookId, queue);
    this.#makeReady(lane, queue);
    return queue;
  }

  #take(kind: Kind): T | undefined {
    const lane = this.#lanes[kind];
    return this.#takeHanging(lane) ?? this.#takeReady(lane) ?? this.#takeHanging(lane);
  }

  #takeHanging(lane: Lane<T>): T | undefined {
    if (lane.hanging.size === 0 || !this.#mayProbe()) return undefined;
    for (const hanging of lane.hanging) {
      lane.hanging.delete(hanging);
      const task =
        "webhookId" in hanging ? this.#probeWebhook(lane, hanging) : this.#probeHost(lane, hanging);
      if (task) return task;
    }
    return undefined;
  }

  #probeWebhook(lane: Lane<T>, queue: WebhookQueue<T>): T | undefined {
    const isHanging = this.webhooks.of(queue.webhookId).timedOut && !this.hosts.of(queue.host.host).timedOut;
    if (isHanging && this.webhooks.hasRoom(queue.webhookId)) return this.#start(lane, queue, false);
    this.#makeReady(lane, queue);
    return undefined;
  }

  #probeHost(lane: Lane<T>, host: HostQueue<T>): T | undefined {
    if (!this.hosts.of(host.host).timedOut) {
      this.#makeHostReady(lane, host);
      return undefined;
    }
    if (!this.hosts.hasRoom(host.host)) return undefined;
    for (let queue = host.ready.first(); queue; queue = host.ready.first()) {
      if (this.webhooks.hasRoom(queue.webhookId)) return this.#start(lane, queue, true);
      host.ready.delete(queue);
    }
    return undefined;
  }

  #takeReady(lane: Lane<T>): T | undefined {
    for (let host = lane.ready.first(); host; host = lane.ready.first()) {
      if (!this.hosts.hasRoom(host.host)) {
        lane.ready.delete(host);
        continue;
      }
      const queue = host.ready.first();
      if (!queue) {
        lane.ready.delete(host);
      } else if (!this.webhooks.hasRoom(queue.webhookId)) {
        host.ready.delete(queue);
      } else if (this.webhooks.of(queue.webhookId).timedOut) {
        host.ready.delete(queue);
        lane.hanging.add(queue);
      } else {
        return this.#start(lane, queue, undefined);
      }
    }
    return undefined;
  }

  #mayProbe(): boolean {
    return this.#probes.size < Math.max(1, Math.floor(this.budget / PROBE_PART));
  }

  /** @param probe undefined for a task that is none; whether it counts in its host's window */
  #start(lane: Lane<T>, queue: WebhookQueue<T>, probe: boolean | undefined): T {
    const task = queue.tasks[queue.first] as T;
    queue.first += 1;
    if (queue.first > 256 && queue.first * 2 > queue.tasks.length) {
      queue.tasks.splice(0, queue.first);
      queue.first = 0;
    }
    lane.waiting -= 1;
    queue.host.waiting -= 1;
    this.#inFlight[task.kind] += 1;
    this.webhooks.start(task.webhookId);
    if (probe !== undefined) this.#probes.set(task, probe);
    if (probe !== false) this.hosts.start(task.host);
    if (queue.first === queue.tasks.length) this.#forget(lane, queue);
    this.#refresh(task);
    return task;
  }

  /** Brings what waits for the task's webhook and host up to date with what is in flight to them. */
  #refresh({ webhookId, host: name }: T): void {
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const queue = lane.webhooks.get(webhookId);
      if (queue) this.#makeReady(lane, queue);
      const host = lane.hosts.get(name);
      if (host) this.#makeHostReady(lane, host);
    }
  }

  #makeReady(lane: Lane<T>, queue: WebhookQueue<T>): void {
    const webhook = this.webhooks.of(queue.webhookId);
    if (webhook.inFlight >= webhook.allowed) return;
    if (webhook.timedOut && !this.hosts.of(queue.host.host).timedOut) {
      queue.host.ready.delete(queue);
      lane.hanging.add(queue);
      return;
    }
    lane.hanging.delete(queue);
    queue.host.ready.set(queue, webhook.inFlight);
    this.#makeHostReady(lane, queue.host);
  }

  #makeHostReady(lane: Lane<T>, host: HostQueue<T>): void {
    const { inFlight, allowed, timedOut } = this.hosts.of(host.host);
    if (inFlight >= allowed || host.ready.size === 0) return;
    if (timedOut) {
      lane.ready.delete(host);
      lane.hanging.add(host);
    } else {
      lane.hanging.delete(host);
      lane.ready.set(host, inFlight);
    }
  }

  /** A host answers again: those of its webhooks that hang need no room in its window any more. */
  #refreshWebhooks(name: string): void {
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const queues = lane.hosts.get(name)?.webhooks.values() ?? [];
      for (const queue of queues) this.#makeReady(lane, queue);
    }
  }

  #forget(lane: Lane<T>, queue: WebhookQueue<T>): void {
    const { host } = queue;
    lane.webhooks.delete(queue.webhookId);
    lane.hanging.delete(queue);
    host.webhooks.delete(queue.webhookId);
    host.ready.delete(queue);
    if (host.webhooks.size > 0) return;
    lane.hosts.delete(host.host);
    lane.ready.delete(host);
    lane.hanging.delete(host);
  }
}
