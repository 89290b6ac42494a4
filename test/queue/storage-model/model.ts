import { randomBytes, randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { Db } from "../../../src/lib/pg/database.ts";
import type { ClaimedDelivery } from "../../../src/queue/claims.ts";
import { type OpenRun, openRuns } from "../../../src/queue/runs.ts";
import { removeWorker } from "../../../src/queue/workers.ts";
import type { ReplayFilter } from "../../../src/replays/replays.ts";
import { ClaimedWebhooks } from "../../../src/webhooks/claimed-webhooks.ts";
import { createSecretBox } from "../../../src/webhooks/secret-box.ts";
import { updateWebhook } from "../../../src/webhooks/webhook-update.ts";
import { createWebhook, type NewWebhook } from "../../../src/webhooks/webhooks.ts";
import { SETTINGS } from "../../breakers/breakers.ts";
import { aKey } from "../../support/builders.ts";
import { freshWorker } from "../queue.ts";
import { type Call, call, type Fault } from "./faults.ts";
import { type Change, expectInvariants } from "./invariants.ts";
import { EMPTY, isSame, type Place, readSnapshot, type Snapshot } from "./snapshot.ts";

/** Users that events belong to. */
export const USERS = ["a", "b", "c"] as const;

/** Who has webhooks: the operator, and two customers, who are users. */
export const OWNERS = [null, USERS[0], USERS[1]] as const;

/** A filter of a webhook, and what it matches. */
export interface ModelFilter {
  expression: string;
  matches(userId: string): boolean;
}

/** Filters that fit events of every type. */
export const FILTERS: readonly ModelFilter[] = [
  { expression: "user_id == 'a'", matches: (userId) => userId === "a" },
  { expression: "user_id != 'a'", matches: (userId) => userId !== "a" },
  { expression: "false", matches: () => false },
];

/** A webhook as it should be. */
export interface ModelWebhook {
  readonly id: bigint;
  /** Null for the operator. */
  readonly customer: string | null;
  readonly process: number;
  url: string;
  live: boolean;
  /** By a user. */
  paused: boolean;
  filter: ModelFilter | null;
}

/** An event as it should be. */
export interface ModelEvent {
  readonly id: string;
  readonly process: number;
  readonly userId: string;
  readonly test: boolean;
  readonly recipients: Set<bigint>;
  erased: boolean;
  /** Whether retention has left its payload, because a delivery was open. */
  kept?: boolean;
}

/** Whether an event is for a webhook: one of the operator, or of the event's customer. */
export const isFor = (
  { process, userId }: Pick<ModelEvent, "process" | "userId">,
  webhook: ModelWebhook,
): boolean => webhook.process === process && (webhook.customer ?? userId) === userId;

/** A claimed delivery that a worker knows. */
export interface Held {
  readonly delivery: ClaimedDelivery;
  /** Whether the payload was erased at the claim. */
  readonly erased: boolean;
  /** Whether the webhook's filter at the claim does not match. */
  readonly unmatched: boolean;
  posted: boolean;
  /** Whether the worker has begun to release it, and sends it no more. */
  released: boolean;
}

/** A worker id, and what its process knows to hold under it. */
export interface ModelWorker {
  readonly id: number;
  /**
   * `retired`: the answer to a call was lost, so the process claims under another id, and removes this one when it holds
   * nothing more. `dead`: another process has ended the lease; the process may still hear of its requests.
   */
  state: "working" | "retired" | "removed" | "dead";
  readonly held: Held[];
  /** The cache of its process. */
  readonly webhooks: ClaimedWebhooks;
}

/** A replay as it should be. */
export interface ModelReplay {
  readonly id: string;
  readonly kind: "resend" | "backfill";
  readonly filter: ReplayFilter;
  state: "running" | "paused" | "ended";
  /** The ids of the deliveries that it has queued. */
  readonly queued: Set<string>;
  /** Where deliveries were when it was started. */
  readonly places: ReadonlyMap<string, Place>;
  /** The ids of the deliveries that have changed since then. */
  readonly changed: Set<string>;
}

/** What a step does to deliveries. */
export interface Effect {
  /** Whether a delivery may change so; null stands for one that is not there. */
  may(before: Place | null, after: Place | null): boolean;
  /** How many change. Any number unless given. */
  changes?: number | undefined;
  /** Told of each change before invariants are checked. */
  note?(before: Place | null, after: Place | null): void;
  /** Whether it replaces the probe of a circuit breaker that may be in flight. Not unless given. */
  replacesProbes?: boolean;
}

/** Opens after the first failure that is a minute old. */
export const BREAKER = { ...SETTINGS, failures: 1, failingSeconds: 60, resendFailed: true };

export const NO_EFFECT: Effect = { may: () => false, changes: 0 };

/** Ends open deliveries for a reason, without an attempt. */
export function ends(chosen: readonly { id: string }[], reason: string): Effect {
  const ids = new Set(chosen.map(({ id }) => id));
  return {
    may: (before, after) =>
      before !== null &&
      ids.has(before.id) &&
      after?.reason === reason &&
      after.attempts === before.attempts &&
      after.roundStart === before.roundStart,
    changes: ids.size,
  };
}

/** What should be, kept apart from the code under test, and compared with the database after every step. */
export class StorageModel {
  readonly db: Db;
  readonly secrets = createSecretBox(randomBytes(32));
  readonly webhooks: ModelWebhook[] = [];
  readonly workers: ModelWorker[] = [];
  readonly events = new Map<string, ModelEvent>();
  readonly replays: ModelReplay[] = [];
  /** Who sent an attempt last. */
  readonly posts = new Map<string, ModelWorker>();
  /** The steps so far, each with what it changed. */
  readonly log: string[] = [];
  steps = 0;
  /** How often something happened, such as a change from one state to another. */
  readonly counts = new Map<string, number>();
  /** Of the operator, and of each customer. */
  readonly keys = new Map<string | null, string>();
  runId = 0;
  #now: Snapshot = EMPTY;
  readonly #names = new Map<string, string>();

  constructor(db: Db) {
    this.db = db;
  }

  async start(): Promise<void> {
    for (const customer of OWNERS) this.keys.set(customer, (await aKey({ customer }).in(this.db)).id);
    await this.openRun();
    for (let n = 0; n < 2; n += 1) await this.addWorker();
    // Enough that most steps find something to do.
    for (const [n, customer] of [null, null, USERS[0]].entries()) {
      const url = `https://receiver.example/${n}`;
      const { webhook } = await createWebhook(
        this.db,
        this.secrets,
        this.registration(customer, 1, url),
        1_000,
      );
      this.addWebhook(webhook.id, customer, 1, url);
      if (n === 0) await updateWebhook(this.db, "everything", webhook.id, { breaker: BREAKER });
    }
    await this.check(NO_EFFECT);
  }

  /** Calls with a fault. */
  call<T>(fault: Fault, work: (on: Db) => Promise<T>): Promise<Call<T>> {
    if (fault === "answer lost") this.log.push("    the answer is lost");
    else if (fault !== null) this.log.push(`    statement ${fault} is not run`);
    return call(this.db, fault, work);
  }

  /** Calls again until there is an answer, as callers do. */
  async callUntilAnswered<T>(fault: Fault, work: (on: Db) => Promise<T>): Promise<T> {
    const { heard, answer } = await this.call(fault, work);
    return heard ? answer : work(this.db);
  }

  /** A webhook to register with the key of its owner. */
  registration(customer: string | null, process: number, url: string): NewWebhook {
    return { process, url, targetUrl: url, customer, apiKeyId: this.keys.get(customer) as string };
  }

  addWebhook(id: bigint, customer: string | null, process: number, url: string): void {
    this.webhooks.push({ id, customer, process, url, live: true, paused: false, filter: null });
  }

  get apiKeyId(): string {
    return this.keys.get(null) as string;
  }

  addEvent(event: Omit<ModelEvent, "recipients" | "erased">, recipients: readonly ModelWebhook[]): void {
    const ids = new Set(recipients.map(({ id }) => id));
    this.events.set(event.id, { ...event, recipients: ids, erased: false });
  }

  async openRun(): Promise<void> {
    const wish = { workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs: 600_000 };
    const [run] = await openRuns(this.db, [wish]);
    this.runId = (run as OpenRun).id;
  }

  async addWorker(): Promise<ModelWorker> {
    const id = await freshWorker(this.db, "model", 600_000);
    const worker: ModelWorker = { id, state: "working", held: [], webhooks: new ClaimedWebhooks() };
    this.workers.push(worker);
    return worker;
  }

  /** The process claims under another id from now on: under this one, deliveries may be claimed that it does not know. */
  async retire(worker: ModelWorker): Promise<void> {
    if (worker.state !== "working") return;
    worker.state = "retired";
    await this.addWorker();
  }

  get now(): Snapshot {
    return this.#now;
  }

  get places(): Place[] {
    return [...this.#now.places.values()];
  }

  /** Deliveries that have not ended. */
  get open(): Place[] {
    return this.places.filter(({ table }) => table !== "deliveries");
  }

  place(id: string): Place | undefined {
    return this.#now.places.get(id);
  }

  webhook(id: bigint): ModelWebhook {
    return this.webhooks.find((webhook) => webhook.id === id) as ModelWebhook;
  }

  eventOf({ eventId }: { eventId: string }): ModelEvent {
    return this.events.get(eventId) as ModelEvent;
  }

  get liveWebhooks(): ModelWebhook[] {
    return this.webhooks.filter(({ live }) => live);
  }

  /** Workers that may claim. */
  get working(): ModelWorker[] {
    return this.workers.filter(({ state }) => state === "working");
  }

  /** Whether a claim on a delivery holds. */
  isHeld({ claimedBy }: Place): boolean {
    return this.workers.some(({ id, state }) => id === claimedBy && isAlive(state));
  }

  /** Whether the result of a claim counts. */
  matches(worker: ModelWorker, { delivery: { id, token } }: Held): boolean {
    const place = this.place(id);
    return place?.claimedBy === worker.id && place.table === token.table && place.attempts === token.attempts;
  }

  /** Notes that a worker sends a delivery. An attempt is repeated only if its first sender is lost. */
  post(worker: ModelWorker, held: Held): void {
    const { id, token, webhook } = held.delivery;
    const place = this.place(id);
    if (isAlive(worker.state)) {
      expect(place, "a POST without a row").toBeDefined();
      expect(place).toMatchObject({ table: token.table, claimedBy: worker.id, attempts: token.attempts });
    }
    const { userId, test } = this.eventOf(held.delivery);
    expect([null, userId], "a POST to another customer").toContain(this.webhook(webhook.id).customer);
    expect(held.erased, "a POST without a payload").toBe(false);
    const filter = FILTERS.find(({ expression }) => expression === webhook.filter);
    if (token.table === "queue" && filter && !test)
      expect(filter.matches(userId), "a POST that the filter at the claim does not match").toBe(true);
    const attempt = `attempt ${token.attempts + 1} of ${this.nameOf(id)}`;
    const sender = this.posts.get(attempt);
    if (sender) expect(sender.state, `${attempt} is sent twice`).toBe("dead");
    this.posts.set(attempt, worker);
    held.posted = true;
  }

  /** Takes note that a worker no longer holds a delivery. */
  settle(worker: ModelWorker, held: Held): void {
    worker.held.splice(worker.held.indexOf(held), 1);
  }

  /** Compares the database with what a step may have done, and checks everything that always holds. */
  async check(effect: Effect): Promise<void> {
    const [before, after] = [this.#now, await readSnapshot(this.db)];
    const changed: Change[] = [];
    for (const id of new Set([...before.places.keys(), ...after.places.keys()])) {
      const change: Change = [before.places.get(id) ?? null, after.places.get(id) ?? null];
      if (isSame(...change)) continue;
      changed.push(change);
      for (const replay of this.replays) replay.changed.add(id);
      const inWords = `${this.nameOf(id)}: ${change.map((place) => this.#inWords(place)).join(" → ")}`;
      this.log.push(`    ${inWords}`);
      expect(effect.may(...change), inWords).toBe(true);
      this.count(change.map(stateOf).join(" → "));
      effect.note?.(...change);
    }
    if (effect.changes !== undefined) expect(changed.length, "changed deliveries").toBe(effect.changes);
    expectInvariants(this, before, after, changed, effect.replacesProbes ?? false);
    this.#now = after;
  }

  /** Counts that something happened. */
  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** Removes retired ids under which nothing is held, as their processes do. */
  async removeRetired(): Promise<void> {
    for (const worker of this.workers) {
      if (worker.state !== "retired" || worker.held.length > 0) continue;
      await removeWorker(this.db, worker.id);
      worker.state = "removed";
    }
  }

  /** A short name of a delivery. */
  nameOf(id: string): string {
    let name = this.#names.get(id);
    if (!name) {
      name = `delivery ${this.#names.size + 1}`;
      this.#names.set(id, name);
    }
    return name;
  }

  #inWords(place: Place | null): string {
    if (!place) return "none";
    const { webhookId, attempts, claims, claimedBy } = place;
    const claim = claimedBy === null ? "" : `, claimed by worker ${claimedBy}`;
    return `${stateOf(place)} of webhook ${webhookId} (attempts ${attempts}, claims ${claims}${claim})`;
  }
}

export const isAlive = (state: ModelWorker["state"]) => state === "working" || state === "retired";

const stateOf = (place: Place | null) => place?.reason ?? place?.outcome ?? place?.table ?? "none";
