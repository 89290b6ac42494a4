import { LeastLoaded } from "./least-loaded.ts";
import { type Evidence, Windows } from "./windows.ts";

/** First attempts and retries have separate queues and separate shares of the budget. */
export type Kind = "first" | "retry";

/** An attempt to send. */
export interface Task {
  readonly kind: Kind;
  readonly webhookId: bigint;
  readonly host: string;
}

/** The effect of an attempt's outcome on the windows of its webhook and host. */
export interface Verdict {
  webhook: Evidence;
  host: Evidence;
}

/** A webhook with queued tasks. */
export interface WaitingWebhook {
  webhookId: bigint;
  host: string;
  waiting: number;
}

/** The divisor of the budget that gives the share of retries while first attempts are queued: one fifth. */
const RETRY_BUDGET_DIVISOR = 5;
/** The divisor of the budget that gives the share of probes: one quarter. */
const PROBE_BUDGET_DIVISOR = 4;

const NONE: readonly never[] = [];

/** The queued tasks of one webhook and kind, oldest first, all for one host. */
interface WebhookQueue<T> {
  readonly webhookId: bigint;
  readonly host: HostQueue<T>;
  tasks: T[];
  /** The index of the first task that has not been taken. */
  first: number;
}

/** The webhooks of one host with queued tasks of a kind. */
interface HostQueue<T> {
  readonly host: string;
  readonly webhooks: Map<bigint, WebhookQueue<T>>;
  /** The number of queued tasks of all these webhooks. */
  waiting: number;
  /** Webhooks that may have room in their window, by requests in flight. */
  readonly ready: LeastLoaded<WebhookQueue<T>>;
}

/** All queued tasks of one kind. */
class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly webhooks = new Map<bigint, WebhookQueue<T>>();
  /** Hosts that may have room in their window, by requests in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Candidates for a probe, in turn: hosts whose last attempt timed out, and such webhooks of other hosts. */
  readonly hanging = new Set<WebhookQueue<T> | HostQueue<T>>();
  waiting = 0;
}

/**
 * Decides which task to send next. A pure data structure without I/O or clock.
 *
 * A task starts when the budget, its host's window and its webhook's window have room. The next slot goes to the host
 * with the fewest requests in flight, and within it to the webhook with the fewest (max-min fairness), so that a few
 * busy or slow receivers leave room for all others. A receiver whose last attempt timed out gets one request at a
 * time, a probe. All probes together use at most a quarter of the budget.
 */
export class Scheduler<T extends Task> {
  readonly webhooks: Windows<bigint>;
  readonly hosts: Windows<string>;
  /** The maximum number of requests in flight. May be changed at any time. */
  budget: number;
  readonly #lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  readonly #inFlight: Record<Kind, number> = { first: 0, retry: 0 };
  #turn = 0;
  /**
   * Probes in flight, and whether each counts in its host's window. A probe of a webhook that hangs does not count:
   * it could occupy the only slot of other webhooks on the host.
   */
  readonly #probes = new Map<T, boolean>();

  /** @param limits the maximum of requests in flight in total, per host and per webhook */
  constructor(limits: { budget: number; perHost: number; perWebhook: number }) {
    this.budget = limits.budget;
    this.hosts = new Windows(limits.perHost);
    this.webhooks = new Windows(limits.perWebhook);
  }

  get inFlight(): number {
    return this.#inFlight.first + this.#inFlight.retry;
  }

  /** The number of queued tasks of a kind. */
  waiting(kind: Kind): number {
    return this.#lanes[kind].waiting;
  }

  /** The number of queued tasks of a host, over all of its webhooks. */
  waitingForHost(host: string): number {
    return (
      (this.#lanes.first.hosts.get(host)?.waiting ?? 0) + (this.#lanes.retry.hosts.get(host)?.waiting ?? 0)
    );
  }

  /** The webhooks with queued tasks of a kind, and the number of these tasks. */
  *queues(kind: Kind): Iterable<WaitingWebhook> {
    for (const { webhookId, host, tasks, first } of this.#lanes[kind].webhooks.values())
      yield { webhookId, host: host.host, waiting: tasks.length - first };
  }

  /** Whether the windows of a webhook and its host have room for more than a probe. */
  hasRoom(webhookId: bigint, host: string): boolean {
    return this.webhooks.isOpen(webhookId) && this.hosts.isOpen(host);
  }

  /** All queued tasks of a kind. */
  *tasks(kind: Kind): Iterable<T> {
    for (const { tasks, first } of this.#lanes[kind].webhooks.values()) yield* tasks.slice(first);
  }

  /**
   * Queues a task. Queued tasks of its webhook for another host, from before the webhook was moved, are removed.
   *
   * @returns the removed tasks
   */
  push(task: T): readonly T[] {
    const lane = this.#lanes[task.kind];
    const known = lane.webhooks.get(task.webhookId);
    if (known && known.host.host !== task.host) {
      const removed = this.#empty(lane, known, () => true);
      this.push(task);
      return removed;
    }
    const queue = known ?? this.#addQueue(lane, task);
    queue.tasks.push(task);
    queue.host.waiting += 1;
    lane.waiting += 1;
    return NONE;
  }

  /** Dequeues the next task to start; undefined if none may start. The caller must call `end` for it. */
  next(): T | undefined {
    if (this.inFlight >= this.budget) return undefined;
    return this.#isRetrysTurn()
      ? (this.#take("retry") ?? this.#take("first"))
      : (this.#take("first") ?? this.#take("retry"));
  }

  /** Whether retries use less than their share. With a budget below RETRY_BUDGET_DIVISOR, they get every fifth turn. */
  #isRetrysTurn(): boolean {
    if (this.budget >= RETRY_BUDGET_DIVISOR)
      return this.#inFlight.retry < Math.floor(this.budget / RETRY_BUDGET_DIVISOR);
    this.#turn = (this.#turn + 1) % RETRY_BUDGET_DIVISOR;
    return this.#turn === 0;
  }

  /** Records the end of a task that `next` returned. */
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

  /** Removes and returns the queued tasks for which `wanted` is true. */
  remove(wanted: (task: T) => boolean): T[] {
    return [this.#lanes.first, this.#lanes.retry].flatMap((lane) =>
      [...lane.webhooks.values()].flatMap((queue) => this.#empty(lane, queue, wanted)),
    );
  }

  #empty(lane: Lane<T>, queue: WebhookQueue<T>, wanted: (task: T) => boolean): T[] {
    const [removed, kept]: [T[], T[]] = [[], []];
    for (const task of queue.tasks.slice(queue.first)) (wanted(task) ? removed : kept).push(task);
    lane.waiting -= removed.length;
    queue.host.waiting -= removed.length;
    queue.tasks = kept;
    queue.first = 0;
    if (kept.length === 0) this.#forget(lane, queue);
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
    return this.#probes.size < Math.max(1, Math.floor(this.budget / PROBE_BUDGET_DIVISOR));
  }

  /** @param probe undefined if the task is not a probe; otherwise whether it counts in its host's window */
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

  /** Updates the ready queues of the task's webhook and host after a change of requests in flight. */
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

  /** After a host has recovered: its hanging webhooks are probed outside its window again. */
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
