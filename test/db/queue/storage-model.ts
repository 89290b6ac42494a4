import { randomBytes, randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { BreakerSettings } from "../../../src/db/circuit-breaker/breakers.ts";
import { type Db, rows } from "../../../src/db/database.ts";
import { imbalance, readLedger } from "../../../src/db/deliveries/ledger.ts";
import { countsSince } from "../../../src/db/deliveries/rollups.ts";
import type { ClaimedDelivery } from "../../../src/db/queue/claims.ts";
import { openRuns } from "../../../src/db/queue/runs.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { freshWorker } from "./queue.ts";

/** Where a delivery is, as the database has it. */
export interface Place {
  id: string;
  eventId: string;
  webhookId: bigint;
  table: "queue" | "retries" | "deliveries";
  attempts: number;
  roundStart: number;
  claimedBy: number | null;
  outcome: string | null;
  /** A retry that is not due for longer than any history takes. */
  waits: boolean;
}

/** A webhook as the model knows it. */
export interface ModelWebhook {
  id: bigint;
  process: number;
  live: boolean;
  paused: boolean;
}

/** A worker, and what it holds by its own account. */
export interface ModelWorker {
  id: number;
  alive: boolean;
  held: { delivery: ClaimedDelivery; posted: boolean }[];
}

/** An attempt that was sent. */
interface Post {
  delivery: string;
  number: number;
  worker: ModelWorker;
}

/** What a command may do to a delivery; null stands for one that is not there. */
export type Allowed = (before: Place | null, after: Place | null) => boolean;

/** Opens after the first failure that is a minute old. */
const BREAKER: BreakerSettings = {
  failures: 1,
  failingSeconds: 60,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: true,
};

/** What should be, kept apart from the code under test, and compared with the database after every step. */
export class StorageModel {
  readonly webhooks: ModelWebhook[] = [];
  readonly workers: ModelWorker[] = [];
  /** Recipients by event, fixed when it was published. */
  readonly recipients = new Map<string, Set<bigint>>();
  readonly posts: Post[] = [];
  readonly secrets = createSecretBox(randomBytes(32));
  readonly db: Db;
  apiKeyId = "";
  runId = 0;
  #places = new Map<string, Place>();

  constructor(db: Db) {
    this.db = db;
  }

  async start(): Promise<void> {
    this.apiKeyId = randomUUID();
    await this.db("api_keys").insert({
      id: this.apiKeyId,
      name: "model",
      prefix: "p",
      secret_sha256: randomBytes(32),
      permissions: [1],
    });
    await this.newRun();
    for (let n = 0; n < 2; n += 1) this.workers.push(await this.newWorker());
    // Enough that most steps find something to do.
    for (let n = 0; n < 2; n += 1) {
      const url = `https://receiver.example/${n}`;
      const registration = { process: 1, url, targetUrl: url, apiKeyId: this.apiKeyId };
      const { webhook } = await createWebhook(this.db, this.secrets, registration, 1_000);
      await updateWebhook(this.db, "everything", webhook.id, { breaker: BREAKER });
      this.webhooks.push({ id: webhook.id, process: 1, live: true, paused: false });
    }
  }

  async newRun(): Promise<void> {
    const [runId] = await openRuns(this.db, [
      { workflowId: randomUUID(), firstRunId: randomUUID(), leaseMs: 600_000 },
    ]);
    this.runId = runId as number;
  }

  /** Retries of the run. */
  async retriesOfRun(): Promise<number> {
    const [found] = await rows<{ n: number }>(
      this.db,
      "select count(*)::int as n from retries where run_id = :runId::int",
      { runId: this.runId },
    );
    return found?.n ?? 0;
  }

  /** Every retry that is due and may be sent has the run that is open, once it has adopted what others left. */
  async checkAdopted(): Promise<void> {
    const left = await rows(
      this.db,
      `select t.id from retries t join webhooks w on w.id = t.webhook_id
        where t.due <= now() and t.run_id is distinct from :runId::int and w.paused is null and w.deleted is null`,
      { runId: this.runId },
    );
    expect(left).toEqual([]);
  }

  /** The one delivery of each webhook that its circuit breaker holds back that may be claimed; null for none. */
  async heldBack(): Promise<Map<bigint, { id: string; attempts: number | null } | null>> {
    const found = await rows<{ webhookId: bigint; id: string | null; attempts: number | null }>(
      this.db,
      `select w.id as "webhookId", w.test_delivery as id, w.probe_attempts as attempts
        from webhooks w join webhook_breakers b on b.webhook_id = w.id where b.state <> 'closed' and w.deleted is null`,
    );
    return new Map(
      found.map(({ webhookId, id, attempts }) => [webhookId, id === null ? null : { id, attempts }]),
    );
  }

  async newWorker(): Promise<ModelWorker> {
    return { id: await freshWorker(this.db, "model", 600_000), alive: true, held: [] };
  }

  get places(): Place[] {
    return [...this.#places.values()];
  }

  place(id: string): Place | undefined {
    return this.#places.get(id);
  }

  webhook(id: bigint): ModelWebhook {
    return this.webhooks.find((webhook) => webhook.id === id) as ModelWebhook;
  }

  live(process: number): ModelWebhook[] {
    return this.webhooks.filter((webhook) => webhook.live && webhook.process === process);
  }

  /** Whether a claim on a delivery still holds. */
  isHeld({ claimedBy }: Place): boolean {
    return claimedBy !== null && this.workers.some(({ id, alive }) => alive && id === claimedBy);
  }

  /** Takes note that a worker sends what it holds. An attempt is repeated only after its first sender is lost. */
  post(worker: ModelWorker, held: ModelWorker["held"][number]): void {
    const { id, token } = held.delivery;
    const place = this.#places.get(id);
    if (worker.alive) {
      expect(place, "a POST without a row").toBeDefined();
      expect(place).toMatchObject({ table: token.table, claimedBy: worker.id, attempts: token.attempts });
    }
    const number = token.attempts + 1;
    const earlier = this.posts.filter((post) => post.delivery === id && post.number === number);
    for (const post of earlier)
      expect(post.worker.alive, `attempt ${number} of ${id} is sent twice`).toBe(false);
    this.posts.push({ delivery: id, number, worker });
    held.posted = true;
  }

  /** Compares the database with what a step may have done, and checks everything that always holds. */
  async check(allowed: Allowed): Promise<void> {
    const now = await this.#read();
    for (const id of new Set([...this.#places.keys(), ...now.keys()])) {
      const [before, after] = [this.#places.get(id) ?? null, now.get(id) ?? null];
      if (JSON.stringify(before, big) === JSON.stringify(after, big)) continue;
      expect(
        allowed(before, after),
        `${JSON.stringify(before, big)} became ${JSON.stringify(after, big)}`,
      ).toBe(true);
    }
    this.#places = now;
    const ledger = await readLedger(this.db);
    expect(imbalance(ledger)).toBe(0n);
    await this.#checkRecipients();
  }

  async #read(): Promise<Map<string, Place>> {
    const found = await rows<Place>(
      this.db,
      `select id, event_id as "eventId", webhook_id as "webhookId", 'queue' as table, attempts, attempts as "roundStart",
          claimed_by as "claimedBy", null as outcome, false as waits from queue
        union all select id, event_id, webhook_id, 'retries', attempts, round_start, claimed_by, null,
          due > now() + interval '1 hour' from retries
        union all select id, event_id, webhook_id, 'deliveries', attempts, round_start, null, outcome::text, false
          from deliveries`,
    );
    const places = new Map(found.map((place) => [place.id, place]));
    expect(places.size, "a delivery is in two tables").toBe(found.length);
    return places;
  }

  /** Every event has its recipients, each once, but for those that are still to be fanned out. */
  async #checkRecipients(): Promise<void> {
    const waiting = await rows<{ event_id: string; remaining: number }>(
      this.db,
      "select event_id, remaining from fan_out",
    );
    const remaining = new Map(waiting.map(({ event_id, remaining: left }) => [event_id, left]));
    const byEvent = Map.groupBy(this.places, ({ eventId }) => eventId);
    for (const [eventId, recipients] of this.recipients) {
      const got = (byEvent.get(eventId) ?? []).map(({ webhookId }) => webhookId);
      expect(new Set(got).size, "a webhook gets an event twice").toBe(got.length);
      for (const id of got)
        expect(recipients.has(id), "a webhook gets an event that is not for it").toBe(true);
      expect(got.length + (remaining.get(eventId) ?? 0)).toBe(recipients.size);
    }
  }

  /** Statistics are those of the log and its attempts, per webhook. */
  async checkStatistics(): Promise<void> {
    const counted = await rows(
      this.db,
      `select webhook_id, sum(attempts)::int as attempts, sum(delivered)::int as delivered, sum(failed)::int as failed,
          sum(cancelled)::int as cancelled
        from (${countsSince("hour", "webhook_id > 0", "true")}) c group by 1
        having sum(attempts) + sum(delivered) + sum(failed) + sum(cancelled) > 0 order by 1`,
    );
    const real = await rows(
      this.db,
      `select webhook_id, sum(tried)::int as attempts, (count(*) filter (where state = 'delivered'))::int as delivered,
          (count(*) filter (where state = 'failed'))::int as failed, (count(*) filter (where state = 'cancelled'))::int as cancelled
        from (
          select d.webhook_id, d.state, (select count(*) from all_attempts a where a.delivery_id = d.id) as tried
          from all_deliveries d
        ) d group by 1 having sum(tried) > 0 or count(*) filter (where state in ('delivered', 'failed', 'cancelled')) > 0 order by 1`,
    );
    expect(counted).toEqual(real);
  }

  /** Attempts are numbered from 1 without a gap, as many as the delivery says. */
  async checkAttempts(): Promise<void> {
    const wrong = await rows(
      this.db,
      `select d.id, d.attempts from all_deliveries d left join all_attempts a on a.delivery_id = d.id
        group by d.id, d.attempts having count(a.number) <> d.attempts or coalesce(max(a.number), 0) <> d.attempts`,
    );
    expect(wrong).toEqual([]);
  }
}

const big = (_key: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);
