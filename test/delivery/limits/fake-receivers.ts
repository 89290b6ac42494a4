import { expect } from "vitest";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import type { Kind, Task, WindowKey } from "../../../src/delivery/limits/task.ts";

/** A task that the test can tell from all others. */
export interface Numbered extends Task {
  readonly number: number;
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

const hostOf = (webhook: number, hosts: number) => `host-${webhook % hosts}`;

/** The webhooks of a host are put together, so many to an endpoint. */
function windowOf(webhook: number, hosts: number, perEndpoint: number): WindowKey {
  if (perEndpoint === 1) return BigInt(webhook);
  return `endpoint-${webhook % hosts}-${Math.floor(webhook / hosts / perEndpoint)}`;
}

/**
 * A scheduler with receivers that answer when the test says so. Keeps its own account of what waits and of what is in
 * flight, and holds each answer of the scheduler against it.
 */
export class FakeReceivers {
  readonly scheduler: Scheduler<Numbered>;
  readonly #limits: Required<Limits>;
  readonly #hosts: number;
  readonly #perEndpoint: number;
  #waiting: Numbered[] = [];
  /** The webhooks of each kind and window with waiting tasks, in the order of their turns. */
  readonly #turns = new Map<string, bigint[]>();
  /** In flight, with what the task was when it started. */
  readonly #inFlight = new Map<Numbered, "usual" | "host probe" | "webhook probe">();
  /** How often `exemptSlow` was called since a task in flight started, or 2 if the task is exempt. */
  readonly #calls = new Map<Numbered, number>();
  /** Hosts of which a request was exempt, and none that started since was answered before it was. */
  readonly #slowHosts = new Set<string>();
  /** Tasks in flight that started when their hosts were slow, or are exempt. */
  readonly #slow = new Set<Numbered>();
  readonly #started = new Set<Numbered>();
  #removed = 0;
  #pushed = 0;

  /** @param perEndpoint the number of webhooks that share a window */
  constructor(limits: Limits, hosts: number, perEndpoint = 1) {
    this.#limits = { max: Number.POSITIVE_INFINITY, ...limits };
    this.scheduler = new Scheduler(this.#limits);
    this.#hosts = hosts;
    this.#perEndpoint = perEndpoint;
  }

  get inFlight(): Numbered[] {
    return [...this.#inFlight.keys()];
  }

  push(kind: Kind, webhook: number, tasks = 1): void {
    for (let n = 0; n < tasks; n += 1) {
      const task = {
        kind,
        webhookId: BigInt(webhook),
        window: windowOf(webhook, this.#hosts, this.#perEndpoint),
        host: hostOf(webhook, this.#hosts),
        number: this.#pushed,
      };
      this.#pushed += 1;
      this.#waiting.push(task);
      const turns = this.#turnsOf(task);
      if (!turns.includes(task.webhookId)) turns.push(task.webhookId);
      this.scheduler.push(task);
    }
  }

  setBudget(budget: number): void {
    this.#limits.budget = budget;
    this.scheduler.budget = budget;
  }

  exemptSlow(): void {
    for (const [task, calls] of this.#calls) {
      const isExempt = this.#slow.has(task) || calls > 0;
      this.#calls.set(task, isExempt ? 2 : 1);
      if (!isExempt) continue;
      if (calls < 2) this.#slowHosts.add(task.host);
      this.#slow.add(task);
    }
    this.scheduler.exemptSlow();
  }

  /** Tasks in flight that count in the budget. */
  get counted(): Numbered[] {
    return this.inFlight.filter((task) => (this.#calls.get(task) ?? 0) < 2);
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
      this.#takeTurn(task);
      this.#inFlight.set(task, this.#roleOf(task));
      this.#calls.set(task, 0);
      if (this.#inFlight.get(task) === "usual" && this.#slowHosts.has(task.host)) this.#slow.add(task);
      this.#started.add(task);
      started.push(task);
    }
    return started;
  }

  end(task: Numbered, verdict: Verdict): void {
    this.scheduler.end(task, verdict);
    const hasEvidence = verdict.webhook !== "none" || verdict.host !== "none";
    if (hasEvidence && this.counted.includes(task)) this.#slowHosts.delete(task.host);
    this.#inFlight.delete(task);
    this.#slow.delete(task);
    this.#calls.delete(task);
  }

  remove(wanted: (task: Numbered) => boolean): void {
    const removed = this.scheduler.remove(wanted);
    const byNumber = (a: Numbered, b: Numbered) => a.number - b.number;
    expect(removed.sort(byNumber)).toEqual(this.#waiting.filter(wanted));
    this.#waiting = this.#waiting.filter((task) => !wanted(task));
    for (const task of removed) {
      const turns = this.#turnsOf(task);
      const index = turns.indexOf(task.webhookId);
      if (index >= 0 && !this.#isWaiting(task)) turns.splice(index, 1);
    }
    this.#removed += removed.length;
  }

  #turnsOf({ kind, window }: Task): bigint[] {
    const key = `${kind} ${window}`;
    const known = this.#turns.get(key) ?? [];
    this.#turns.set(key, known);
    return known;
  }

  /** Whether another task of its webhook and kind waits. */
  #isWaiting({ kind, webhookId }: Task): boolean {
    return this.#waiting.some((other) => other.kind === kind && other.webhookId === webhookId);
  }

  /** The webhooks of an endpoint take turns. */
  #takeTurn(task: Numbered): void {
    const turns = this.#turnsOf(task);
    expect(turns.shift()).toBe(task.webhookId);
    if (this.#isWaiting(task)) turns.push(task.webhookId);
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

  #roleOf({ window, host }: Task): "usual" | "host probe" | "webhook probe" {
    if (this.scheduler.hosts.of(host).timedOut) return "host probe";
    return this.scheduler.webhooks.of(window).timedOut ? "webhook probe" : "usual";
  }

  /** The oldest task of each webhook that may start now. */
  #startable(kind: Kind): Numbered[] {
    const { budget, max } = this.#limits;
    if (this.#inFlight.size >= max) return [];
    const partOf = (requests: number) => Math.max(1, Math.floor(requests / 4));
    const [, usual] = this.#countedByPace();
    const hasSlowRoom = this.#hasSlowRoom();
    const hasUsualRoom = usual.length < budget;
    const countedProbes = usual.filter((task) => this.#inFlight.get(task) !== "usual").length;
    const mayProbe = hasUsualRoom && countedProbes < partOf(budget) && this.probes < partOf(max);
    const oldest = new Map<bigint, Numbered>();
    for (const task of this.#waiting) {
      if (task.kind === kind && !oldest.has(task.webhookId)) oldest.set(task.webhookId, task);
    }
    return [...oldest.values()].filter((task) => {
      const role = this.#roleOf(task);
      return (
        this.#toWindow(task) < this.scheduler.webhooks.of(task.window).allowed &&
        (role === "webhook probe" || this.#toHost(task) < this.scheduler.hosts.of(task.host).allowed) &&
        (role !== "usual" ? mayProbe : this.#slowHosts.has(task.host) ? hasSlowRoom : hasUsualRoom)
      );
    });
  }

  /** Whether the limits have room for another request to a slow host. */
  #hasSlowRoom(): boolean {
    const { budget, max } = this.#limits;
    const [slow] = this.#countedByPace();
    if (this.#inFlight.size >= max || slow.length >= budget) return false;
    return this.#slow.size < Math.max(1, Math.floor((max * 3) / 4));
  }

  /** Whether a waiting task waits for nothing but the limits of hosts that are not slow. */
  #isSendable(task: Numbered): boolean {
    const { hosts, webhooks } = this.scheduler;
    return (
      this.#roleOf(task) === "usual" &&
      this.#toWindow(task) < webhooks.of(task.window).allowed &&
      this.#toHost(task) < hosts.of(task.host).allowed &&
      (!this.#slowHosts.has(task.host) || this.#hasSlowRoom())
    );
  }

  /** Tasks in flight that count in the budget of slow hosts, and in that of the others. */
  #countedByPace(): [Numbered[], Numbered[]] {
    const { counted } = this;
    return [counted.filter((task) => this.#slow.has(task)), counted.filter((task) => !this.#slow.has(task))];
  }

  #isSlow(task: Numbered): boolean {
    return this.#roleOf(task) === "usual" && this.#slowHosts.has(task.host);
  }

  #expectRight(task: Numbered, [first, retry]: [Numbered[], Numbered[]]): void {
    expect(this.#started.has(task)).toBe(false);
    expect(task.kind === "first" ? first : retry).toContain(task);
    // Slow hosts have room of their own, and come last.
    const isSlow = this.#isSlow(task);
    if (isSlow) expect([...first, ...retry].filter((rival) => !this.#isSlow(rival))).toEqual([]);
    const ofPace = (rivals: Numbered[]) => rivals.filter((rival) => this.#isSlow(rival) === isSlow);
    const rivals = ofPace(task.kind === "first" ? first : retry);
    // Retries have a fifth, and no more while first attempts can start. Of a smaller budget they have each fifth turn.
    const isRetry = ({ kind }: Task) => kind === "retry";
    const belowPart =
      this.#countedByPace()[isSlow ? 0 : 1].filter(isRetry).length < Math.floor(this.#limits.budget / 5) &&
      this.inFlight.filter(isRetry).length < Math.max(1, Math.floor(this.#limits.max / 5));
    if (belowPart && task.kind === "first") expect(ofPace(retry)).toEqual([]);
    if (!belowPart && this.#limits.budget >= 5 && task.kind === "retry") expect(ofPace(first)).toEqual([]);
    // Probes go before all others of their kind; then the fewest in flight.
    if (this.#roleOf(task) !== "usual") return;
    for (const rival of rivals) {
      expect(this.#roleOf(rival)).toBe("usual");
      expect(this.#toHost(rival)).toBeGreaterThanOrEqual(this.#toHost(task));
      if (rival.host === task.host)
        expect(this.#toWindow(rival)).toBeGreaterThanOrEqual(this.#toWindow(task));
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
      const sendable = waiting.filter((task) => this.#isSendable(task));
      for (const [host, toHost] of Map.groupBy(waiting, (task) => task.host))
        expect(new Set(scheduler.sendable(kind, [host]))).toEqual(
          new Set(toHost.filter((task) => sendable.includes(task))),
        );
      expect(scheduler.hasSendable(kind, sendable.length)).toBe(false);
      expect(scheduler.hasSendable(kind, Math.max(0, sendable.length - 1))).toBe(sendable.length > 0);
    }
    for (const task of this.#waiting.concat(this.inFlight)) {
      const { kind, host, window } = task;
      expect(scheduler.waitingForHost(kind, host)).toBe(
        this.#waiting.filter((other) => other.kind === kind && other.host === host).length,
      );
      expect(scheduler.hosts.of(host).inFlight).toBe(this.#toHost(task));
      expect(scheduler.webhooks.of(window).inFlight).toBe(this.#toWindow(task));
      expect(this.#toHost(task)).toBeLessThanOrEqual(this.#limits.perHost);
      expect(this.#toWindow(task)).toBeLessThanOrEqual(this.#limits.perWebhook);
    }
  }

  #toWindow({ window }: Task): number {
    return this.inFlight.filter((other) => other.window === window).length;
  }

  /** A probe of a webhook does not count: it must not take the place of its neighbours. */
  #toHost({ host }: Task): number {
    let inFlight = 0;
    for (const [other, role] of this.#inFlight)
      if (other.host === host && role !== "webhook probe") inFlight += 1;
    return inFlight;
  }
}
