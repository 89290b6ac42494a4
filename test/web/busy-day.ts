import { createHash, randomUUID } from "node:crypto";
import type { TestService } from "../support/test-service.ts";

const MINUTE_MS = 60_000;
const DAY_MINUTES = 24 * 60;
const ROWS = 2_000;
/** When retries are made, in minutes after the attempt before. */
const WAITS = [1, 5, 25];

/** A webhook, and how its receiver does. */
export interface Registered {
  id: bigint;
  process: number;
  url: string;
  /** The part of the attempts that fail, 0 to 1. */
  failing: number;
  /** How long an attempt takes, in milliseconds, more or less. */
  ms: number;
}

const FAULTS = [
  {
    status: 503,
    response_start: '{"error":"unavailable","message":"Down for maintenance, back at 14:00 UTC."}',
  },
  { status: null, error: "no answer within 15 s" },
  { status: 502, response_start: "<html><head><title>502 Bad Gateway</title></head></html>" },
];
const OK = { status: 200, error: null, response_start: '{"received":true}' };

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
    { ProductId: 7, Sku: "LAMP-01", Location: "Rotterdam", PreviousLevel: 42, Level: 40, ChangedAt: time },
  ];
  return JSON.stringify(payloads[process - 1]);
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
  const runs = Array.from({ length: DAY_MINUTES }, (_, minute) => {
    const started = now - (DAY_MINUTES - minute) * MINUTE_MS;
    return {
      workflow_id: `dispatch-pending-deliveries-${new Date(started).toISOString().slice(0, 16)}:00Z`,
      first_run_id: randomUUID(),
      started: new Date(started),
      lease_until: new Date(now + 60 * MINUTE_MS),
      closed: new Date(started + 700 + 2_500 * chance()),
      sent: 0,
      delivered: 0,
      failed: 0,
    };
  });
  let number = 48_000;
  let shown = "";

  function deliver(webhook: Registered, event: string, created: number): void {
    const id = idAt(created);
    const first = Math.min(DAY_MINUTES - 1, DAY_MINUTES - Math.floor((now - created) / MINUTE_MS));
    const run = runs[first] as (typeof runs)[number];
    let at = created + 40_000 * chance();
    let attempts = 0;
    let state = "retrying";
    // Receivers fail for a while rather than now and then: what has failed once does so again.
    for (let failing = webhook.failing; attempts < 4 && state === "retrying"; failing = 0.7) {
      if (attempts > 0) at += (WAITS[attempts - 1] as number) * MINUTE_MS;
      if (at > now) break;
      attempts += 1;
      const failed = chance() < failing;
      const outcome = failed ? FAULTS[(attempts + Number(webhook.id)) % FAULTS.length] : OK;
      const duration_ms =
        outcome?.status === null ? 15_000 : Math.round(webhook.ms * (0.6 + 1.4 * chance() ** 3));
      rows.attempts.push({
        delivery_id: id,
        number: attempts,
        started: new Date(at),
        duration_ms,
        error: null,
        response_start: null,
        ...outcome,
      });
      if (!failed) state = "delivered";
      else if (attempts === 4) state = "failed";
    }
    if (attempts === 0) state = "pending";
    const done = state === "delivered" || state === "failed";
    run.sent += attempts;
    if (state === "delivered") run.delivered += 1;
    if (state === "failed") run.failed += 1;
    if (state === "delivered" && attempts === 3 && webhook.process === 1) shown = id;
    rows.deliveries.push({
      id,
      event_id: event,
      webhook_id: String(webhook.id),
      state,
      attempts,
      created: new Date(created),
      finished: done ? new Date(at + webhook.ms) : null,
      retry_at: state === "retrying" ? new Date(at) : null,
    });
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
  // The first attempt's run stands for all of them.
  await service.db.raw(
    "update deliveries d set run_id = (select id from runs where started <= d.created order by started desc limit 1)",
  );
  return shown;
}
