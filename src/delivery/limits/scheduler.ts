import { LeastLoaded } from "./least-loaded.ts";
import { type Evidence, Windows } from "./windows.ts";

/** First attempts and retries have separate queues and separate shares of the budget. */
export type Kind = "first" | "retry";

/** Names the window of a webhook: its id, or that of the endpoint with whose webhooks it shares the window. */
export type WindowKey = bigint | string;

/** An attempt to send. */
export interface Task {
  readonly kind: Kind;
  readonly webhookId: bigint;
  /** Webhooks with the same key have the same host. */
  readonly window: WindowKey;
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
  window: WindowKey;
  host: string;
  waiting: number;
}

/** The divisor of the budget and of the maximum that gives the share of retries while first attempts are queued: one fifth. */
const RETRY_BUDGET_DIVISOR = 5;
/** The divisor of the budget that gives the share of probes: one quarter. */
const PROBE_BUDGET_DIVISOR = 4;

/** The part of the maximum from which it delays tasks of hosts whose requests are exempt from the budget. */
const NEAR_MAX = 7 / 8;

const NONE: readonly never[] = [];

/** The queued tasks of one webhook and kind, oldest first. */
interface WebhookQueue<T> {
  readonly webhookId: bigint;
  tasks: T[];
  /** The index of the first task that has not been taken. */
  first: number;
}

/** The queued tasks of one window and kind, all for one host: those of a webhook, or of the webhooks of an endpoint. */
interface WindowQueue<T> {
  readonly window: WindowKey;
  readonly host: HostQueue<T>;
  /** In the order of their turns. */
  readonly webhooks: Map<bigint, WebhookQueue<T>>;
}

/** The windows of one host with queued tasks of a kind. */
interface HostQueue<T> {
  readonly host: string;
  readonly windows: Map<WindowKey, WindowQueue<T>>;
  /** The number of queued tasks of all these windows. */
  waiting: number;
  /** Windows that may have room, by requests in flight. */
  readonly ready: LeastLoaded<WindowQueue<T>>;
}

/** All queued tasks of one kind. */
class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly windows = new Map<WindowKey, WindowQueue<T>>();
  /** Hosts that may have room in their window, by requests in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Candidates for a probe, in turn: hosts whose last attempt timed out, and such windows of other hosts. */
  readonly hanging = new Set<WindowQueue<T> | HostQueue<T>>();
  waiting = 0;
}

/**
 * Decides which task to send next. A pure data structure without I/O or clock.
 *
 * A task starts when the budget, its host's window and its webhook's window have room. The next slot goes to the host
 * with the fewest requests in flight, and within it to the window with the fewest (max-min fairness), so that a few
 * busy or slow receivers leave room for all others. The webhooks of an endpoint share a window, and take turns in it. A
 * receiver whose last attempt timed out gets one request at a time, a probe. All probes together use at most a quarter of
 * the budget, and of the maximum.
 *
 * The budget holds requests that keep the process busy. One that has waited long for its response does not, and leaves it
 * (`exemptSlow`), so that slow receivers do not take the slots of fast ones. It still counts toward the maximum.
 */
export class Scheduler<T extends Task> {
  /** Of webhooks, and of endpoints with several webhooks. */
  readonly webhooks: Windows<WindowKey>;
  readonly hosts: Windows<string>;
  /** The maximum number of requests in flight that are not exempt. May be changed at any time. */
  budget: number;
  readonly #max: number;
  readonly #lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  readonly #inFlight: Record<Kind, number> = { first: 0, retry: 0 };
  /** Requests in flight that are not exempt. */
  readonly #counted: Record<Kind, number> = { first: 0, retry: 0 };
  #countedProbes = 0;
  /** The number of exempt requests in flight, by host. */
  readonly #exempt = new Map<string, number>();
  /** Tasks that are not exempt, by whether they started since the last call of `exemptSlow` or before. */
  #recent = new Set<T>();
  #older = new Set<T>();
  #turn = 0;
  /**
   * Probes in flight, and whether each counts in its host's window. A probe of a webhook that hangs does not count:
   * it could occupy the only slot of other webhooks on the host.
   */
  readonly #probes = new Map<T, boolean>();

  /** @param limits the maximum of requests in flight: that are not exempt, in total, per host and per webhook */
  constructor(limits: { budget: number; max: number; perHost: number; perWebhook: number }) {
    this.budget = limits.budget;
    this.#max = limits.max;
    this.hosts = new Windows(limits.perHost);
    this.webhooks = new Windows(limits.perWebhook);
  }

  get inFlight(): number {
    return this.#inFlight.first + this.#inFlight.retry;
  }

  /** Whether the budget delays further tasks. */
  get isBudgetUsed(): boolean {
    return this.#counted.first + this.#counted.retry >= this.budget;
  }

  /** The number of queued tasks of a kind. */
  waiting(kind: Kind): number {
    return this.#lanes[kind].waiting;
  }

  /** The number of queued tasks of a kind and host, over all of its webhooks. */
  waitingForHost(kind: Kind, host: string): number {
    return this.#lanes[kind].hosts.get(host)?.waiting ?? 0;
  }

  /** The number of queued tasks of a webhook and kind. */
  waitingOf({ kind, window, webhookId }: Pick<Task, "kind" | "window" | "webhookId">): number {
    const queue = this.#lanes[kind].windows.get(window)?.webhooks.get(webhookId);
    return queue ? queue.tasks.length - queue.first : 0;
  }

  /** The webhooks with queued tasks of a kind, and the number of these tasks. */
  *queues(kind: Kind): Iterable<WaitingWebhook> {
    for (const { window, host, webhooks } of this.#lanes[kind].windows.values())
      for (const { webhookId, tasks, first } of webhooks.values())
        yield { webhookId, window, host: host.host, waiting: tasks.length - first };
  }

  /** Whether the windows of a webhook and its host have room for more than a probe. */
  hasRoom(window: WindowKey, host: string): boolean {
    return this.webhooks.isOpen(window) && this.hosts.isOpen(host);
  }

  /** Whether the maximum delays queued tasks of a host: it is almost reached, and most requests in flight to the host are exempt. */
  isDelayedByMax(host: string): boolean {
    return (
      this.inFlight >= this.#max * NEAR_MAX &&
      2 * (this.#exempt.get(host) ?? 0) > this.hosts.of(host).inFlight
    );
  }

  /** The queued tasks of a kind that only the budget delays. */
  *sendable(kind: Kind): Iterable<T> {
    for (const { window, host, webhooks } of this.#lanes[kind].windows.values()) {
      if (!this.hasRoom(window, host.host)) continue;
      for (const { tasks, first } of webhooks.values()) yield* tasks.slice(first);
    }
  }

  /** All queued tasks of a kind. */
  *tasks(kind: Kind): Iterable<T> {
    for (const { webhooks } of this.#lanes[kind].windows.values())
      for (const { tasks, first } of webhooks.values()) yield* tasks.slice(first);
  }

  /**
   * Queues a task. Queued tasks of its window for another host, from before the webhooks were moved, are removed.
   *
   * @returns the removed tasks
   */
  push(task: T): readonly T[] {
    const lane = this.#lanes[task.kind];
    const known = lane.windows.get(task.window);
    if (known && known.host.host !== task.host) {
      const removed = this.#empty(lane, known, () => true);
      this.push(task);
      return removed;
    }
    const queue = known ?? this.#addQueue(lane, task);
    const { webhookId } = task;
    const webhook = queue.webhooks.get(webhookId);
    if (webhook) webhook.tasks.push(task);
    else queue.webhooks.set(webhookId, { webhookId, tasks: [task], first: 0 });
    queue.host.waiting += 1;
    lane.waiting += 1;
    return NONE;
  }

  /** Dequeues the next task to start; undefined if none may start. The caller must call `end` for it. */
  next(): T | undefined {
    if (this.isBudgetUsed || this.inFlight >= this.#max) return undefined;
    return this.#isRetrysTurn()
      ? (this.#take("retry") ?? this.#take("first"))
      : (this.#take("first") ?? this.#take("retry"));
  }

  /** Whether retries use less than their share. With a budget below RETRY_BUDGET_DIVISOR, they get every fifth turn. */
  #isRetrysTurn(): boolean {
    const shareOf = (requests: number) => Math.floor(requests / RETRY_BUDGET_DIVISOR);
    if (this.budget >= RETRY_BUDGET_DIVISOR)
      return this.#counted.retry < shareOf(this.budget) && this.#inFlight.retry < shareOf(this.#max);
    this.#turn = (this.#turn + 1) % RETRY_BUDGET_DIVISOR;
    return this.#turn === 0;
  }

  /** Exempts requests that have been in flight since before the previous call: they no longer count in the budget. */
  exemptSlow(): void {
    for (const task of this.#older) {
      this.#uncount(task);
      this.#exempt.set(task.host, (this.#exempt.get(task.host) ?? 0) + 1);
    }
    this.#older = this.#recent;
    this.#recent = new Set();
  }

  /** Records the end of a task that `next` returned. */
  end(task: T, verdict: Verdict): void {
    this.#inFlight[task.kind] -= 1;
    if (this.#recent.delete(task) || this.#older.delete(task)) this.#uncount(task);
    else this.#forgetExempt(task.host);
    const hostHung = this.hosts.of(task.host).timedOut;
    this.webhooks.end(task.window, verdict.webhook);
    const counted = this.#probes.get(task);
    if (counted === false) this.hosts.learn(task.host, verdict.host);
    else this.hosts.end(task.host, verdict.host);
    this.#probes.delete(task);
    if (hostHung && !this.hosts.of(task.host).timedOut) this.#refreshWindows(task.host);
    this.#refresh(task);
  }

  #forgetExempt(host: string): void {
    const others = (this.#exempt.get(host) ?? 0) - 1;
    if (others > 0) this.#exempt.set(host, others);
    else this.#exempt.delete(host);
  }

  #uncount(task: T): void {
    this.#counted[task.kind] -= 1;
    if (this.#probes.has(task)) this.#countedProbes -= 1;
  }

  /** Removes and returns the queued tasks for which `wanted` is true, of one host or of all. */
  remove(wanted: (task: T) => boolean, host?: string): T[] {
    return [this.#lanes.first, this.#lanes.retry].flatMap((lane) => {
      const { windows } = host === undefined ? lane : (lane.hosts.get(host) ?? { windows: new Map() });
      return [...windows.values()].flatMap((queue) => this.#empty(lane, queue, wanted));
    });
  }

  #empty(lane: Lane<T>, queue: WindowQueue<T>, wanted: (task: T) => boolean): T[] {
    const removed: T[] = [];
    for (const webhook of queue.webhooks.values()) {
      const kept: T[] = [];
      for (const task of webhook.tasks.slice(webhook.first)) (wanted(task) ? removed : kept).push(task);
      webhook.tasks = kept;
      webhook.first = 0;
      if (kept.length === 0) queue.webhooks.delete(webhook.webhookId);
    }
    lane.waiting -= removed.length;
    queue.host.waiting -= removed.length;
    if (queue.webhooks.size === 0) this.#forget(lane, queue);
    return removed;
  }

  #addQueue(lane: Lane<T>, { window, host: name }: T): WindowQueue<T> {
    let host = lane.hosts.get(name);
    if (!host) {
      host = { host: name, windows: new Map(), waiting: 0, ready: new LeastLoaded() };
      lane.hosts.set(name, host);
    }
    const queue: WindowQueue<T> = { window, host, webhooks: new Map() };
    lane.windows.set(window, queue);
    host.windows.set(window, queue);
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
      const task = "window" in hanging ? this.#probeWindow(lane, hanging) : this.#probeHost(lane, hanging);
      if (task) return task;
    }
    return undefined;
  }

  #probeWindow(lane: Lane<T>, queue: WindowQueue<T>): T | undefined {
    const isHanging = this.webhooks.of(queue.window).timedOut && !this.hosts.of(queue.host.host).timedOut;
    if (isHanging && this.webhooks.hasRoom(queue.window)) return this.#start(lane, queue, false);
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
      if (this.webhooks.hasRoom(queue.window)) return this.#start(lane, queue, true);
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
      } else if (!this.webhooks.hasRoom(queue.window)) {
        host.ready.delete(queue);
      } else if (this.webhooks.of(queue.window).timedOut) {
        host.ready.delete(queue);
        lane.hanging.add(queue);
      } else {
        return this.#start(lane, queue, undefined);
      }
    }
    return undefined;
  }

  #mayProbe(): boolean {
    const partOf = (requests: number) => Math.max(1, Math.floor(requests / PROBE_BUDGET_DIVISOR));
    return this.#countedProbes < partOf(this.budget) && this.#probes.size < partOf(this.#max);
  }

  /** @param probe undefined if the task is not a probe; otherwise whether it counts in its host's window */
  #start(lane: Lane<T>, queue: WindowQueue<T>, probe: boolean | undefined): T {
    const task = this.#dequeue(queue);
    lane.waiting -= 1;
    queue.host.waiting -= 1;
    this.#inFlight[task.kind] += 1;
    this.#counted[task.kind] += 1;
    this.#recent.add(task);
    this.webhooks.start(task.window);
    if (probe !== undefined) {
      this.#probes.set(task, probe);
      this.#countedProbes += 1;
    }
    if (probe !== false) this.hosts.start(task.host);
    if (queue.webhooks.size === 0) this.#forget(lane, queue);
    this.#refresh(task);
    return task;
  }

  /** Takes the oldest task of the webhook whose turn it is. */
  #dequeue({ webhooks }: WindowQueue<T>): T {
    const webhook = webhooks.values().next().value as WebhookQueue<T>;
    const task = webhook.tasks[webhook.first] as T;
    webhook.first += 1;
    if (webhook.first === webhook.tasks.length) {
      webhooks.delete(task.webhookId);
      return task;
    }
    if (webhook.first > 256 && webhook.first * 2 > webhook.tasks.length) {
      webhook.tasks.splice(0, webhook.first);
      webhook.first = 0;
    }
    if (webhooks.size > 1) {
      webhooks.delete(task.webhookId);
      webhooks.set(task.webhookId, webhook);
    }
    return task;
  }

  /** Updates the ready queues of the task's window and host after a change of requests in flight. */
  #refresh({ window, host: name }: T): void {
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const queue = lane.windows.get(window);
      if (queue) this.#makeReady(lane, queue);
      const host = lane.hosts.get(name);
      if (host) this.#makeHostReady(lane, host);
    }
  }

  #makeReady(lane: Lane<T>, queue: WindowQueue<T>): void {
    const window = this.webhooks.of(queue.window);
    if (window.inFlight >= window.allowed) return;
    if (window.timedOut && !this.hosts.of(queue.host.host).timedOut) {
      queue.host.ready.delete(queue);
      lane.hanging.add(queue);
      return;
    }
    lane.hanging.delete(queue);
    queue.host.ready.set(queue, window.inFlight);
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
  #refreshWindows(name: string): void {
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const queues = lane.hosts.get(name)?.windows.values() ?? [];
      for (const queue of queues) this.#makeReady(lane, queue);
    }
  }

  #forget(lane: Lane<T>, queue: WindowQueue<T>): void {
    const { host } = queue;
    lane.windows.delete(queue.window);
    lane.hanging.delete(queue);
    host.windows.delete(queue.window);
    host.ready.delete(queue);
    if (host.windows.size > 0) return;
    lane.hosts.delete(host.host);
    lane.ready.delete(host);
    lane.hanging.delete(host);
  }
}
