import { LeastLoaded } from "./least-loaded.ts";
import type { Task, WindowKey } from "./task.ts";
import type { Window } from "./windows.ts";

/** The queued tasks of one webhook and kind, oldest first. */
interface WebhookQueue<T> {
  readonly webhookId: bigint;
  tasks: T[];
  /** The index of the first task that has not been taken. */
  first: number;
}

/** The queued tasks of one window and kind, all for one host: those of a webhook, or of the webhooks of an endpoint. */
export interface WindowQueue<T> {
  readonly window: WindowKey;
  readonly host: HostQueue<T>;
  /** In the order of their turns. */
  readonly webhooks: Map<bigint, WebhookQueue<T>>;
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
}

/** The queued tasks of one kind, by host, window and webhook. Which of them may start is up to the scheduler. */
export class Lane<T extends Task> {
  readonly hosts = new Map<string, HostQueue<T>>();
  readonly windows = new Map<WindowKey, WindowQueue<T>>();
  /** Hosts with room in their window and in one of a webhook, by requests in flight. */
  readonly ready = new LeastLoaded<HostQueue<T>>();
  /** Hosts that hang, and windows that hang of hosts without trouble, with room, in turn. */
  readonly hanging = new Set<WindowQueue<T> | HostQueue<T>>();
  /** The same for those that fail. */
  readonly failing = new Set<WindowQueue<T> | HostQueue<T>>();
  #waiting = 0;

  /** The number of queued tasks. */
  get waiting(): number {
    return this.#waiting;
  }

  /** The number of queued tasks of a webhook. */
  waitingOf({ window, webhookId }: Pick<Task, "window" | "webhookId">): number {
    const queue = this.windows.get(window)?.webhooks.get(webhookId);
    return queue ? queue.tasks.length - queue.first : 0;
  }

  /** All queued tasks of a window. */
  *tasksOf({ webhooks }: WindowQueue<T>): Iterable<T> {
    for (const { tasks, first } of webhooks.values()) yield* tasks.slice(first);
  }

  /** Adds an empty queue for a task's window, which must not have one. */
  addQueue({ window, host: name }: T): WindowQueue<T> {
    let host = this.hosts.get(name);
    if (!host) {
      host = { host: name, windows: new Map(), waiting: 0, ready: new LeastLoaded() };
      this.hosts.set(name, host);
    }
    const queue: WindowQueue<T> = { window, host, webhooks: new Map(), waiting: 0 };
    this.windows.set(window, queue);
    host.windows.set(window, queue);
    return queue;
  }

  /** Adds a task to the queue of its window. */
  add(queue: WindowQueue<T>, task: T): void {
    const { webhookId } = task;
    const webhook = queue.webhooks.get(webhookId);
    if (webhook) webhook.tasks.push(task);
    else queue.webhooks.set(webhookId, { webhookId, tasks: [task], first: 0 });
    this.#count(queue, 1);
  }

  /** Moves a window or host to where its trouble belongs. */
  setTrouble(receiver: WindowQueue<T> | HostQueue<T>, trouble: Window["trouble"]): void {
    if (trouble === "hangs") this.hanging.add(receiver);
    else this.hanging.delete(receiver);
    if (trouble === "fails") this.failing.add(receiver);
    else this.failing.delete(receiver);
  }

  /** Takes the oldest task of the webhook whose turn it is. */
  take(queue: WindowQueue<T>): T {
    const { webhooks } = queue;
    const webhook = webhooks.values().next().value as WebhookQueue<T>;
    const task = webhook.tasks[webhook.first] as T;
    webhook.first += 1;
    this.#count(queue, -1);
    if (webhook.first === webhook.tasks.length) {
      webhooks.delete(task.webhookId);
      if (webhooks.size === 0) this.#forget(queue);
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

  /** Removes and returns the tasks of a window for which `wanted` is true. */
  remove(queue: WindowQueue<T>, wanted: (task: T) => boolean): T[] {
    const removed: T[] = [];
    for (const webhook of queue.webhooks.values()) {
      const kept: T[] = [];
      for (const task of webhook.tasks.slice(webhook.first)) (wanted(task) ? removed : kept).push(task);
      webhook.tasks = kept;
      webhook.first = 0;
      if (kept.length === 0) queue.webhooks.delete(webhook.webhookId);
    }
    this.#count(queue, -removed.length);
    if (queue.webhooks.size === 0) this.#forget(queue);
    return removed;
  }

  #count(queue: WindowQueue<T>, added: number): void {
    this.#waiting += added;
    queue.waiting += added;
    queue.host.waiting += added;
  }

  #forget(queue: WindowQueue<T>): void {
    const { host } = queue;
    this.windows.delete(queue.window);
    this.setTrouble(queue, "none");
    host.windows.delete(queue.window);
    host.ready.delete(queue);
    if (host.windows.size > 0) return;
    this.hosts.delete(host.host);
    this.ready.delete(host);
    this.setTrouble(host, "none");
  }
}
