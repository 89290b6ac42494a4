import { LeastLoaded } from "./least-loaded.ts";
import type { Task, WindowKey } from "./task.ts";

/** The queued tasks of one window and kind, all for one host: those of a webhook, or of the webhooks of an endpoint. */
export interface WindowQueue<T> {
  readonly window: WindowKey;
  readonly host: HostQueue<T>;
  /** The tasks of each webhook, oldest first; the webhooks in the order of their turns. */
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
  /** Windows with room, by requests in flight. */
  readonly ready: LeastLoaded<WindowQueue<T>>;
  /** Windows that fail, with room, in turn; none if the host itself is in trouble. */
  readonly failing: LeastLoaded<WindowQueue<T>>;
}

/** The queued tasks of one kind, by host, window and webhook. Which of them may start is up to the scheduler. */
export class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly windows = new Map<WindowKey, WindowQueue<T>>();
  /** Hosts with room in their window and in one of a webhook, by requests in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Hosts that hang, and windows that hang of hosts without trouble, with room, in turn. */
  readonly hanging = new LeastLoaded<WindowQueue<T> | HostQueue<T>>();
  /** Hosts that fail or have windows that fail, with room, in turn. */
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
   * Whether more than the given number of queued tasks wait for the thread alone: the windows of their receivers have room, and their
   * hosts have fewer than `free` in flight. Those that wait for their receiver must not prevent claims for other receivers.
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

  /** Adds a task to the queue of its window, which has none for another host. */
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

  /** Takes the oldest task of the webhook whose turn it is. */
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
