import { type HostQueue, Lane, type WindowQueue } from "./lane.ts";
import type { Kind, Task, WindowKey } from "./task.ts";
import { type Evidence, Windows } from "./windows.ts";

/** The effect of an attempt's outcome on the windows of its webhook and host. */
export interface Verdict {
  webhook: Evidence;
  host: Evidence;
}

const NONE: readonly never[] = [];

/** The part of the maximum for requests to receivers that hang. */
const HANGING = 1 / 4;
/** The part of the requests in flight that retries get while first attempts are queued, too. */
const RETRIES = 1 / 8;
/** The smallest maximum of which RETRIES is at least one request. With a smaller one, retries come first in one start of eight. */
const MIN_SHARED = 8;

/**
 * Decides which task to send next. A pure data structure without I/O or clock.
 *
 * A task starts when its host's window and its webhook's window have room. The next start goes to the host with the fewest requests
 * in flight, and within it to the window with the fewest (max-min fairness), so that a few busy or slow receivers leave room
 * for all others. The webhooks of an endpoint share a window round robin. Receivers in trouble get one request at a time, round robin, and
 * before all others, because these requests are few. A request to a failing receiver also needs the permission of `mayFail`.
 */
export class Scheduler<T extends Task> {
  /** The windows of webhooks, and of endpoints, whose webhooks share one. */
  readonly webhooks: Windows<WindowKey>;
  readonly hosts: Windows<string>;
  readonly #max: number;
  readonly #mayFail: () => boolean;
  /** The queued tasks. Only the scheduler changes them. */
  readonly lanes: Record<Kind, Lane<T>> = { first: new Lane(), retry: new Lane() };
  /** The number of tasks in flight. */
  inFlight = 0;
  #retries = 0;
  #turn = 0;
  /**
   * Requests in flight to hanging receivers. True if the request takes no slot of its host: a hanging webhook could otherwise occupy the
   * host's only slot.
   */
  readonly #hanging = new Map<T, boolean>();

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

  /** The number of further tasks that may start before the total limit is reached. */
  get free(): number {
    return this.#max - this.inFlight;
  }

  /**
   * Queues a task. If its webhook was moved to another host, removes the queued tasks of its window for the old host.
   *
   * @returns the removed tasks
   */
  push(task: T): readonly T[] {
    const lane = this.lanes[task.kind];
    const known = lane.windows.get(task.window);
    const hasMoved = known && known.host.host !== task.host;
    const removed = hasMoved ? this.#remove(lane, known, () => true) : NONE;
    const queue = lane.add(task);
    if (queue !== known) this.#place(lane, queue);
    return removed;
  }

  /** Dequeues the next task to start; undefined if none may start. The caller must call `end` for it. */
  next(): T | undefined {
    if (this.free <= 0) return undefined;
    const { first, retry } = this.lanes;
    return this.#isRetrysTurn()
      ? (this.#take(retry) ?? this.#take(first))
      : (this.#take(first) ?? this.#take(retry));
  }

  #isRetrysTurn(): boolean {
    if (this.#max >= MIN_SHARED) return this.#retries < Math.max(1, Math.floor(this.inFlight * RETRIES));
    this.#turn = (this.#turn + 1) % MIN_SHARED;
    return this.#turn === 0;
  }

  /** Records the end of a task that `next` returned. @param now as `Windows.end` takes it */
  end(task: T, verdict: Verdict, now?: number): void {
    this.inFlight -= 1;
    if (task.kind === "retry") this.#retries -= 1;
    const wasInTrouble = this.hosts.isInTrouble(task.host);
    this.webhooks.end(task.window, verdict.webhook, false, now);
    this.hosts.end(task.host, verdict.host, this.#hanging.get(task));
    this.#hanging.delete(task);
    this.#refresh(task, wasInTrouble !== this.hosts.isInTrouble(task.host));
  }

  /** Whether the webhook or host of a task fails. */
  isFailing({ window, host }: T): boolean {
    return this.webhooks.of(window).trouble === "fails" || this.hosts.of(host).trouble === "fails";
  }

  /** Removes and returns the queued tasks for which `wanted` is true, of one host or of all. */
  remove(wanted: (task: T) => boolean, host?: string): T[] {
    return [this.lanes.first, this.lanes.retry].flatMap((lane) => {
      const { windows } = host === undefined ? lane : (lane.hosts.get(host) ?? { windows: new Map() });
      return [...windows.values()].flatMap((queue) => this.#remove(lane, queue, wanted));
    });
  }

  #remove(lane: Lane<T>, queue: WindowQueue<T>, wanted: (task: T) => boolean): T[] {
    const removed = lane.remove(queue, wanted);
    this.#placeHost(lane, queue.host);
    return removed;
  }

  #take(lane: Lane<T>): T | undefined {
    return this.#takeHanging(lane) ?? this.#takeFailing(lane) ?? this.#takeUsual(lane);
  }

  #takeHanging(lane: Lane<T>): T | undefined {
    if (this.#hanging.size >= Math.max(1, Math.floor(this.#max * HANGING))) return undefined;
    for (const each of lane.hanging.loads.keys()) {
      const isWindow = "window" in each;
      if (isWindow && !this.hosts.hasRoomApart(each.host.host)) continue;
      const task = this.#start(lane, isWindow ? each : (each.ready.first() as WindowQueue<T>), isWindow);
      this.#hanging.set(task, isWindow);
      return task;
    }
    return undefined;
  }

  #takeFailing(lane: Lane<T>): T | undefined {
    const host = lane.failing.first();
    if (!host || !this.#mayFail()) return undefined;
    // `#start` adds the host again, behind the others.
    lane.failing.set(host, undefined);
    return this.#start(lane, host.failing.first() ?? (host.ready.first() as WindowQueue<T>));
  }

  /** Takes a task of a host that has fewer requests in flight than are free in total, so that slow hosts cannot occupy all requests. */
  #takeUsual(lane: Lane<T>): T | undefined {
    const host = lane.ready.first();
    if (!host || this.hosts.of(host.host).inFlight >= this.free) return undefined;
    return this.#start(lane, host.ready.first() as WindowQueue<T>);
  }

  /** @param isApart whether the task takes no slot of its host */
  #start(lane: Lane<T>, queue: WindowQueue<T>, isApart = false): T {
    const task = lane.take(queue);
    this.inFlight += 1;
    if (task.kind === "retry") this.#retries += 1;
    this.webhooks.start(task.window);
    this.hosts.start(task.host, isApart);
    this.#refresh(task);
    return task;
  }

  /** Places the queues of the task's window and host after a change of either. @param all whether to place all queues of the host */
  #refresh({ window, host: name }: T, all = false): void {
    for (const lane of [this.lanes.first, this.lanes.retry]) {
      const host = lane.hosts.get(name);
      if (!host) continue;
      const queue = host.windows.get(window);
      if (all) for (const each of host.windows.values()) this.#place(lane, each);
      else if (queue) this.#place(lane, queue);
      else this.#placeHost(lane, host);
    }
  }

  /** Puts a queue with room into its host's `ready`; if it is in trouble and its host is not, into `failing` or the lane's `hanging`. */
  #place(lane: Lane<T>, queue: WindowQueue<T>): void {
    const { host } = queue;
    const { inFlight, allowed, trouble } = this.webhooks.of(queue.window);
    const own = this.hosts.isInTrouble(host.host) ? "none" : trouble;
    const place = inFlight < allowed ? own : undefined;
    host.ready.set(queue, place === "none" ? inFlight : undefined);
    host.failing.set(queue, place === "fails" ? 0 : undefined);
    lane.hanging.set(queue, place === "hangs" ? 0 : undefined);
    this.#placeHost(lane, host);
  }

  #placeHost(lane: Lane<T>, host: HostQueue<T>): void {
    const { inFlight, allowed, trouble } = this.hosts.of(host.host);
    const hasRoom = inFlight < allowed;
    const place = hasRoom && host.ready.size > 0 ? trouble : undefined;
    lane.ready.set(host, place === "none" ? inFlight : undefined);
    const fails = place === "fails" || (hasRoom && host.failing.size > 0);
    lane.failing.set(host, fails ? 0 : undefined);
    lane.hanging.set(host, place === "hangs" ? 0 : undefined);
  }
}
