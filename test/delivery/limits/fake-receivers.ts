import { expect } from "vitest";
import { type Kind, Scheduler, type Task, type Verdict } from "../../../src/delivery/limits/scheduler.ts";

/** A task that the test can tell from all others. */
export interface Numbered extends Task {
  readonly number: number;
}

/** Limits of a scheduler. */
export interface Limits {
  budget: number;
  perHost: number;
  perWebhook: number;
}

const KINDS = ["first", "retry"] as const;

export const hostOf = (webhook: number, hosts: number) => `host-${webhook % hosts}`;

/**
 * A scheduler with receivers that answer when the test says so. Keeps its own account of what waits and of what is in
 * flight, and holds each answer of the scheduler against it.
 */
export class FakeReceivers {
  readonly scheduler: Scheduler<Numbered>;
  readonly #limits: Limits;
  readonly #hosts: number;
  #waiting: Numbered[] = [];
  /** In flight, with what the task was when it started. */
  readonly #inFlight = new Map<Numbered, "usual" | "host probe" | "webhook probe">();
  readonly #started = new Set<Numbered>();
  #removed = 0;
  #pushed = 0;

  constructor(limits: Limits, hosts: number) {
    this.scheduler = new Scheduler(limits);
    this.#limits = { ...limits };
    this.#hosts = hosts;
  }

  get inFlight(): Numbered[] {
    return [...this.#inFlight.keys()];
  }

  /** Tasks that started, ever. */
  get started(): number {
    return this.#started.size;
  }

  inFlightTo(webhook: number): Numbered[] {
    return this.inFlight.filter(({ webhookId }) => webhookId === BigInt(webhook));
  }

  push(kind: Kind, webhook: number, tasks = 1): void {
    for (let n = 0; n < tasks; n += 1) {
      const task = {
        kind,
        webhookId: BigInt(webhook),
        host: hostOf(webhook, this.#hosts),
        number: this.#pushed,
      };
      this.#pushed += 1;
      this.#waiting.push(task);
      this.scheduler.push(task);
    }
  }

  setBudget(budget: number): void {
    this.#limits.budget = budget;
    this.scheduler.budget = budget;
  }

  /** Starts at most so many tasks, each of which must be the right one; answers those that started. */
  start(most = Number.POSITIVE_INFINITY): Numbered[] {
    const started: Numbered[] = [];
    while (started.length < most) {
      const startable = KINDS.map((kind) => this.#startable(kind));
      const task = this.scheduler.next();
      if (!task) {
        expect(startable.flat()).toEqual([]);
        break;
      }
      this.#expectRight(task, startable as [Numbered[], Numbered[]]);
      this.#waiting = this.#waiting.filter((other) => other !== task);
      this.#inFlight.set(task, this.#roleOf(task));
      this.#started.add(task);
      started.push(task);
    }
    return started;
  }

  end(task: Numbered, verdict: Verdict): void {
    this.scheduler.end(task, verdict);
    this.#inFlight.delete(task);
  }

  remove(wanted: (task: Numbered) => boolean): void {
    const removed = this.scheduler.remove(wanted);
    const byNumber = (a: Numbered, b: Numbered) => a.number - b.number;
    expect(removed.sort(byNumber)).toEqual(this.#waiting.filter(wanted));
    this.#waiting = this.#waiting.filter((task) => !wanted(task));
    this.#removed += removed.length;
  }

  /** Has every receiver answer until nothing is left: what was pushed has started once, or was removed. */
  drain(): void {
    for (;;) {
      this.start();
      const [task] = this.#inFlight.keys();
      if (!task) break;
      this.end(task, { webhook: "success", host: "success" });
    }
    expect(this.#waiting).toEqual([]);
    expect(this.#started.size + this.#removed).toBe(this.#pushed);
  }

  get probes(): number {
    return [...this.#inFlight.values()].filter((role) => role !== "usual").length;
  }

  #roleOf({ webhookId, host }: Task): "usual" | "host probe" | "webhook probe" {
    if (this.scheduler.hosts.of(host).timedOut) return "host probe";
    return this.scheduler.webhooks.of(webhookId).timedOut ? "webhook probe" : "usual";
  }

  /** The oldest task of each webhook that may start now. */
  #startable(kind: Kind): Numbered[] {
    if (this.#inFlight.size >= this.#limits.budget) return [];
    const oldest = new Map<bigint, Numbered>();
    for (const task of this.#waiting) {
      if (task.kind === kind && !oldest.has(task.webhookId)) oldest.set(task.webhookId, task);
    }
    return [...oldest.values()].filter((task) => {
      const role = this.#roleOf(task);
      const mayProbe = this.probes < Math.max(1, Math.floor(this.#limits.budget / 4));
      return (
        this.#toWebhook(task) < this.scheduler.webhooks.of(task.webhookId).allowed &&
        (role === "webhook probe" || this.#toHost(task) < this.scheduler.hosts.of(task.host).allowed) &&
        (role === "usual" || mayProbe)
      );
    });
  }

  #expectRight(task: Numbered, [first, retry]: [Numbered[], Numbered[]]): void {
    expect(this.#started.has(task)).toBe(false);
    const rivals = task.kind === "first" ? first : retry;
    expect(rivals).toContain(task);
    // Retries have a fifth, and no more while first attempts can start. Of a smaller budget they have each fifth turn.
    const retries = this.inFlight.filter(({ kind }) => kind === "retry").length;
    const belowPart = retries < Math.floor(this.#limits.budget / 5);
    if (belowPart && task.kind === "first") expect(retry).toEqual([]);
    if (!belowPart && this.#limits.budget >= 5 && task.kind === "retry") expect(first).toEqual([]);
    // Probes go before all others of their kind; then the fewest in flight.
    if (this.#roleOf(task) !== "usual") return;
    for (const rival of rivals) {
      expect(this.#roleOf(rival)).toBe("usual");
      expect(this.#toHost(rival)).toBeGreaterThanOrEqual(this.#toHost(task));
      if (rival.host === task.host)
        expect(this.#toWebhook(rival)).toBeGreaterThanOrEqual(this.#toWebhook(task));
    }
  }

  /** Holds what the scheduler counts against the account. */
  expectCounts(): void {
    const { scheduler } = this;
    expect(scheduler.inFlight).toBe(this.#inFlight.size);
    for (const kind of KINDS) {
      const waiting = this.#waiting.filter((task) => task.kind === kind);
      expect(scheduler.waiting(kind)).toBe(waiting.length);
      const queues = [...scheduler.queues(kind)].map((queue) => [queue.webhookId, queue.waiting]);
      expect(new Map(queues as [bigint, number][])).toEqual(
        new Map([...Map.groupBy(waiting, ({ webhookId }) => webhookId)].map(([id, all]) => [id, all.length])),
      );
    }
    for (const task of this.#waiting.concat(this.inFlight)) {
      const { host, webhookId } = task;
      expect(scheduler.waitingForHost(host)).toBe(
        this.#waiting.filter((other) => other.host === host).length,
      );
      expect(scheduler.hosts.of(host).inFlight).toBe(this.#toHost(task));
      expect(scheduler.webhooks.of(webhookId).inFlight).toBe(this.#toWebhook(task));
      expect(this.#toHost(task)).toBeLessThanOrEqual(this.#limits.perHost);
      expect(this.#toWebhook(task)).toBeLessThanOrEqual(this.#limits.perWebhook);
    }
  }

  #toWebhook({ webhookId }: Task): number {
    return this.inFlight.filter((other) => other.webhookId === webhookId).length;
  }

  /** A probe of a webhook does not count: it must not take the place of its neighbours. */
  #toHost({ host }: Task): number {
    let inFlight = 0;
    for (const [other, role] of this.#inFlight)
      if (other.host === host && role !== "webhook probe") inFlight += 1;
    return inFlight;
  }
}
