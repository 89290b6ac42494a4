import { randomBytes } from "node:crypto";
import fc from "fast-check";
import { expect } from "vitest";
import { decideBreakers } from "../../src/breakers/decide.ts";
import { customerScope } from "../../src/calls/scope.ts";
import { fanOutStep } from "../../src/events/fan-out.ts";
import { publishEvents } from "../../src/events/publish.ts";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { sendManyAgain } from "../../src/log/send-again.ts";
import {
  type Claimant,
  type ClaimedDelivery,
  claimDue,
  claimPending,
  release,
} from "../../src/queue/claims.ts";
import { loadContents } from "../../src/queue/event-contents.ts";
import { adoptRetries, assignGroups, settleGroups } from "../../src/queue/retry-groups.ts";
import { removeWorker } from "../../src/queue/workers.ts";
import { insertReplay } from "../../src/replays/replays.ts";
import { endReplay, keepReplay } from "../../src/replays/running.ts";
import { findReady, listWebhooksOf, stepWebhook } from "../../src/replays/steps.ts";
import { createEndpoint } from "../../src/webhooks/endpoints.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { createWebhook } from "../../src/webhooks/webhooks.ts";
import { SETTINGS } from "../breakers/breakers.ts";
import { aKey } from "../support/builders.ts";
import { anEvent } from "../support/new-event.ts";
import { foldAll, freshClaimant, record } from "./queue.ts";

/** The numbers of customers and events of a history, and of the steps between them. */
export interface Size {
  customers: number;
  events: number;
  steps: number;
}

const PROCESSES = [1, 2, 3];
const EVENTS_PER_CALL = 100;
const LIMITS = { retentionDays: 30, settledMs: -60_000 };
/** Few, so that events of one type are fanned out in steps, too. */
const MAX_INLINE = 4;
const box = createSecretBox(randomBytes(32));

/** A number below another, from chance. */
type Chance = (below: number) => number;

/** Customers and the operator, whose webhooks get events in all ways that there are. */
class World {
  readonly #db: Db;
  readonly #size: Size;
  readonly #chance: Chance;
  readonly #keys = new Map<string | null, string>();
  readonly #webhooks: { id: bigint; customer: string | null }[] = [];
  #claimant: Claimant | undefined;
  readonly counts = { sent: 0, ofCustomers: 0, backfilled: 0, replayed: 0, again: 0 };

  constructor(db: Db, size: Size, chance: Chance) {
    this.#db = db;
    this.#size = size;
    this.#chance = chance;
  }

  async play(): Promise<void> {
    for (let n = 0; n < 3; n += 1) await this.#register(null);
    for (let n = 0; n < this.#size.customers; n += 2) await this.#register(`customer ${n}`);
    const each = Math.ceil(this.#size.events / this.#size.steps);
    const all = [
      () => this.#register(this.#anyOwner()),
      () => this.#deliver(),
      () => this.#retry(),
      () => this.#sendAgain(),
      () => this.#replay("resend"),
      () => this.#replay("backfill"),
      () => this.#decide(),
      () => this.#test(),
      () => this.#crash(),
    ];
    for (let step = 0; step < this.#size.steps; step += 1) {
      await this.#publish(each);
      for (let n = 0; n < 3; n += 1) await all[this.#chance(all.length)]?.();
      await this.#fanOut();
      await this.#deliver();
      await this.expectApart();
    }
    await this.#retry();
    for (let n = 0; n < 5; n += 1) await this.#replay("backfill");
    await this.#deliver();
    await this.expectApart();
    await this.#expectComplete();
  }

  /** No delivery, wherever it is, is of an event of another customer than its webhook's. */
  async expectApart(): Promise<void> {
    const crossed = await rows(
      this.#db,
      `select d.id from all_deliveries d join webhooks w on w.id = d.webhook_id join events e on e.id = d.event_id
        where w.customer <> e.user_id limit 5`,
    );
    expect(crossed, "deliveries outside their customer").toEqual([]);
  }

  /** Every event came to each live webhook that is older than it. */
  async #expectComplete(): Promise<void> {
    const missing = await rows(
      this.#db,
      `select e.id, w.id as webhook from webhooks w join events e on e.process = w.process and not e.test
          and coalesce(w.customer, e.user_id) = e.user_id and time_of_id(e.id) > w.created
        where not exists (select from all_deliveries d where d.event_id = e.id and d.webhook_id = w.id) limit 5`,
    );
    expect(missing, "events that a webhook did not get").toEqual([]);
  }

  #anyOwner(): string | null {
    return this.#chance(10) === 0 ? null : `customer ${this.#chance(this.#size.customers)}`;
  }

  #anyWebhook() {
    return this.#webhooks[this.#chance(this.#webhooks.length)] as { id: bigint; customer: string | null };
  }

  /** A webhook or an endpoint, some with a breaker, at a URL that others have registered, too. */
  async #register(customer: string | null): Promise<void> {
    const apiKeyId = this.#keys.get(customer) ?? (await aKey({ customer }).in(this.#db)).id;
    this.#keys.set(customer, apiKeyId);
    const { length } = this.#webhooks.filter((each) => each.customer === customer);
    const url = `https://receiver.example/${length}`;
    const at = { url, targetUrl: url, apiKeyId, customer };
    const process = PROCESSES[this.#chance(PROCESSES.length)] as number;
    const made =
      this.#chance(3) === 0
        ? (
            await createEndpoint(
              this.#db,
              box,
              "everything",
              { ...at, name: null, processes: PROCESSES },
              1e6,
            )
          ).webhooks
        : [(await createWebhook(this.#db, box, { ...at, process }, 1e6)).webhook];
    for (const { id } of made) this.#webhooks.push({ id, customer });
    if (this.#chance(3) > 0) return;
    const breaker = { ...SETTINGS, failures: 1, failingSeconds: 0, probeSeconds: 1, resendFailed: true };
    await updateWebhook(this.#db, "everything", (made[0] as { id: bigint }).id, { breaker });
  }

  async #publish(events: number): Promise<void> {
    for (let left = events; left > 0; left -= EVENTS_PER_CALL) {
      const some = Array.from({ length: Math.min(left, EVENTS_PER_CALL) }, () =>
        anEvent({
          process: PROCESSES[this.#chance(PROCESSES.length)] as number,
          userId: `customer ${this.#chance(this.#size.customers)}`,
        }),
      );
      await publishEvents(this.#db, some, MAX_INLINE);
    }
  }

  async #fanOut(): Promise<void> {
    while (await fanOutStep(this.#db));
  }

  /** What a worker would send. A quarter fails. */
  async #send(deliveries: readonly ClaimedDelivery[]): Promise<void> {
    if (deliveries.length === 0) return;
    const eventIds = [...new Set(deliveries.map(({ eventId }) => eventId))];
    const contents = await loadContents(this.#db, eventIds, { maxBytes: 1e9, alone: true });
    for (const { eventId, webhook } of deliveries) {
      const userId = contents.get(eventId)?.userId;
      expect(userId, "the payload of a claimed delivery").toBeDefined();
      if (webhook.customer === null) continue;
      expect(userId, "a POST to another customer").toBe(webhook.customer);
      this.counts.ofCustomers += 1;
    }
    this.counts.sent += deliveries.length;
    const parts = Object.groupBy(deliveries, () => (this.#chance(4) === 0 ? "failed" : "delivered"));
    await record(this.#db, parts.failed ?? [], 500);
    await record(this.#db, parts.delivered ?? [], 200);
  }

  async #worker(): Promise<Claimant> {
    this.#claimant ??= await freshClaimant(this.#db);
    return this.#claimant;
  }

  async #deliver(): Promise<void> {
    const worker = await this.#worker();
    for (let after = 0n, more = true; more; ) {
      const { deliveries, next } = await claimPending(this.#db, worker, {
        limit: 1_000,
        after,
        excluded: [],
      });
      await this.#send(deliveries);
      more = deliveries.length > 0 || next !== null;
      after = next ?? 0n;
    }
  }

  async #retry(): Promise<void> {
    const { runId, workerId } = await this.#worker();
    const numbers = new Set((await assignGroups(this.#db, runId)).map(({ group }) => group));
    const groups = [...numbers].map((group) => ({ runId, group }));
    for (let n = 0; n < 4; n += 1)
      await this.#send(
        (await claimDue(this.#db, workerId, { groups, limit: 1_000, excluded: [] })).deliveries,
      );
    await settleGroups(this.#db, groups);
  }

  /** Another worker goes on with what was claimed. */
  async #crash(): Promise<void> {
    const { workerId } = await this.#worker();
    const claimed = await claimPending(this.#db, await this.#worker(), {
      limit: 50,
      after: 0n,
      excluded: [],
    });
    if (this.#chance(2) === 0) return release(this.#db, workerId, claimed.deliveries);
    await removeWorker(this.#db, workerId);
    await this.#db("runs").update({ closed: this.#db.fn.now() });
    this.#claimant = await freshClaimant(this.#db);
    while ((await adoptRetries(this.#db, this.#claimant.runId)) > 0);
  }

  async #sendAgain(): Promise<void> {
    const { id, customer } = this.#anyWebhook();
    const scope = customer === null || this.#chance(2) === 0 ? "everything" : customerScope(customer);
    const states = ["failed", "delivered"] as const;
    const limits = { limit: 100, retentionDays: LIMITS.retentionDays };
    this.counts.again += (await sendManyAgain(this.#db, scope, { webhookId: id, states }, limits)).sent;
  }

  async #replay(kind: "resend" | "backfill"): Promise<void> {
    const { id: webhookId, customer } = this.#anyWebhook();
    const scope = customer === null || this.#chance(2) === 0 ? "everything" : customerScope(customer);
    const states = kind === "resend" ? (["failed", "delivered"] as const) : [];
    const replay = {
      apiKeyId: this.#keys.get(customer) as string,
      idempotencyKey: randomBytes(8).toString("hex"),
      kind,
      // A customer's replay of all its webhooks, too.
      filter: kind === "resend" && scope !== "everything" ? { states } : { states, webhookId },
    };
    const until = new Date(Date.now() + 1_000);
    const { id } = await insertReplay(this.#db, scope, replay, LIMITS.retentionDays, until);
    for (let n = 0; n < 50; n += 1) {
      const running = await keepReplay(this.#db, id);
      if (!running) break;
      if (running.listedTo !== null) await listWebhooksOf(this.#db, running);
      await this.#db("replay_webhooks").where({ replay_id: id }).update({ due: this.#db.fn.now() });
      for (const ready of (await findReady(this.#db, id)).ready) {
        const step = await stepWebhook(this.#db, running, ready, LIMITS);
        this.counts[kind === "resend" ? "replayed" : "backfilled"] += step?.queued ?? 0;
      }
      await this.#deliver();
      if (await endReplay(this.#db, id)) break;
    }
  }

  /** Breakers open, probe, close, and send again. */
  async #decide(): Promise<void> {
    await foldAll(this.#db);
    await this.#db("webhook_breakers").update({ due: this.#db.fn.now() });
    await decideBreakers(this.#db, 30);
    await this.#deliver();
  }

  async #test(): Promise<void> {
    const { id: webhookId, customer } = this.#anyWebhook();
    const event = { apiKeyId: this.#keys.get(customer) as string, webhookId, process: 1, payload: "{}" };
    await queueTestEvent(this.#db, "everything", event);
  }
}

/** Whatever happens, no delivery leaves its customer. Returns what has happened, over all histories. */
export async function expectApart(open: () => Promise<Db>, size: Size, runs: number) {
  const total = { sent: 0, ofCustomers: 0, backfilled: 0, replayed: 0, again: 0 };
  await fc.assert(
    fc.asyncProperty(fc.infiniteStream(fc.nat()), async (numbers) => {
      const world = new World(await open(), size, (below) => (numbers.next().value as number) % below);
      await world.play();
      for (const [name, n] of Object.entries(world.counts)) total[name as keyof typeof total] += n;
    }),
    { numRuns: runs, endOnFailure: true },
  );
  return total;
}
