import { LeastLoaded } from "./least-loaded.ts";
import { MIN_SHARED_BUDGET, type Pace, RequestsInFlight } from "./requests-in-flight.ts";
import type { Kind, Task, WindowKey } from "./task.ts";
import { type Evidence, Windows } from "./windows.ts";

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
  /** Hosts of each pace that may have room in their window, by requests in flight. */
  readonly ready: Record<Pace, LeastLoaded<HostQueue<T>>> = {
    usual: new LeastLoaded(),
    slow: new LeastLoaded(),
  };
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
 * receiver whose last attempt timed out gets one request at a time, a probe. Retries and probes have a share of the limits each.
 * A host is slow from a request that becomes exempt until another ends that is not.
 */
export class Scheduler<T extends Task> {
  /** Of webhooks, and of endpoints with several webhooks. */
  readonly webhooks: Windows<WindowKey>;
  readonly hosts: Windows<string>;
  readonly #requests: RequestsInFlight<T>;
  readonly #lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  #turn = 0;
  /**
   * Probes in flight, and whether each counts in its host's window. A probe of a webhook that hangs does not count:
   * it could occupy the only slot of other webhooks on the host.
   */
  readonly #probes = new Map<T, boolean>();

  /** @param limits the maximum of requests in flight: that are not exempt, in total, per host and per webhook */
  constructor(limits: { budget: number; max: number; perHost: number; perWebhook: number }) {
    this.#requests = new RequestsInFlight(limits);
    this.hosts = new Windows(limits.perHost);
    this.webhooks = new Windows(limits.perWebhook);
  }

  set budget(budget: number) {
    this.#requests.budget = budget;
  }

  get inFlight(): number {
    return this.#requests.size;
  }

  /** Whether the budget delays further tasks. */
  get isBudgetUsed(): boolean {
    return this.#requests.isBudgetUsed;
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

  /** Whether a webhook's tasks wait for nothing but the limits of hosts that are not slow. */
  isSendable(window: WindowKey, host: string): boolean {
    return this.hasRoom(window, host) && (this.#paceOf(host) === "usual" || this.#requests.hasRoom("slow"));
  }

  #paceOf(host: string): Pace {
    return this.hosts.of(host).isSlow ? "slow" : "usual";
  }

  /** The queued tasks of a kind that are sendable. */
  *sendable(kind: Kind): Iterable<T> {
    for (const { window, host, webhooks } of this.#lanes[kind].windows.values()) {
      if (!this.isSendable(window, host.host)) continue;
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
    return this.#nextOf("usual") ?? this.#nextOf("slow");
  }

  #nextOf(pace: Pace): T | undefined {
    if (!this.#requests.hasRoom(pace)) return undefined;
    const { first, retry } = this.#lanes;
    return this.#isRetrysTurn(pace)
      ? (this.#take(retry, pace) ?? this.#take(first, pace))
      : (this.#take(first, pace) ?? this.#take(retry, pace));
  }

  /** Whether retries use less than their share. With a budget too small for one, they get as small a part of the turns. */
  #isRetrysTurn(pace: Pace): boolean {
    if (this.#requests.budget >= MIN_SHARED_BUDGET) return this.#requests.isBelowShare("retry", pace);
    this.#turn = (this.#turn + 1) % MIN_SHARED_BUDGET;
    return this.#turn === 0;
  }

  /** Exempts requests that have been in flight since before the previous call: they no longer count in the budget. */
  exemptSlow(): void {
    for (const { host } of this.#requests.exemptSlow()) this.#setSlow(host, true);
  }

  /** Records the end of a task that `next` returned. */
  end(task: T, verdict: Verdict): void {
    const wasExempt = this.#requests.end(task);
    const wasAnswered = verdict.webhook !== "none" || verdict.host !== "none";
    if (!wasExempt && wasAnswered) this.#setSlow(task.host, false);
    const hostHung = this.hosts.of(task.host).timedOut;
    this.webhooks.end(task.window, verdict.webhook);
    const counted = this.#probes.get(task);
    if (counted === false) this.hosts.learn(task.host, verdict.host);
    else this.hosts.end(task.host, verdict.host);
    this.#probes.delete(task);
    if (hostHung && !this.hosts.of(task.host).timedOut) this.#refreshWindows(task.host);
    this.#refresh(task);
  }

  /**
   * Occupies a slot of each window that the failure of an ended task has left at one, without a request.
   *
   * @returns frees the slots; undefined if there are none
   */
  pause(task: T, { webhook, host }: Verdict): (() => void) | undefined {
    const ends: (() => void)[] = [];
    if (webhook === "failure" && this.webhooks.of(task.window).allowed === 1) {
      this.webhooks.start(task.window);
      ends.push(() => this.webhooks.end(task.window, "none"));
    }
    if (host === "failure" && this.hosts.of(task.host).allowed === 1) {
      this.hosts.start(task.host);
      ends.push(() => this.hosts.end(task.host, "none"));
    }
    if (ends.length === 0) return undefined;
    return () => {
      for (const end of ends) end();
      this.#refresh(task);
    };
  }

  #setSlow(name: string, isSlow: boolean): void {
    if (!this.hosts.setSlow(name, isSlow)) return;
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const host = lane.hosts.get(name);
      if (!host) continue;
      unready(lane, host);
      this.#makeHostReady(lane, host);
    }
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

  #take(lane: Lane<T>, pace: Pace): T | undefined {
    if (pace === "slow") return this.#takeReady(lane, pace);
    return this.#takeHanging(lane) ?? this.#takeReady(lane, pace) ?? this.#takeHanging(lane);
  }

  #takeHanging(lane: Lane<T>): T | undefined {
    if (lane.hanging.size === 0 || !this.#requests.isBelowShare("probe", "usual")) return undefined;
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

  #takeReady(lane: Lane<T>, pace: Pace): T | undefined {
    const ready = lane.ready[pace];
    for (let host = ready.first(); host; host = ready.first()) {
      const queue = host.ready.first();
      if (!queue || !this.hosts.hasRoom(host.host)) {
        ready.delete(host);
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

  /** @param probe undefined if the task is not a probe; otherwise whether it counts in its host's window */
  #start(lane: Lane<T>, queue: WindowQueue<T>, probe: boolean | undefined): T {
    const task = this.#dequeue(queue);
    lane.waiting -= 1;
    queue.host.waiting -= 1;
    const isProbe = probe !== undefined;
    this.#requests.start(task, { isProbe, pace: isProbe ? "usual" : this.#paceOf(task.host) });
    this.webhooks.start(task.window);
    if (probe !== undefined) this.#probes.set(task, probe);
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
    const window = this.hosts.of(host.host);
    if (window.inFlight >= window.allowed || host.ready.size === 0) return;
    if (window.timedOut) {
      unready(lane, host);
      lane.hanging.add(host);
    } else {
      lane.hanging.delete(host);
      lane.ready[this.#paceOf(host.host)].set(host, window.inFlight);
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
    unready(lane, host);
    lane.hanging.delete(host);
  }
}

function unready<T extends Task>({ ready }: Lane<T>, host: HostQueue<T>): void {
  ready.slow.delete(host);
  ready.usual.delete(host);
}
