import { randomUUID } from "node:crypto";
import { ensurePartitions } from "../../src/db/partitions.ts";
import { idAt, idBeside, type Stored, storeDeliveries } from "../support/stored-deliveries.ts";
import type { TestService } from "../support/test-service.ts";
import { fateOf, type Registered } from "./busy-receivers.ts";

const MINUTE_MS = 60_000;
const DAY_MINUTES = 24 * 60;
/** Two days: the overview compares the last one with the day before. */
const MINUTES = 2 * DAY_MINUTES;
/** The number of events of the day before, divided by that of the last day. */
const DAY_BEFORE = 0.9;
/** A run that has nothing to retry is over so soon, in milliseconds. */
const SHORTEST_RUN_MS = 120;
const ROWS = 2_000;
const RETENTION_DAYS = 30;

/** Chance that is the same each time: a linear congruential generator. */
function chances(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

function payloadOf(process: number, number: number, at: Date): string {
  const time = at.toISOString().slice(0, 19);
  const payloads = [
    {
      OrderId: number,
      OrderNumber: `SO-${number}`,
      DispatchedAt: time,
      Carrier: "Parcel Post",
      TrackingNumber: `PP${number}0042NL`,
      Lines: [
        { ProductId: 7, Sku: "LAMP-01", Quantity: 2 },
        { ProductId: 31, Sku: "SHADE-04-GREEN", Quantity: 1 },
      ],
    },
    {
      DocumentId: number,
      Kind: "Invoice",
      Number: `INV-2026-${number}`,
      CreatedAt: time,
      OrderId: number - 4_000,
      TotalMinor: 12_995,
      Currency: "EUR",
    },
    {
      ProductId: 7,
      Sku: "LAMP-01",
      Location: "Rotterdam",
      PreviousLevel: 42 + (number % 90),
      Level: 40 + (number % 90),
      ChangedAt: time,
    },
  ];
  return JSON.stringify(payloads[process - 1]);
}

/** A run, and what came of it so far. */
interface Run {
  workflow_id: string;
  first_run_id: string;
  started: Date;
  lease_until: Date;
  closed: Date | null;
  sent: number;
  delivered: number;
  failed: number;
}

/** The runs of both days, one at each whole minute, the oldest first; each is over, and did nothing so far. */
function idleRuns(now: number): Run[] {
  const last = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  return Array.from({ length: MINUTES }, (_, n) => {
    const minute = last - (MINUTES - 1 - n) * MINUTE_MS;
    return {
      workflow_id: `dispatch-pending-deliveries-${new Date(minute).toISOString().slice(0, 19)}Z`,
      first_run_id: randomUUID(),
      started: new Date(minute),
      lease_until: new Date(now + 60 * MINUTE_MS),
      closed: new Date(minute + SHORTEST_RUN_MS),
      sent: 0,
      delivered: 0,
      failed: 0,
    };
  });
}

/**
 * Makes up the last 48 hours: events, their deliveries and attempts, and the runs that made them.
 *
 * @param publisher the id of the key that the events were published with
 * @returns the id of a delivery that arrived with its third attempt
 */
export async function addDays(
  service: TestService,
  webhooks: readonly Registered[],
  publisher: string,
): Promise<string> {
  const chance = chances(7);
  const now = Date.now();
  const events: object[] = [];
  const deliveries: { delivery: Stored; run: Run | undefined }[] = [];
  const runs = idleRuns(now);
  let number = 47_000;
  let shown = "";

  function deliver(webhook: Registered, event: string, created: number): void {
    const id = idBeside(event);
    // The first run after the event was published claims what waits.
    const run = runs.find(({ started }) => started.getTime() >= created);
    const claim = run ? run.started.getTime() + SHORTEST_RUN_MS * chance() : Number.POSITIVE_INFINITY;
    const { state, attempts, at } = fateOf(webhook, claim, now, chance);
    const done = state === "delivered" || state === "failed";
    // A run leaves the retries of a webhook that was paused meanwhile.
    const left = !done && at > (webhook.paused?.getTime() ?? Number.POSITIVE_INFINITY);
    const claimed = run !== undefined && state !== "pending";
    deliveries.push({
      delivery: {
        id,
        eventId: event,
        webhookId: webhook.id,
        state,
        tried: attempts,
        ...(done ? { finished: new Date(at) } : {}),
        ...(state === "retrying" ? { retryAt: new Date(at) } : {}),
      },
      run: claimed && !left ? run : undefined,
    });
    if (state === "delivered" && attempts.length === 3 && webhook.process === 1) shown = id;
    if (!claimed) return;
    run.sent += attempts.length;
    if (state === "delivered") run.delivered += 1;
    if (state === "failed") run.failed += 1;
    if (left) return;
    // A run is open until each of its deliveries has come to an end.
    if (!done) run.closed = null;
    else if (run.closed) run.closed = new Date(Math.max(run.closed.getTime(), at));
  }

  for (let minute = 0; minute < MINUTES; minute += 1) {
    const start = now - (MINUTES - minute) * MINUTE_MS;
    // Shops are busy in the afternoon and sleep at night; now is taken for two o'clock.
    const busy = 0.15 + 0.85 * Math.max(0, Math.cos((minute / DAY_MINUTES) * 2 * Math.PI));
    const part = minute < DAY_MINUTES ? DAY_BEFORE : 1;
    for (let n = 0; n < 2 && chance() < part * busy; n += 1) {
      const created = new Date(start + MINUTE_MS * chance());
      const process = 1 + Math.floor(3 * chance());
      const event = idAt(created);
      number += 1;
      const subscribed = webhooks.filter((webhook) => webhook.process === process);
      const payload = payloadOf(process, number, created);
      events.push({
        id: event,
        api_key_id: publisher,
        idempotency_key: `event-${number}`,
        process,
        user_id: `tenant-${1 + (number % 40)}`,
        occurred: created,
        recipients: subscribed.length,
        payload,
      });
      for (const webhook of subscribed) deliver(webhook, event, created.getTime());
    }
  }
  const { db } = service;
  const days = [2, 1].map((ago) => new Date(now - ago * DAY_MINUTES * MINUTE_MS));
  await ensurePartitions(db, RETENTION_DAYS, days);
  await db.batchInsert("events", events, ROWS);
  const ids: { id: number }[] = await db("runs").insert(runs).returning("id");
  const idOf = new Map(runs.map((run, index) => [run, ids[index]?.id]));
  await storeDeliveries(
    db,
    deliveries.map(({ delivery, run }) => ({ ...delivery, runId: (run && idOf.get(run)) ?? null })),
  );
  return shown;
}
