import { expect } from "vitest";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { ensurePartitions } from "../../src/schema/partitions.ts";
import { judgedWebhooks } from "../incidents/failing.ts";
import {
  idAt,
  idBeside,
  type Stored,
  type StoredAttempt,
  storeDeliveries,
} from "../support/stored-deliveries.ts";
import type { TestService } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";

const MINUTE_MS = 60_000;
const READ = Permission.READ_ADMINISTRATIVE_DATA;
const WRITE = Permission.WRITE_ADMINISTRATIVE_DATA;

/** Name, and how many days ago the app was made. */
const APPS = [
  ["Stock planner", 121],
  ["Returns portal", 78],
  ["Parcel tracking", 33],
] as const;

type KeyRow = [
  name: string,
  permissions: Permission[],
  processes: WebhookProcess[],
  app: string | null,
  daysAgo: number,
  usedMinutesAgo: number,
];
const PUBLISHER = "Order system";
const KEYS: KeyRow[] = [
  [PUBLISHER, [Permission.PUBLISH_EVENTS], [], null, 214, 0.2],
  ["Shop front, production", [READ, WRITE], [1, 2], null, 198, 3_400],
  ["Warehouse Rotterdam", [READ, WRITE], [1, 3], null, 190, 190],
  ["Accounting", [READ, WRITE], [2], null, 161, 41],
  ["Stock planner, production", [READ, WRITE], [3], "Stock planner", 120, 26],
  ["Returns portal, production", [READ, WRITE], [1, 2], "Returns portal", 77, 8_900],
  ["Parcel tracking, staging", [READ, WRITE], [1], "Parcel tracking", 31, 72],
  ["Parcel tracking, production", [READ, WRITE], [1], "Parcel tracking", 24, 1_700],
  ["Operations dashboard", [READ], [], null, 12, 1],
];

/** `failing` is the part of the attempts that fail, 0 to 1; `ms` is how long an attempt takes. */
type WebhookRow = [key: string, process: number, url: string, daysAgo: number, failing: number, ms: number];
/** Oldest first. */
const WEBHOOKS: WebhookRow[] = [
  ["Shop front, production", 1, "shop.northwind.example/hooks/orders/dispatched", 197, 0, 84],
  ["Shop front, production", 2, "shop.northwind.example/hooks/documents", 197, 0.002, 91],
  ["Warehouse Rotterdam", 1, "wms.harbour-logistics.example/api/v2/webhooks/orders", 189, 0, 132],
  ["Warehouse Rotterdam", 3, "wms.harbour-logistics.example/api/v2/webhooks/stock", 189, 0.006, 140],
  ["Accounting", 2, "ledger.brightbooks.example/inbound/webhook?tenant=northwind", 160, 0.04, 310],
  ["Stock planner, production", 3, "eu1.stockplanner.example/hooks/4f1c9b7e/stock-levels", 119, 0, 65],
  ["Stock planner, production", 3, "eu2.stockplanner.example/hooks/4f1c9b7e/stock-levels", 96, 0.004, 71],
  ["Returns portal, production", 1, "returns.example/integrations/northwind/orders", 76, 0.03, 480],
  ["Returns portal, production", 2, "returns.example/integrations/northwind/documents", 76, 0.015, 455],
  ["Parcel tracking, staging", 1, "staging.track.parcelpost.example/partner/events", 30, 0.34, 1_900],
  ["Parcel tracking, production", 1, "track.parcelpost.example/partner/events", 23, 0, 58],
  ["Accounting", 2, "archive.paperless.example/ingest", 20, 0.2, 2_600],
  ["Administrator", 1, "hooks.chat.example/services/T02BX41/B07KQ/orders-channel", 14, 0.001, 120],
  ["Administrator", 3, "functions.cloud.example/stock-to-warehouse-table", 11, 0.008, 720],
];
const LIMITED = 4;
const SHOWN = 7;
const DEGRADED = 9;
const PAUSED = 11;
const PAUSED_MINUTES = 38;
const RECOVERED = 13;
/** The webhooks that fail, by what they fail for. */
const FAILING = [[7, 8], [4]];
const ERRORS = [
  "connection refused; check that the server runs, and its host and port (ECONNREFUSED)",
  "certificate has expired; renew the server's certificate (CERT_HAS_EXPIRED)",
];

/** Pages of the instance that show something of everything. */
export interface BusyInstance {
  /** A webhook that fails now and then. */
  webhookId: bigint;
  /** A delivery that arrived with its third attempt. */
  deliveryId: string;
  /** An open incident of two webhooks. */
  incidentId: string;
}

/**
 * Fills an instance as it is after some months: apps, keys, webhooks, and two days of deliveries with their attempts.
 * The data is the same each time, except for its times, which end now.
 *
 * @param service that dispatches nothing by itself: what it did is made up
 */
export async function fillInstance(service: TestService): Promise<BusyInstance> {
  const { db, keys, webhooks } = service;
  const change = (table: string, where: object, columns: object) => db(table).where(where).update(columns);
  const apps = new Map<string | null, string>();
  for (const [name, age] of APPS) {
    const { installedApp } = await keys.createInstalledApp({ name });
    apps.set(name, installedApp?.id as string);
    await change("installed_apps", { name }, { created: daysAgo(age) });
  }
  await db("api_keys").update({ created: daysAgo(214) });
  const secrets = new Map([["Administrator", service.adminKey]]);
  for (const [name, permissions, allowedProcesses, app, age] of KEYS) {
    const installedApplicationId = apps.get(app);
    const made = { name, permissions, allowedProcesses };
    const { secret } = await keys.createApiKey(
      installedApplicationId ? { ...made, installedApplicationId } : made,
    );
    await change("api_keys", { name }, { created: daysAgo(age) });
    secrets.set(name, secret);
  }
  const ids: bigint[] = [];
  for (const [key, process, url, age] of WEBHOOKS) {
    const id = await service.register(`https://${url}`, { key: secrets.get(key) as string, process });
    const created = daysAgo(age);
    await change("webhooks", { id: String(id) }, { created, modified: created });
    ids.push(id);
  }
  const idOf = (n: number) => ids[n] as bigint;
  await webhooks.setWebhookRateLimit({ webhookId: idOf(LIMITED), rateLimit: 20 });
  await webhooks.pauseWebhook({ webhookId: idOf(PAUSED) });
  await change("webhooks", { id: String(idOf(PAUSED)) }, { paused: minutesAgo(PAUSED_MINUTES) });
  const publisher: { id: string } = await db("api_keys").where("name", PUBLISHER).first("id");
  const deliveryId = await addDays(service, ids, publisher.id);
  // What each webhook did is counted in the background.
  await eventually(async () => expect(await db("rollup_deltas").first("minute")).toBeUndefined());
  await db("webhook_health")
    .whereNot("webhook_id", String(idOf(DEGRADED)))
    .delete();
  await change(
    "webhook_health",
    { webhook_id: String(idOf(DEGRADED)) },
    { health: "degraded", since: minutesAgo(47), first_failure: null, last_success: new Date() },
  );
  const incidentId = await addIncidents(service, ids);
  // The service takes down a moment later that a key was used, and not again for a minute.
  const owners = WEBHOOKS.map(([key]) => key);
  await eventually(async () =>
    expect(await db("api_keys").whereIn("name", owners).whereNull("last_used")).toEqual([]),
  );
  for (const [name, , , , , used] of KEYS)
    await change("api_keys", { name }, { last_used: minutesAgo(used) });
  return { webhookId: idOf(SHOWN), deliveryId, incidentId };
}

/** Has webhooks fail, of which one has recovered; answers the id of the incident of two. */
async function addIncidents({ db }: TestService, ids: bigint[]): Promise<string> {
  const failing = FAILING.flat().map((index) => ids[index] as bigint);
  const first = minutesAgo(12);
  const failure = { health: "failing", since: first, first_failure: first, last_failure: new Date() };
  await db("webhook_health").insert(failing.map((id) => ({ webhook_id: String(id), ...failure })));
  const [past, ...open] = [
    [ids[RECOVERED] as bigint],
    ...FAILING.map((some) => some.map((n) => ids[n] as bigint)),
  ];
  await judgedWebhooks(db, past as bigint[], "HTTP status 502");
  await judgedWebhooks(db, past as bigint[], null);
  for (const [n, some] of open.entries()) await judgedWebhooks(db, some, ERRORS[n]);
  await db("incidents").update({ opened: first });
  const { id } = await db("incidents").where("subject", "returns.example").first("id");
  return id;
}

const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * MINUTE_MS);
const daysAgo = (days: number) => minutesAgo(days * 1_440);

/** Chance that is the same each time: a linear congruential generator. */
function chances(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32;
    return state / 2 ** 32;
  };
}

/** The number of events in two days. */
const EVENTS = 1_200;

/** Makes up the last 48 hours; answers the id of a delivery that arrived with its third attempt. */
async function addDays({ db }: TestService, ids: bigint[], publisher: string): Promise<string> {
  const chance = chances(7);
  const events: object[] = [];
  const deliveries: Stored[] = [];
  let shown = "";
  for (let n = 0; n < EVENTS; n++) {
    // The last event is of a minute ago.
    const created = minutesAgo(1 + (2 * 1_440 * (EVENTS - 1 - n + chance())) / EVENTS);
    const process = 1 + Math.floor(3 * chance());
    const event = idAt(created);
    const recipients = ids.filter((_, index) => WEBHOOKS[index]?.[1] === process);
    events.push({
      id: event,
      api_key_id: publisher,
      idempotency_key: `event-${n}`,
      process,
      user_id: `tenant-${1 + (n % 40)}`,
      occurred: created,
      recipients: recipients.length,
      payload: payloadOf(47_000 + n, created),
    });
    for (const webhookId of recipients) {
      const fate = fateOf(ids.indexOf(webhookId), created.getTime(), chance);
      const id = idBeside(event);
      deliveries.push({ id, eventId: event, webhookId, ...fate });
      if (fate.state === "delivered" && fate.tried?.length === 3 && process === 1) shown = id;
    }
  }
  await ensurePartitions(db, 30, [daysAgo(2), daysAgo(1)]);
  await db.batchInsert("events", events, 2_000);
  const [{ id: runId }] = await db("runs")
    .insert({
      workflow_id: "dispatch-pending-deliveries",
      first_run_id: crypto.randomUUID(),
      started: minutesAgo(1_440),
      lease_until: minutesAgo(-60),
      closed: minutesAgo(1_439),
      sent: 3,
      delivered: 1,
      failed: 0,
    })
    .returning("id");
  await storeDeliveries(
    db,
    deliveries.map((each) => (each.id === shown ? { ...each, runId } : each)),
  );
  return shown;
}

/** The payload of a dispatched order; no page shows one of another event. */
function payloadOf(number: number, at: Date): string {
  return JSON.stringify({
    OrderId: number,
    OrderNumber: `SO-${number}`,
    DispatchedAt: at.toISOString().slice(0, 19),
    Carrier: "Parcel Post",
    TrackingNumber: `PP${number}0042NL`,
    Lines: [{ ProductId: 7, Sku: "LAMP-01", Quantity: 2 }],
  });
}

const FAULTS: StoredAttempt[] = [
  { status: 503, responseStart: '{"error":"unavailable","message":"Down for maintenance."}' },
  { error: "no response within 15 s", durationMs: 15_000 },
  { status: 502, responseStart: "<html><head><title>502 Bad Gateway</title></head></html>" },
];
/** Minutes before each retry. */
const WAITS = [1, 5, 25];

/** Makes up what became of a delivery until now, by its webhook and by chance. */
function fateOf(index: number, created: number, chance: () => number): Partial<Stored> {
  const [, , , , failing, ms] = WEBHOOKS[index] as WebhookRow;
  const end = Date.now() - (index === PAUSED ? PAUSED_MINUTES * MINUTE_MS : 0);
  const tried: StoredAttempt[] = [];
  let at = created;
  // Endpoints fail for a while rather than now and then: what has failed once does so again.
  for (let odds = failing; tried.length < 4; odds = 0.7) {
    if (at > end) return tried.length > 0 ? { state: "retrying", tried, retryAt: new Date(at) } : {};
    const failed = chance() < odds;
    const durationMs = Math.round(ms * (0.6 + 1.4 * chance() ** 3));
    const outcome = failed
      ? FAULTS[(tried.length + index) % FAULTS.length]
      : { status: 200, responseStart: '{"received":true}' };
    tried.push({ started: new Date(at), durationMs, ...outcome });
    at += tried.at(-1)?.durationMs ?? 0;
    if (!failed) return { state: "delivered", tried, finished: new Date(at) };
    at += (WAITS[tried.length - 1] ?? 0) * MINUTE_MS;
  }
  return { state: "failed", tried, finished: new Date(at) };
}
