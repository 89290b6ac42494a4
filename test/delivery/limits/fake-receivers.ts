import { expect } from "vitest";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import type { Kind, Task } from "../../../src/delivery/limits/task.ts";
import type { Window } from "../../../src/delivery/limits/windows.ts";

/** A task, and what the model knows of it. */
interface ModelTask extends Task {
  role: "waiting" | "usual" | "host in trouble" | "webhook fails" | "webhook hangs";
  /** Whether it was started for a receiver that hangs. */
  isHanging: boolean;
}

/** Limits of a scheduler. */
export interface Limits {
  max: number;
  perHost: number;
  perWebhook: number;
}

const KINDS = ["first", "retry"] as const;
/** A part of a limit: at least one request. */
const partOf = (limit: number, part: number) => Math.max(1, Math.floor(limit * part));

/** A scheduler, receivers that answer when the test says so, and a model that each answer of the scheduler is compared with. */
export class FakeReceivers {
  readonly scheduler: Scheduler<ModelTask>;
  /** Whether tasks for failing receivers may start. */
  mayFail = true;
  readonly #limits: Limits;
  readonly #hosts: number;
  readonly #perEndpoint: number;
  /** Queued, oldest first, and in flight. */
  #waiting: ModelTask[] = [];
  readonly #inFlight = new Set<ModelTask>();

  /** @param perEndpoint the number of webhooks of a host that share a window */
  constructor(limits: Limits, hosts: number, perEndpoint = 1) {
    this.#limits = limits;
    this.scheduler = new Scheduler(limits, () => this.mayFail);
    this.#hosts = hosts;
    this.#perEndpoint = perEndpoint;
  }

  get inFlight(): ModelTask[] {
    return [...this.#inFlight];
  }

  push(kind: Kind, webhook: number, tasks: number): void {
    const host = webhook % this.#hosts;
    const endpoint = Math.floor(webhook / this.#hosts / this.#perEndpoint);
    for (let n = 0; n < tasks; n += 1) {
      const task: ModelTask = {
        kind,
        webhookId: BigInt(webhook),
        window: this.#perEndpoint === 1 ? BigInt(webhook) : `endpoint-${host}-${endpoint}`,
        host: `host-${host}`,
        role: "waiting",
        isHanging: false,
      };
      this.#waiting.push(task);
      this.scheduler.push(task);
    }
  }

  /** Starts at most so many tasks, each of which must be the right one. Answers those that started. */
  start(most = Number.POSITIVE_INFINITY): ModelTask[] {
    const started: ModelTask[] = [];
    while (started.length < most) {
      const startable = this.#startable();
      const task = this.scheduler.next();
      if (!task) {
        expect(startable).toEqual([]);
        break;
      }
      expect(startable).toContain(task);
      this.#expectFair(task, startable);
      this.#waiting.splice(this.#waiting.indexOf(task), 1);
      task.role = this.#roleOf(task);
      task.isHanging = this.#troubleOf(task) === "hangs";
      this.#inFlight.add(task);
      started.push(task);
    }
    return started;
  }

  end(task: ModelTask, verdict: Verdict): void {
    this.scheduler.end(task, verdict);
    this.#inFlight.delete(task);
  }

  remove(webhook: number): void {
    const isOfWebhook = ({ webhookId }: Task) => webhookId === BigInt(webhook);
    const removed = this.scheduler.remove(isOfWebhook);
    expect(new Set(removed)).toEqual(new Set(this.#waiting.filter(isOfWebhook)));
    this.#waiting = this.#waiting.filter((task) => !isOfWebhook(task));
  }

  /** Has every receiver answer until nothing is left. */
  drain(): void {
    this.mayFail = true;
    for (this.start(); this.#inFlight.size > 0; this.start()) {
      const [task] = this.#inFlight;
      if (task) this.end(task, { webhook: "success", host: "success" });
    }
    expect(this.#waiting).toEqual([]);
  }

  #roleOf({ window, host }: Task): Exclude<ModelTask["role"], "waiting"> {
    if (this.scheduler.hosts.isInTrouble(host)) return "host in trouble";
    const { trouble } = this.scheduler.webhooks.of(window);
    return trouble === "none" ? "usual" : `webhook ${trouble}`;
  }

  #troubleOf({ window, host }: Task): Window["trouble"] {
    const { hosts, webhooks } = this.scheduler;
    return hosts.isInTrouble(host) ? hosts.of(host).trouble : webhooks.of(window).trouble;
  }

  #toWindow({ window }: Task): number {
    return this.inFlight.filter((other) => other.window === window).length;
  }

  /** Those to webhooks that hang do not count: they must not take the place of their neighbours. */
  #toHost({ host }: Task): number {
    return this.#apartAt(host, false);
  }

  #apartAt(host: string, isApart: boolean): number {
    const ofHost = this.inFlight.filter((other) => other.host === host);
    return ofHost.filter(({ role }) => (role === "webhook hangs") === isApart).length;
  }

  /** The oldest task of each webhook and kind that may start now. */
  #startable(): ModelTask[] {
    const { max } = this.#limits;
    if (this.#inFlight.size >= max) return [];
    const hanging = this.inFlight.filter(({ isHanging }) => isHanging).length;
    const may = { none: true, fails: this.mayFail, hangs: hanging < partOf(max, 1 / 4) };
    const queues = Map.groupBy(this.#waiting, ({ kind, webhookId }) => `${kind} ${webhookId}`);
    return [...queues.values()].flatMap(([task]) => {
      if (!task) return [];
      if (!may[this.#troubleOf(task)] || !this.#hasWindows(task)) return [];
      const isCrowded = this.#roleOf(task) === "usual" && this.#toHost(task) >= max - this.#inFlight.size;
      return isCrowded ? [] : [task];
    });
  }

  #hasWindows(task: ModelTask): boolean {
    const { webhooks, hosts } = this.scheduler;
    if (this.#toWindow(task) >= webhooks.of(task.window).allowed) return false;
    if (this.#roleOf(task) === "webhook hangs")
      return this.#toHost(task) + this.#apartAt(task.host, true) < this.#limits.perHost;
    return this.#toHost(task) < hosts.of(task.host).allowed;
  }

  #expectFair(task: ModelTask, startable: readonly ModelTask[]): void {
    const ofKind = startable.filter(({ kind }) => kind === task.kind);
    // Retries have an eighth of the requests in flight, and no more while first attempts can start.
    const retries = this.inFlight.filter(({ kind }) => kind === "retry").length;
    const favoured = retries < partOf(this.#inFlight.size, 1 / 8) ? "retry" : "first";
    if (this.#limits.max >= 8 && task.kind !== favoured) expect(ofKind).toEqual(startable);
    // Receivers in trouble go before all others of their kind; then the fewest in flight.
    if (this.#roleOf(task) !== "usual") return;
    for (const rival of ofKind) {
      expect(this.#roleOf(rival)).toBe("usual");
      expect(this.#toHost(rival)).toBeGreaterThanOrEqual(this.#toHost(task));
      if (rival.host === task.host)
        expect(this.#toWindow(rival)).toBeGreaterThanOrEqual(this.#toWindow(task));
    }
  }

  /** Compares what the scheduler counts with the model. */
  expectCounts(): void {
    const { scheduler } = this;
    expect(scheduler.inFlight).toBe(this.#inFlight.size);
    for (const kind of KINDS) {
      const waiting = this.#waiting.filter((task) => task.kind === kind);
      expect(scheduler.lanes[kind].waiting).toBe(waiting.length);
      const sendable = waiting.filter((task) => this.#roleOf(task) === "usual" && this.#hasWindows(task));
      expect(scheduler.lanes[kind].hasSendable(sendable.length)).toBe(false);
      expect(scheduler.lanes[kind].hasSendable(Math.max(0, sendable.length - 1))).toBe(sendable.length > 0);
    }
    for (const task of [...this.#waiting, ...this.#inFlight]) {
      expect(scheduler.hosts.of(task.host).inFlight).toBe(this.#toHost(task));
      expect(scheduler.hosts.of(task.host).apart).toBe(this.#apartAt(task.host, true));
      expect(scheduler.webhooks.of(task.window).inFlight).toBe(this.#toWindow(task));
      expect(this.#toHost(task)).toBeLessThanOrEqual(this.#limits.perHost);
      expect(this.#toWindow(task)).toBeLessThanOrEqual(this.#limits.perWebhook);
    }
  }
}
