import { type HostQueue, Lane, type WindowQueue } from "./lane.ts";
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
  waitingOf(task: Pick<Task, "kind" | "window" | "webhookId">): number {
    return this.#lanes[task.kind].waitingOf(task);
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

  #paceOf(host: string): Pace {
    return this.hosts.of(host).isSlow ? "slow" : "usual";
  }

  /** Whether more than the given number of queued tasks of a kind are sendable. */
  hasSendable(kind: Kind, tasks: number): boolean {
    const lane = this.#lanes[kind];
    if (lane.waiting <= tasks) return false;
    let sendable = 0;
    for (const { webhooks } of this.#sendableQueues(lane)) {
      for (const webhook of webhooks.values()) sendable += webhook.tasks.length - webhook.first;
      if (sendable > tasks) return true;
    }
    return false;
  }

  /** Looks at each host once: where many webhooks wait, most hosts have no room. */
  *#sendableQueues(lane: Lane<T>, hosts: Iterable<string> = lane.hosts.keys()): Iterable<WindowQueue<T>> {
    for (const host of hosts) {
      const windows = lane.hosts.get(host)?.windows;
      if (!windows || !this.hosts.isOpen(host)) continue;
      if (this.#paceOf(host) === "slow" && !this.#requests.hasRoom("slow")) continue;
      for (const queue of windows.values()) if (this.webhooks.isOpen(queue.window)) yield queue;
    }
  }

  /** All queued tasks of a kind. */
  *tasks(kind: Kind): Iterable<T> {
    const lane = this.#lanes[kind];
    for (const queue of lane.windows.values()) yield* lane.tasksOf(queue);
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
      const removed = lane.remove(known, () => true);
      this.push(task);
      return removed;
    }
    const queue = known ?? lane.addQueue(task);
    lane.add(queue, task);
    if (!known) this.#makeReady(lane, queue);
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
   * @returns the most failures of such a window since its last success, and frees the slots; undefined if there are none
   */
  pause(task: T, { webhook, host }: Verdict): { failures: number; resume: () => void } | undefined {
    const paused = [
      ...(webhook === "failure" ? [pausedWindow(this.webhooks, task.window)] : []),
      ...(host === "failure" ? [pausedWindow(this.hosts, task.host)] : []),
    ].filter((each) => each !== undefined);
    if (paused.length === 0) return undefined;
    return {
      failures: Math.max(...paused.map(({ failures }) => failures)),
      resume: () => {
        for (const { free } of paused) free();
        this.#refresh(task);
      },
    };
  }

  #setSlow(name: string, isSlow: boolean): void {
    if (!this.hosts.setSlow(name, isSlow)) return;
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const host = lane.hosts.get(name);
      if (!host) continue;
      lane.unready(host);
      this.#makeHostReady(lane, host);
    }
  }

  /** Removes and returns the queued tasks for which `wanted` is true, of one host or of all. */
  remove(wanted: (task: T) => boolean, host?: string): T[] {
    return [this.#lanes.first, this.#lanes.retry].flatMap((lane) => {
      const { windows } = host === undefined ? lane : (lane.hosts.get(host) ?? { windows: new Map() });
      return [...windows.values()].flatMap((queue) => lane.remove(queue, wanted));
    });
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
    const task = lane.take(queue);
    const isProbe = probe !== undefined;
    this.#requests.start(task, { isProbe, pace: isProbe ? "usual" : this.#paceOf(task.host) });
    this.webhooks.start(task.window);
    if (probe !== undefined) this.#probes.set(task, probe);
    if (probe !== false) this.hosts.start(task.host);
    this.#refresh(task);
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
      lane.unready(host);
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
}

/** Occupies a slot of a window of one. Undefined if it is larger. */
function pausedWindow<Key>(windows: Windows<Key>, key: Key) {
  const { allowed, failures } = windows.of(key);
  if (allowed > 1) return undefined;
  windows.start(key);
  return { failures, free: () => windows.end(key, "none") };
}
