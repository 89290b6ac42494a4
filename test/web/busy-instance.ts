import { expect } from "vitest";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import type { TestService } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";
import { addDays } from "./busy-day.ts";
import type { Registered } from "./busy-receivers.ts";

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
const READ = Permission.READ_ADMINISTRATIVE_DATA;
const WRITE = Permission.WRITE_ADMINISTRATIVE_DATA;
const PUBLISH = Permission.PUBLISH_EVENTS;

/** Name, and how many days ago it was made. */
const APPS: [name: string, age: number][] = [
  ["Stock planner", 121],
  ["Returns portal", 78],
  ["Parcel tracking", 33],
];

const PUBLISHER = "Order system";
/** Name, permissions, event types, app, how many days ago it was made, and how many minutes ago it was used. */
const KEYS: [
  name: string,
  permissions: Permission[],
  processes: WebhookProcess[],
  app: string | null,
  age: number,
  used: number,
][] = [
  [PUBLISHER, [PUBLISH], [], null, 214, 0.2],
  ["Shop front, production", [READ, WRITE], [1, 2], null, 198, 3_400],
  ["Warehouse Rotterdam", [READ, WRITE], [1, 3], null, 190, 190],
  ["Accounting", [READ, WRITE], [2], null, 161, 41],
  ["Stock planner, production", [READ, WRITE], [3], "Stock planner", 120, 26],
  ["Returns portal, production", [READ, WRITE], [1, 2], "Returns portal", 77, 8_900],
  ["Parcel tracking, staging", [READ, WRITE], [1], "Parcel tracking", 31, 72],
  ["Parcel tracking, production", [READ, WRITE], [1], "Parcel tracking", 24, 1_700],
  ["Operations dashboard", [READ], [], null, 12, 1],
];

/**
 * Key, process, URL, how many days ago it was registered, what part of its deliveries fails, and how long its receiver
 * takes in milliseconds. Oldest first.
 */
const WEBHOOKS: [key: string, process: number, url: string, age: number, failing: number, ms: number][] = [
  ["Shop front, production", 1, "https://shop.northwind.example/hooks/orders/dispatched", 197, 0, 84],
  ["Shop front, production", 2, "https://shop.northwind.example/hooks/documents", 197, 0.002, 91],
  ["Warehouse Rotterdam", 1, "https://wms.harbour-logistics.example/api/v2/webhooks/orders", 189, 0, 132],
  ["Warehouse Rotterdam", 3, "https://wms.harbour-logistics.example/api/v2/webhooks/stock", 189, 0.006, 140],
  ["Accounting", 2, "https://ledger.brightbooks.example/inbound/webhook?tenant=northwind", 160, 0.04, 310],
  [
    "Stock planner, production",
    3,
    "https://eu1.stockplanner.example/hooks/4f1c9b7e/stock-levels",
    119,
    0,
    65,
  ],
  [
    "Stock planner, production",
    3,
    "https://eu2.stockplanner.example/hooks/4f1c9b7e/stock-levels",
    96,
    0.004,
    71,
  ],
  ["Returns portal, production", 1, "https://returns.example/integrations/northwind/orders", 76, 0.03, 480],
  [
    "Returns portal, production",
    2,
    "https://returns.example/integrations/northwind/documents",
    76,
    0.015,
    455,
  ],
  ["Parcel tracking, staging", 1, "https://staging.track.parcelpost.example/partner/events", 30, 0.34, 1_900],
  ["Parcel tracking, production", 1, "https://track.parcelpost.example/partner/events", 23, 0, 58],
  ["Accounting", 2, "https://archive.paperless.example/ingest", 20, 0.2, 2_600],
  ["Administrator", 1, "https://hooks.chat.example/services/T02BX41/B07KQ/orders-channel", 14, 0.001, 120],
  ["Administrator", 3, "https://functions.cloud.example/stock-to-warehouse-table", 11, 0.008, 720],
];
const PAUSED = "https://archive.paperless.example/ingest";
const PAUSED_MINUTES = 38;
const LIMITED = "https://ledger.brightbooks.example/inbound/webhook?tenant=northwind";
const LIMITED_DAYS = 52;
const DEGRADED = "https://staging.track.parcelpost.example/partner/events";
const DEGRADED_MINUTES = 47;

/** What there is to look at. */
export interface BusyInstance {
  /** A webhook that fails now and then. */
  webhookId: bigint;
  /** A delivery that arrived with its third attempt. */
  deliveryId: string;
}

/**
 * Fills an instance as it is after some months: apps, keys, webhooks, and two days of deliveries with their attempts
 * and runs. The data is the same each time, except for its times, which end now.
 *
 * @param service that dispatches nothing by itself: what it did is made up
 */
export async function fillInstance(service: TestService): Promise<BusyInstance> {
  const { db, keys, webhooks } = service;
  const apps = new Map<string, string>();
  for (const [name, age] of APPS) {
    const { installedApp } = await keys.createInstalledApp({ name });
    apps.set(name, installedApp?.id as string);
    await db("installed_apps")
      .where("name", name)
      .update({ created: workday(age, apps.size) });
  }
  await db("api_keys").update({ created: workday(214, 0) });
  const secrets = new Map([["Administrator", service.adminKey]]);
  for (const [name, permissions, allowedProcesses, app, age] of KEYS) {
    const { apiKey, secret } = await keys.createApiKey({
      name,
      permissions,
      allowedProcesses,
      ...(app === null ? {} : { installedApplicationId: apps.get(app) as string }),
    });
    await db("api_keys")
      .where("id", apiKey?.id)
      .update({ created: workday(age, secrets.size) });
    secrets.set(name, secret);
  }
  const paused = new Date(Date.now() - PAUSED_MINUTES * MINUTE_MS);
  const registered: Registered[] = [];
  for (const [key, process, url, age, failing, ms] of WEBHOOKS) {
    const id = await service.register(url, { key: secrets.get(key) as string, process });
    const created = workday(age, registered.length);
    await db("webhooks").where("id", String(id)).update({ created, modified: created });
    registered.push({ id, process, url, failing, ms, ...(url === PAUSED ? { paused } : {}) });
  }
  const idOf = (url: string) => registered.find((each) => each.url === url)?.id as bigint;
  await webhooks.setWebhookRateLimit({ webhookId: idOf(LIMITED), rateLimit: 20 });
  await db("webhooks")
    .where("url", LIMITED)
    .update({ modified: workday(LIMITED_DAYS, 5) });
  await webhooks.pauseWebhook({ webhookId: idOf(PAUSED) });
  await db("webhooks").where("url", PAUSED).update({ paused, modified: paused });
  const publisher: { id: string } = await db("api_keys").where("name", PUBLISHER).first("id");
  const deliveryId = await addDays(service, registered, publisher.id);
  await degrade(db, idOf(DEGRADED));
  // The service takes down a moment later that a key was used, and not again for a minute.
  const owners = [...new Set(WEBHOOKS.map(([key]) => key))];
  await eventually(async () =>
    expect(await db("api_keys").whereIn("name", owners).whereNull("last_used")).toEqual([]),
  );
  for (const [name, , , , , used] of KEYS)
    await db("api_keys")
      .where("name", name)
      .update({ last_used: new Date(Date.now() - used * MINUTE_MS) });
  return { webhookId: idOf("https://returns.example/integrations/northwind/orders"), deliveryId };
}

/** Makes one webhook degraded for some time, and every other healthy, once the attempts have been counted. */
async function degrade(db: TestService["db"], id: bigint): Promise<void> {
  await eventually(async () => expect(await db("rollup_deltas").first("minute")).toBeUndefined());
  await db("webhook_health").whereNot("webhook_id", String(id)).delete();
  const changed = await db("webhook_health")
    .where("webhook_id", String(id))
    .update({
      health: "degraded",
      since: new Date(Date.now() - DEGRADED_MINUTES * MINUTE_MS),
      first_failure: null,
      last_success: new Date(),
    });
  expect(changed).toBe(1);
}

/** A moment of some working day, the later the higher the number is that tells the moments of one day apart. */
function workday(daysAgo: number, n: number): Date {
  const midnight = Math.floor(Date.now() / DAY_MS) * DAY_MS;
  return new Date(midnight - daysAgo * DAY_MS + 8 * 60 * MINUTE_MS + n * 1_873_000);
}
