import { expect } from "vitest";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import type { Kind, Task } from "../../../src/delivery/limits/task.ts";

/** A task, and what the model knows of it. */
interface ModelTask extends Task {
  role: "waiting" | "usual" | "host probe" | "webhook probe";
  /** How often `exemptSlow` was called since it started; 2 if the task is exempt. */
  calls: number;
  /** Whether it counts as a request to a slow host. */
  isSlow: boolean;
}

/** Limits of a scheduler. */
export interface Limits {
  budget: number;
  /** Defaults to no maximum. */
  max?: number;
  perHost: number;
  perWebhook: number;
}

const KINDS = ["first", "retry"] as const;
/** A part of a limit: at least one request. */
const partOf = (limit: number, part: number) => Math.max(1, Math.floor(limit * part));
const isProbe = ({ role }: ModelTask) => role === "host probe" || role === "webhook probe";
const isRetry = ({ kind }: Task) => kind === "retry";

/** A scheduler, receivers that answer when the test says so, and a model that each answer of the scheduler is compared with. */
export class FakeReceivers {
  readonly scheduler: Scheduler<ModelTask>;
  readonly #limits: Required<Limits>;
  readonly #hosts: number;
  readonly #perEndpoint: number;
  /** Queued, oldest first, and in flight. */
  #waiting: ModelTask[] = [];
  readonly #inFlight = new Set<ModelTask>();
  /** Hosts with an exempt request, unless a request that is not has been answered since. */
  readonly #slowHosts = new Set<string>();

  /** @param perEndpoint the number of webhooks of a host that share a window */
  constructor(limits: Limits, hosts: number, perEndpoint = 1) {
    this.#limits = { max: Number.POSITIVE_INFINITY, ...limits };
    this.scheduler = new Scheduler(this.#limits);
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
        calls: 0,
        isSlow: false,
      };
      this.#waiting.push(task);
      this.scheduler.push(task);
    }
  }

  setBudget(budget: number): void {
    this.#limits.budget = budget;
    this.scheduler.budget = budget;
  }

  exemptSlow(): void {
    for (const task of this.#inFlight) {
      const isExempt = task.isSlow || task.calls > 0;
      if (isExempt && task.calls < 2) this.#slowHosts.add(task.host);
      task.isSlow = isExempt;
      task.calls = isExempt ? 2 : 1;
    }
    this.scheduler.exemptSlow();
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
      task.isSlow = this.#isToSlow(task);
      task.role = this.#roleOf(task);
      this.#inFlight.add(task);
      started.push(task);
    }
    return started;
  }

  end(task: ModelTask, verdict: Verdict): void {
    this.scheduler.end(task, verdict);
    const wasAnswered = verdict.webhook !== "none" || verdict.host !== "none";
    if (wasAnswered && task.calls < 2) this.#slowHosts.delete(task.host);
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
    for (this.start(); this.#inFlight.size > 0; this.start()) {
      const [task] = this.#inFlight;
      if (task) this.end(task, { webhook: "success", host: "success" });
    }
    expect(this.#waiting).toEqual([]);
  }

  #roleOf({ window, host }: Task): Exclude<ModelTask["role"], "waiting"> {
    if (this.scheduler.hosts.of(host).timedOut) return "host probe";
    return this.scheduler.webhooks.of(window).timedOut ? "webhook probe" : "usual";
  }

  #isToSlow(task: Task): boolean {
    return this.#roleOf(task) === "usual" && this.#slowHosts.has(task.host);
  }

  /** Tasks in flight that count in the budget of slow hosts, or in that of the others. */
  #counted(isSlow: boolean): ModelTask[] {
    return this.inFlight.filter((task) => task.calls < 2 && task.isSlow === isSlow);
  }

  #toWindow({ window }: Task): number {
    return this.inFlight.filter((other) => other.window === window).length;
  }

  /** A probe of a webhook does not count: it must not take the place of its neighbours. */
  #toHost({ host }: Task): number {
    return this.inFlight.filter((other) => other.host === host && other.role !== "webhook probe").length;
  }

  #hasSlowRoom(): boolean {
    const { budget, max } = this.#limits;
    const slow = this.inFlight.filter(({ isSlow }) => isSlow).length;
    return this.#inFlight.size < max && this.#counted(true).length < budget && slow < partOf(max, 3 / 4);
  }

  /** The oldest task of each webhook and kind that may start now. */
  #startable(): ModelTask[] {
    const { budget, max } = this.#limits;
    if (this.#inFlight.size >= max) return [];
    const usual = this.#counted(false);
    const hasSlowRoom = this.#hasSlowRoom();
    const hasUsualRoom = usual.length < budget;
    const mayProbe =
      hasUsualRoom &&
      usual.filter(isProbe).length < partOf(budget, 1 / 4) &&
      this.inFlight.filter(isProbe).length < partOf(max, 1 / 4);
    const queues = Map.groupBy(this.#waiting, ({ kind, webhookId }) => `${kind} ${webhookId}`);
    return [...queues.values()].flatMap(([task]) => {
      if (!task) return [];
      const role = this.#roleOf(task);
      const hasRoom = role !== "usual" ? mayProbe : this.#isToSlow(task) ? hasSlowRoom : hasUsualRoom;
      return hasRoom && this.#hasWindows(task) ? [task] : [];
    });
  }

  #hasWindows(task: ModelTask): boolean {
    const { webhooks, hosts } = this.scheduler;
    if (this.#toWindow(task) >= webhooks.of(task.window).allowed) return false;
    return this.#roleOf(task) === "webhook probe" || this.#toHost(task) < hosts.of(task.host).allowed;
  }

  #expectFair(task: ModelTask, startable: readonly ModelTask[]): void {
    const { budget, max } = this.#limits;
    const isSlow = this.#isToSlow(task);
    // Slow hosts come last.
    const rivals = startable.filter((rival) => this.#isToSlow(rival) === isSlow);
    if (isSlow) expect(rivals).toEqual(startable);
    const ofKind = rivals.filter(({ kind }) => kind === task.kind);
    // Retries have a fifth, and no more while first attempts can start. Of a smaller budget they have each fifth turn.
    const hasRetryShare =
      this.#counted(isSlow).filter(isRetry).length < Math.floor(budget / 5) &&
      this.inFlight.filter(isRetry).length < partOf(max, 1 / 5);
    if (hasRetryShare ? task.kind === "first" : budget >= 5 && task.kind === "retry")
      expect(ofKind).toEqual(rivals);
    // Probes go before all others of their kind; then the fewest in flight.
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
      expect(scheduler.waiting(kind)).toBe(waiting.length);
      // These wait for nothing but the limits of hosts that are not slow.
      const sendable = waiting.filter(
        (task) =>
          this.#roleOf(task) === "usual" &&
          this.#hasWindows(task) &&
          (!this.#slowHosts.has(task.host) || this.#hasSlowRoom()),
      );
      expect(scheduler.hasSendable(kind, sendable.length)).toBe(false);
      expect(scheduler.hasSendable(kind, Math.max(0, sendable.length - 1))).toBe(sendable.length > 0);
    }
    for (const task of [...this.#waiting, ...this.#inFlight]) {
      expect(scheduler.hosts.of(task.host).inFlight).toBe(this.#toHost(task));
      expect(scheduler.webhooks.of(task.window).inFlight).toBe(this.#toWindow(task));
      expect(this.#toHost(task)).toBeLessThanOrEqual(this.#limits.perHost);
      expect(this.#toWindow(task)).toBeLessThanOrEqual(this.#limits.perWebhook);
    }
  }
}
