import { LeastLoaded } from "./least-loaded.ts";
import type { Task, WindowKey } from "./task.ts";

/** The queued tasks of one window and kind, all for one host: those of a webhook, or of the webhooks of an endpoint. */
export interface WindowQueue<T> {
  readonly window: WindowKey;
  readonly host: HostQueue<T>;
  /** The tasks of each webhook, oldest first. Webhooks are in round-robin order: the next task is of the first one. */
  readonly webhooks: Map<bigint, T[]>;
  /** The number of queued tasks of all these webhooks. */
  waiting: number;
}

/** The windows of one host with queued tasks of a kind. */
export interface HostQueue<T> {
  readonly host: string;
  readonly windows: Map<WindowKey, WindowQueue<T>>;
  /** The number of queued tasks of all these windows. */
  waiting: number;
  /** Windows with room that are not in trouble, by requests in flight; all windows with room if the host itself is in trouble. */
  readonly ready: LeastLoaded<WindowQueue<T>>;
  /** Windows with room that fail, in round-robin order; none if the host itself is in trouble. */
  readonly failing: LeastLoaded<WindowQueue<T>>;
}

/** The queued tasks of one kind, by host, window and webhook. The scheduler decides which of them start. */
export class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly windows = new Map<WindowKey, WindowQueue<T>>();
  /** Hosts that are not in trouble, with room and a window in `HostQueue.ready`, by requests in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Hosts that hang, and hanging windows of hosts that are not in trouble; those with room, in round-robin order. */
  readonly hanging = new LeastLoaded<WindowQueue<T> | HostQueue<T>>();
  /** Hosts with room that fail or have a window in `HostQueue.failing`, in round-robin order. */
  readonly failing = new LeastLoaded<HostQueue<T>>();
  /** The number of queued tasks. */
  waiting = 0;

  /** The number of queued tasks of a webhook. */
  waitingOf({ window, webhookId }: Task): number {
    return this.windows.get(window)?.webhooks.get(webhookId)?.length ?? 0;
  }

  /** The number of queued tasks for a host, over all of its webhooks. */
  waitingForHost(host: string): number {
    return this.hosts.get(host)?.waiting ?? 0;
  }

  /**
   * Whether more than `tasks` queued tasks are sendable: their host and window are ready, and the host has fewer than `free` requests in
   * flight. Tasks that wait for their receiver do not count, so that they do not prevent claims for other receivers.
   *
   * @param free the free requests of the process. Defaults to no limit
   */
  hasSendable(tasks: number, free = Number.POSITIVE_INFINITY): boolean {
    if (this.waiting <= tasks) return false;
    let sendable = 0;
    for (const [host, inFlight] of this.ready.loads) {
      if (inFlight >= free) continue;
      for (const { waiting } of host.ready.loads.keys()) {
        sendable += waiting;
        if (sendable > tasks) return true;
      }
    }
    return false;
  }

  /** All queued tasks. */
  *tasks(): Iterable<T> {
    for (const { webhooks } of this.windows.values()) for (const tasks of webhooks.values()) yield* tasks;
  }

  /** Adds a task to the queue of its window. The caller must have removed the window's tasks for another host. */
  add(task: T): WindowQueue<T> {
    const queue = this.windows.getOrInsertComputed(task.window, () => this.#newQueue(task));
    queue.webhooks.getOrInsertComputed(task.webhookId, () => []).push(task);
    this.#count(queue, 1);
    return queue;
  }

  #newQueue({ window, host: name }: T): WindowQueue<T> {
    const host = this.hosts.getOrInsertComputed(name, () => ({
      host: name,
      windows: new Map(),
      waiting: 0,
      ready: new LeastLoaded(),
      failing: new LeastLoaded(),
    }));
    const queue: WindowQueue<T> = { window, host, webhooks: new Map(), waiting: 0 };
    host.windows.set(window, queue);
    return queue;
  }

  /** Removes and returns the oldest task of the first webhook, and moves that webhook to the end. */
  take(queue: WindowQueue<T>): T {
    const { webhooks } = queue;
    const tasks = webhooks.values().next().value as T[];
    const task = tasks.shift() as T;
    this.#count(queue, -1);
    if (tasks.length === 0 || webhooks.size > 1) webhooks.delete(task.webhookId);
    if (tasks.length > 0) webhooks.set(task.webhookId, tasks);
    if (webhooks.size === 0) this.#forget(queue);
    return task;
  }

  /** Removes and returns the tasks of a window for which `wanted` is true. */
  remove(queue: WindowQueue<T>, wanted: (task: T) => boolean): T[] {
    const removed: T[] = [];
    for (const [webhookId, tasks] of queue.webhooks) {
      const kept: T[] = [];
      for (const task of tasks) (wanted(task) ? removed : kept).push(task);
      if (kept.length > 0) queue.webhooks.set(webhookId, kept);
      else queue.webhooks.delete(webhookId);
    }
    this.#count(queue, -removed.length);
    if (queue.webhooks.size === 0) this.#forget(queue);
    return removed;
  }

  #count(queue: WindowQueue<T>, added: number): void {
    this.waiting += added;
    queue.waiting += added;
    queue.host.waiting += added;
  }

  #forget(queue: WindowQueue<T>): void {
    const { host } = queue;
    this.windows.delete(queue.window);
    this.hanging.set(queue, undefined);
    host.windows.delete(queue.window);
    host.ready.set(queue, undefined);
    host.failing.set(queue, undefined);
    if (host.windows.size > 0) return;
    this.hosts.delete(host.host);
    this.ready.set(host, undefined);
    this.hanging.set(host, undefined);
    this.failing.set(host, undefined);
  }
}
