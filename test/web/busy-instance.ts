import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import type { TestService } from "../support/test-service.ts";
import { addDay, type Registered } from "./busy-day.ts";

const DAY_MS = 86_400_000;
const READ = Permission.READ_ADMINISTRATIVE_DATA;
const WRITE = Permission.WRITE_ADMINISTRATIVE_DATA;
const PUBLISH = Permission.PUBLISH_EVENTS;

const APPS = ["Stock planner", "Returns portal", "Parcel tracking"];

/** Name, permissions, event types, app, and how many days ago it was made. */
const KEYS: [
  name: string,
  permissions: Permission[],
  processes: WebhookProcess[],
  app: string | null,
  age: number,
][] = [
  ["Order system", [PUBLISH], [], null, 214],
  ["Shop front, production", [READ, WRITE], [1, 2], null, 198],
  ["Warehouse Rotterdam", [READ, WRITE], [1, 3], null, 190],
  ["Accounting", [READ, WRITE], [2], null, 161],
  ["Stock planner, production", [READ, WRITE], [3], "Stock planner", 120],
  ["Returns portal, production", [READ, WRITE], [1, 2], "Returns portal", 77],
  ["Parcel tracking, staging", [READ, WRITE], [1], "Parcel tracking", 31],
  ["Parcel tracking, production", [READ, WRITE], [1], "Parcel tracking", 24],
  ["Operations dashboard", [READ], [], null, 12],
];

/** Key, process, URL, what part of its deliveries fails, and how long its receiver takes in milliseconds. */
const WEBHOOKS: [key: string, process: number, url: string, failing: number, ms: number][] = [
  ["Shop front, production", 1, "https://shop.northwind.example/hooks/orders/dispatched", 0, 84],
  ["Shop front, production", 2, "https://shop.northwind.example/hooks/documents", 0.002, 91],
  ["Warehouse Rotterdam", 1, "https://wms.harbour-logistics.example/api/v2/webhooks/orders", 0, 132],
  ["Warehouse Rotterdam", 3, "https://wms.harbour-logistics.example/api/v2/webhooks/stock", 0.006, 140],
  ["Accounting", 2, "https://ledger.brightbooks.example/inbound/webhook?tenant=northwind", 0.04, 310],
  ["Stock planner, production", 3, "https://eu1.stockplanner.example/hooks/4f1c9b7e/stock-levels", 0, 65],
  ["Stock planner, production", 3, "https://eu2.stockplanner.example/hooks/4f1c9b7e/stock-levels", 0.004, 71],
  ["Returns portal, production", 1, "https://returns.example/integrations/northwind/orders", 0.03, 480],
  ["Returns portal, production", 2, "https://returns.example/integrations/northwind/documents", 0.015, 455],
  ["Parcel tracking, production", 1, "https://track.parcelpost.example/partner/events", 0, 58],
  ["Parcel tracking, staging", 1, "https://staging.track.parcelpost.example/partner/events", 0.34, 1_900],
  ["Administrator", 1, "https://hooks.chat.example/services/T02BX41/B07KQ/orders-channel", 0.001, 120],
  ["Administrator", 3, "https://functions.cloud.example/stock-to-warehouse-table", 0.008, 720],
  ["Accounting", 2, "https://archive.paperless.example/ingest", 0.2, 2_600],
];
const PAUSED = "https://archive.paperless.example/ingest";
const LIMITED = "https://ledger.brightbooks.example/inbound/webhook?tenant=northwind";

/** What there is to look at. */
export interface BusyInstance {
  /** A webhook that fails now and then. */
  webhookId: bigint;
  /** A delivery that arrived with its third attempt. */
  deliveryId: string;
}

/**
 * Fills an instance as it is after some months: apps, keys, webhooks, and a day of deliveries with their attempts and
 * runs. The same each time, but for the times, which are up to now.
 *
 * @param service that dispatches nothing by itself: what it did is made up
 */
export async function fillInstance(service: TestService): Promise<BusyInstance> {
  const apps = new Map<string, string>();
  for (const name of APPS) {
    const { installedApp } = await service.keys.createInstalledApp({ name });
    apps.set(name, installedApp?.id as string);
    await service
      .db("installed_apps")
      .where("name", name)
      .update({ created: daysAgo(130) });
  }
  await service.db("api_keys").update({ created: daysAgo(214) });
  const secrets = new Map([["Administrator", service.adminKey]]);
  for (const [name, permissions, allowedProcesses, app, age] of KEYS) {
    const { apiKey, secret } = await service.keys.createApiKey({
      name,
      permissions,
      allowedProcesses,
      ...(app === null ? {} : { installedApplicationId: apps.get(app) as string }),
    });
    secrets.set(name, secret);
    await service
      .db("api_keys")
      .where("id", apiKey?.id)
      .update({ created: daysAgo(age), last_used: daysAgo(age / 9_000) });
  }
  const registered: Registered[] = [];
  for (const [key, process, url, failing, ms] of WEBHOOKS) {
    const id = await service.register(url, { key: secrets.get(key) as string, process });
    const created = daysAgo((KEYS.find(([name]) => name === key)?.[4] ?? 14) - 0.37 * registered.length);
    await service.db("webhooks").where("id", String(id)).update({ created, modified: created });
    registered.push({ id, process, url, failing, ms });
  }
  const idOf = (url: string) => registered.find((each) => each.url === url)?.id as bigint;
  await service.webhooks.setWebhookRateLimit({ webhookId: idOf(LIMITED), rateLimit: 20 });
  const deliveryId = await addDay(service, registered);
  await service.webhooks.pauseWebhook({ webhookId: idOf(PAUSED) });
  return { webhookId: idOf("https://returns.example/integrations/northwind/orders"), deliveryId };
}

function daysAgo(days: number): Date {
  return new Date(Date.now() - days * DAY_MS);
}
