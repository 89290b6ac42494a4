import { createHash, randomUUID } from "node:crypto";
import type { TestService } from "../support/test-service.ts";
import { fateOf, type Registered } from "./busy-receivers.ts";

const MINUTE_MS = 60_000;
const DAY_MINUTES = 24 * 60;
/** A run that has nothing to retry is over so soon, in milliseconds. */
const SHORTEST_RUN_MS = 120;
const ROWS = 2_000;
/** Chance that is the same each time: a linear congruential generator. */
function chances(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

/** A UUIDv7 of a moment, as the service makes them. */
function idAt(ms: number): string {
  const time = Math.trunc(ms).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`;
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

/** The runs of the last day, one at each whole minute, the oldest first; each is over, and did nothing so far. */
function idleRuns(now: number): Run[] {
  const last = Math.floor(now / MINUTE_MS) * MINUTE_MS;
  return Array.from({ length: DAY_MINUTES }, (_, n) => {
    const minute = last - (DAY_MINUTES - 1 - n) * MINUTE_MS;
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

/** Rows to be stored, by table. */
interface Rows {
  events: object[];
  deliveries: object[];
  attempts: object[];
}

/**
 * Makes up the last 24 hours: events, their deliveries and attempts, and the runs that made them.
 *
 * @returns the id of a delivery that arrived with its third attempt
 */
export async function addDay(service: TestService, webhooks: readonly Registered[]): Promise<string> {
  const chance = chances(7);
  const now = Date.now();
  const rows: Rows = { events: [], deliveries: [], attempts: [] };
  const runs = idleRuns(now);
  let number = 48_000;
  let shown = "";

  function deliver(webhook: Registered, event: string, created: number): void {
    const id = idAt(created);
    // The first run after the event was published claims what waits.
    const run = runs.find(({ started }) => started.getTime() >= created);
    const claim = run ? run.started.getTime() + SHORTEST_RUN_MS * chance() : Number.POSITIVE_INFINITY;
    const { state, attempts, at } = fateOf(webhook, claim, now, chance);
    const done = state === "delivered" || state === "failed";
    rows.attempts.push(...attempts.map((each) => ({ delivery_id: id, ...each })));
    rows.deliveries.push({
      id,
      event_id: event,
      webhook_id: String(webhook.id),
      state,
      attempts: attempts.length,
      created: new Date(created),
      finished: done ? new Date(at) : null,
      retry_at: state === "retrying" ? new Date(at) : null,
    });
    if (state === "delivered" && attempts.length === 3 && webhook.process === 1) shown = id;
    if (!run || state === "pending") return;
    run.sent += attempts.length;
    if (state === "delivered") run.delivered += 1;
    if (state === "failed") run.failed += 1;
    // A run is open until each of its deliveries has come to an end.
    if (!done) run.closed = null;
    else if (run.closed) run.closed = new Date(Math.max(run.closed.getTime(), at));
  }

  for (let minute = 0; minute < DAY_MINUTES; minute += 1) {
    const start = now - (DAY_MINUTES - minute) * MINUTE_MS;
    // Shops are busy in the afternoon and sleep at night; now is taken for two o'clock.
    const busy = 0.15 + 0.85 * Math.max(0, Math.cos(((minute - DAY_MINUTES) / DAY_MINUTES) * 2 * Math.PI));
    for (let n = 0; n < 2 && chance() < busy; n += 1) {
      const created = new Date(start + MINUTE_MS * chance());
      const process = 1 + Math.floor(3 * chance());
      const event = idAt(created.getTime());
      number += 1;
      const subscribed = webhooks.filter((webhook) => webhook.process === process);
      const payload = payloadOf(process, number, created);
      rows.events.push({
        id: event,
        api_key_id: randomUUID(),
        idempotency_key: `event-${number}`,
        request_sha256: createHash("sha256").update(payload).digest(),
        process,
        user_id: `tenant-${1 + (number % 40)}`,
        occurred: created,
        created,
        deliveries: subscribed.length,
        payload,
      });
      for (const webhook of subscribed) deliver(webhook, event, created.getTime());
    }
  }
  await service.db.batchInsert("events", rows.events, ROWS);
  await service.db.batchInsert("deliveries", rows.deliveries, ROWS);
  await service.db.batchInsert("attempts", rows.attempts, ROWS);
  await service.db.batchInsert("runs", runs, ROWS);
  // Each delivery that was claimed is of the first run after it.
  await service.db.raw(`
    update deliveries d set run_id = (select id from runs where started >= d.created order by started limit 1)
    where state <> 'pending'`);
  return shown;
}
