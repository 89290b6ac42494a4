import { type HostQueue, Lane, type WindowQueue } from "./lane.ts";
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

/** The part of the maximum for requests to receivers that hang. */
const PROBES = 1 / 4;
/** The part of the requests in flight that are retries while first attempts wait, too. */
const RETRIES = 1 / 8;
/** The smallest maximum of which each part is at least one request. Of a smaller one, retries get that part of the turns. */
const MIN_SHARED = 8;

/**
 * Decides which task to send next. A pure data structure without I/O or clock.
 *
 * A task starts when its host's window and its webhook's window have room. The next start goes to the host with the fewest requests
 * in flight, and within it to the window with the fewest (max-min fairness), so that a few busy or slow receivers leave room
 * for all others. The webhooks of an endpoint share a window, and take turns in it. A receiver whose last attempt timed out gets one
 * request at a time, a probe; so does one that fails, if `mayFail` allows it.
 */
export class Scheduler<T extends Task> {
  /** Of webhooks, and of endpoints with several webhooks. */
  readonly webhooks: Windows<WindowKey>;
  readonly hosts: Windows<string>;
  readonly #max: number;
  readonly #mayFail: () => boolean;
  readonly #lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  #inFlight = 0;
  #retries = 0;
  #turn = 0;
  /**
   * Requests in flight to hanging receivers, and whether each counts in its host's window. A probe of a webhook that hangs does not
   * count: it could occupy the only slot of other webhooks on the host.
   */
  readonly #probes = new Map<T, boolean>();

  /**
   * @param limits the maximum of requests in flight: in total, per host and per webhook
   * @param mayFail whether a task for a failing receiver may start now
   */
  constructor(limits: { max: number; perHost: number; perWebhook: number }, mayFail: () => boolean) {
    this.#max = limits.max;
    this.#mayFail = mayFail;
    this.hosts = new Windows(limits.perHost);
    this.webhooks = new Windows(limits.perWebhook);
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  /** Whether as many tasks are in flight as allowed in total. */
  get isFull(): boolean {
    return this.#inFlight >= this.#max;
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

  /** Whether the windows of a webhook and its host have room for more than one request at a time. */
  hasRoom(window: WindowKey, host: string): boolean {
    return this.webhooks.isOpen(window) && this.hosts.isOpen(host);
  }

  /** Whether more than the given number of queued tasks of a kind could start: the windows of their receivers have room. */
  hasSendable(kind: Kind, tasks: number): boolean {
    const lane = this.#lanes[kind];
    if (lane.waiting <= tasks) return false;
    let sendable = 0;
    for (const [name, host] of lane.hosts) {
      // Looks at each host once: where many webhooks wait, most hosts have no room.
      if (!this.hosts.isOpen(name)) continue;
      for (const { window, webhooks } of host.windows.values()) {
        if (!this.webhooks.isOpen(window)) continue;
        for (const webhook of webhooks.values()) sendable += webhook.tasks.length - webhook.first;
        if (sendable > tasks) return true;
      }
    }
    return false;
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
    if (this.isFull) return undefined;
    const { first, retry } = this.#lanes;
    return this.#isRetrysTurn()
      ? (this.#take(retry) ?? this.#take(first))
      : (this.#take(first) ?? this.#take(retry));
  }

  #isRetrysTurn(): boolean {
    if (this.#max >= MIN_SHARED) return this.#retries < Math.max(1, Math.floor(this.#inFlight * RETRIES));
    this.#turn = (this.#turn + 1) % MIN_SHARED;
    return this.#turn === 0;
  }

  /** Records the end of a task that `next` returned. */
  end(task: T, verdict: Verdict): void {
    this.#inFlight -= 1;
    if (task.kind === "retry") this.#retries -= 1;
    const hostHung = this.hosts.of(task.host).timedOut;
    this.webhooks.end(task.window, verdict.webhook);
    const counted = this.#probes.get(task);
    if (counted === false) this.hosts.learn(task.host, verdict.host);
    else this.hosts.end(task.host, verdict.host);
    this.#probes.delete(task);
    if (hostHung !== this.hosts.of(task.host).timedOut) this.#refreshWindows(task.host);
    this.#refresh(task);
  }

  /**
   * Occupies a slot of each window that the failure of an ended task has left at one, without a request.
   *
   * @returns frees the slots; undefined if there are none
   */
  pause(task: T, { webhook, host }: Verdict): (() => void) | undefined {
    const frees = [
      ...(webhook === "failure" ? pausedWindow(this.webhooks, task.window) : []),
      ...(host === "failure" ? pausedWindow(this.hosts, task.host) : []),
    ];
    if (frees.length === 0) return undefined;
    return () => {
      for (const free of frees) free();
      this.#refresh(task);
    };
  }

  /** Whether the last attempts to the task's webhook or host failed, so that one request at a time is sent. */
  isFailing({ window, host }: T): boolean {
    return this.webhooks.of(window).isFailing || this.hosts.of(host).isFailing;
  }

  /** Removes and returns the queued tasks for which `wanted` is true, of one host or of all. */
  remove(wanted: (task: T) => boolean, host?: string): T[] {
    return [this.#lanes.first, this.#lanes.retry].flatMap((lane) => {
      const { windows } = host === undefined ? lane : (lane.hosts.get(host) ?? { windows: new Map() });
      return [...windows.values()].flatMap((queue) => lane.remove(queue, wanted));
    });
  }

  #take(lane: Lane<T>): T | undefined {
    return (
      this.#takeHanging(lane) ?? this.#takeParked(lane) ?? this.#takeReady(lane) ?? this.#takeHanging(lane)
    );
  }

  #takeHanging(lane: Lane<T>): T | undefined {
    if (this.#probes.size >= Math.max(1, Math.floor(this.#max * PROBES))) return undefined;
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

  /** Failing receivers that had to wait for `mayFail`, in turn. */
  #takeParked(lane: Lane<T>): T | undefined {
    for (const parked of lane.parked) {
      if (!this.#mayFail()) return undefined;
      lane.parked.delete(parked);
      if ("window" in parked) this.#makeReady(lane, parked);
      const host = "window" in parked ? parked.host : parked;
      const queue = "window" in parked ? parked : host.ready.first();
      const isReady = queue && host.ready.has(queue) && !this.#hasTimedOut(queue);
      if (isReady && this.hosts.hasRoom(host.host) && this.webhooks.hasRoom(queue.window))
        return this.#start(lane, queue);
      this.#makeHostReady(lane, host);
    }
    return undefined;
  }

  #hasTimedOut({ window, host }: WindowQueue<T>): boolean {
    return this.webhooks.of(window).timedOut || this.hosts.of(host.host).timedOut;
  }

  #takeReady(lane: Lane<T>): T | undefined {
    const { ready } = lane;
    for (let host = ready.first(); host; host = ready.first()) {
      const queue = host.ready.first();
      if (!queue || !this.hosts.hasRoom(host.host)) {
        ready.delete(host);
      } else if (!this.webhooks.hasRoom(queue.window)) {
        host.ready.delete(queue);
      } else if (this.webhooks.of(queue.window).timedOut) {
        host.ready.delete(queue);
        lane.hanging.add(queue);
      } else if (this.hosts.of(host.host).isFailing && !this.#mayFail()) {
        ready.delete(host);
        lane.parked.add(host);
      } else if (this.webhooks.of(queue.window).isFailing && !this.#mayFail()) {
        host.ready.delete(queue);
        lane.parked.add(queue);
      } else {
        return this.#start(lane, queue);
      }
    }
    return undefined;
  }

  /** @param probe undefined if the task is not a probe; otherwise whether it counts in its host's window */
  #start(lane: Lane<T>, queue: WindowQueue<T>, probe?: boolean): T {
    const task = lane.take(queue);
    this.#inFlight += 1;
    if (task.kind === "retry") this.#retries += 1;
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
    lane.parked.delete(queue);
    queue.host.ready.set(queue, window.inFlight);
    this.#makeHostReady(lane, queue.host);
  }

  #makeHostReady(lane: Lane<T>, host: HostQueue<T>): void {
    const window = this.hosts.of(host.host);
    if (window.inFlight >= window.allowed || host.ready.size === 0) return;
    if (window.timedOut) {
      lane.ready.delete(host);
      lane.hanging.add(host);
    } else {
      lane.hanging.delete(host);
      lane.parked.delete(host);
      lane.ready.set(host, window.inFlight);
    }
  }

  /** After a host begins or ends to hang: its hanging webhooks are probed outside its window only if it does not. */
  #refreshWindows(name: string): void {
    for (const lane of [this.#lanes.first, this.#lanes.retry]) {
      const queues = lane.hosts.get(name)?.windows.values() ?? [];
      for (const queue of queues) this.#makeReady(lane, queue);
    }
  }
}

/** Occupies a slot of a window of one. @returns what frees it; empty if the window is larger */
function pausedWindow<Key>(windows: Windows<Key>, key: Key): (() => void)[] {
  if (windows.of(key).allowed > 1) return [];
  windows.start(key);
  return [() => windows.end(key, "none")];
}
