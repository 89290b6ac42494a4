import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import type { Scope } from "../../../src/calls/scope.ts";
import type { DeliveryStateName } from "../../../src/log/deliveries.ts";
import { type DeliveryFilter, listDeliveries } from "../../../src/log/list.ts";
import { timeOfId } from "../../../src/schema/partitions.ts";
import { databaseTime } from "../../support/database-time.ts";
import { pagesOf } from "../../support/pages.ts";
import { idAt, idBeside, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;

const apps = [await appWithWebhooks(2), await appWithWebhooks(101)] as const;
type Owner = { id: bigint; process: number; app: string | null };
const webhooks: Owner[] = await db("webhooks")
  .select("id", "process", "installed_app_id as app")
  .orderBy("id");
const one = webhooks.filter(({ app }) => app === apps[0]);
const two = [await api.register(), await api.register()].map((id) => ({ id, process: 1, app: null }));
const others = webhooks.filter(({ app }) => app === apps[1]);
const start = (await databaseTime(db)).getTime() - 500_000;
// One webhook of each pair had its deliveries before the other one; all of the latter's late ones failed.
const ages: [from: number, to: number, webhooks: Owner[], states: DeliveryStateName[]][] = [
  [0, 60, [one[0], two[0]] as Owner[], ["delivered", "failed", "delivered", "pending"]],
  [60, 90, others, ["delivered", "retrying", "failed", "cancelled", "pending", "delivering"]],
  [90, 150, [one[1], two[1]] as Owner[], ["failed", "delivered", "cancelled", "retrying"]],
  [150, 290, [one[1], two[1]] as Owner[], ["failed", "failed", "delivering", "failed"]],
  [290, 300, [...one, ...two, ...others.slice(0, 1)], ["failed", "delivered", "pending"]],
];
/** Oldest first. */
const all: (Stored & Omit<Owner, "id"> & { id: string; webhookId: bigint })[] = [];
for (const [from, to, owners, states] of ages) {
  for (let n = from; n < to; n += 1) {
    const { id: webhookId, ...owner } = owners[(n >> 2) % owners.length] as Owner;
    const state = states[n % states.length] as DeliveryStateName;
    all.push({ id: idAt(new Date(start + n * 1_000), n), webhookId, state, ...owner });
  }
}
await storeDeliveries(db, all);

/** Makes an installed app with webhooks of OrderDispatched and DocumentCreated in turn; answers its id. */
async function appWithWebhooks(count: number): Promise<string> {
  const id = await api.app();
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, installed_app_id, secret)
        select 1 + n % 2, :id || n, :id || n, :key::uuid, :id::uuid, '' from generate_series(1, :count::int) n`,
    { id, count, key: api.adminKeyId },
  );
  return id;
}

const scopeOf = (installedAppId: string): Scope => ({
  customer: null,
  installedAppId,
  processes: [],
  permissions: [],
});

/** Reads a list to its end from either side, with few rows looked at for a page. */
async function walk(scope: Scope, filter: DeliveryFilter, limit: number, scanned: number) {
  const found: string[] = [];
  let early = 0;
  const back = filter.after !== undefined;
  for (let from = filter.after; ; ) {
    const place = back ? { after: from } : { before: from };
    const list = await listDeliveries(db, scope, { ...filter, ...place }, limit, scanned);
    const ids = list.deliveries.map(({ id }) => id);
    expect(ids).toEqual(ids.toSorted().reverse());
    if (back) found.unshift(...ids);
    else found.push(...ids);
    if (list.searchedTo !== null) {
      early += 1;
      expect(ids.length).toBeLessThan(limit);
      // It never answers what lies beyond the place up to which it has searched.
      for (const id of ids) expect(back ? id <= list.searchedTo : id >= list.searchedTo).toBe(true);
    }
    const next = list.searchedTo ?? (ids.length < limit ? undefined : ids.at(back ? 0 : -1));
    if (next === undefined) return { found, early };
    // It comes further with each page.
    if (from !== undefined) expect(back ? next > from : next < from).toBe(true);
    from = next;
  }
}

const delivered = { states: ["delivered" as const] };
const middle = { from: new Date(start + 30_000), to: new Date(start + 295_000) };
const ofWebhook = (n: number) => ({ ...delivered, webhookId: all[n]?.webhookId as bigint });
const pending: DeliveryFilter = { states: ["pending"] };
const anywhere: DeliveryFilter = { states: ["pending", "retrying", "delivered"] };
const [small, large] = [scopeOf(apps[0]), scopeOf(apps[1])];
test.each<[string, number, Scope, DeliveryFilter]>([
  ["all webhooks", 20, "everything", delivered],
  ["all webhooks, of a state that the queue has no index for", 20, "everything", pending],
  ["all webhooks, of states in every table", 20, "everything", anywhere],
  ["all webhooks, created in a time", 20, "everything", { ...delivered, ...middle }],
  ["one webhook", 10, "everything", ofWebhook(150)],
  ["one webhook of an event type, in a time", 10, "everything", { ...ofWebhook(150), ...middle, process: 1 }],
  ["the webhooks of an event type", 1_040, "everything", { ...delivered, process: 2 }],
  ["the webhooks of an app", 20, small, delivered],
  ["the webhooks of an app, of several states", 20, small, { states: ["delivered", "pending", "cancelled"] }],
  ["the webhooks of an app, in any state", 20, small, {}],
  ["the webhooks of an app, that failed", 20, small, { states: ["failed"] }],
  ["one webhook of an app", 10, small, ofWebhook(152)],
  ["the more than a hundred webhooks of an app", 20, large, {}],
  ["the more than a hundred webhooks of an app, of a state", 20, large, { states: ["cancelled"] }],
])(
  "a search that ends early leads to each delivery of %s once, to the older and back",
  async (_, scanned, scope, filter) => {
    const { states = [], webhookId, process, from, to } = filter;
    const expected = all
      .filter(({ app }) => scope === "everything" || app === scope.installedAppId)
      .filter((each) => webhookId === undefined || each.webhookId === webhookId)
      .filter((each) => process === undefined || each.process === process)
      .filter(({ state }) => states.length === 0 || states.includes(state as DeliveryStateName))
      .filter(({ id }) => (!from || timeOfId(id) >= from) && (!to || timeOfId(id) < to))
      .map(({ id }) => id)
      .reverse();
    expect(expected.length).toBeGreaterThan(4);
    const first = idAt(new Date(0), 0);
    for (const limit of [4, 500]) {
      const down = await walk(scope, filter, limit, scanned);
      expect(down.found, `pages of ${limit}`).toEqual(expected);
      const up = await walk(scope, { ...filter, after: first }, limit, scanned);
      expect(up.found, `pages of ${limit}, back`).toEqual(expected);
      // No page is full, so each but the last one ends early.
      if (limit === 500) expect(Math.min(down.early, up.early)).toBeGreaterThan(0);
    }
  },
);

const page = async (filter: Parameters<typeof api.deliveries.listDeliveries>[0]) => {
  const found = await api.deliveries.listDeliveries(filter);
  return { ...found, ids: found.deliveries.map(({ id }) => id) };
};

test("the filters of a list are its states, event type, webhook, delivery and time, whose end is not part of it", async () => {
  const { id, webhookId, process = 1 } = all[150] as (typeof all)[number];
  const next = all.find((each) => each.id > id && each.webhookId === webhookId)?.id as string;
  const [from, to] = [timestampFromDate(timeOfId(id)), timestampFromDate(timeOfId(next))];
  expect((await page({ webhookId, from, to })).ids).toEqual([id]);
  expect((await page({ deliveryId: id, process: process as WebhookProcess })).ids).toEqual([id]);
  const { PENDING, DELIVERING, RETRYING, DELIVERED, FAILED, CANCELLED } = DeliveryState;
  const states = { pending: PENDING, delivering: DELIVERING, retrying: RETRYING, delivered: DELIVERED };
  for (const [name, state] of Object.entries({ ...states, failed: FAILED, cancelled: CANCELLED })) {
    const expected = all.filter((each) => each.state === name).map((each) => each.id);
    expect((await page({ states: [state], pageSize: 1_000 })).ids, name).toEqual(expected.reverse());
  }
  for (const other of [{ webhookId: others[0]?.id as bigint }, { process: 3 as const }, { to: from }])
    expect((await page({ deliveryId: id, ...other })).ids).toEqual([]);
});

test("a page leads back from the next one, and the first page leads to newer deliveries", async () => {
  const webhookId = await api.register();
  const eventId = idBeside(idAt(new Date()));
  const add = async (n: number) => {
    const id = `${eventId.slice(0, 18)}-8000-${n.toString().padStart(12, "0")}`;
    await storeDeliveries(db, [{ id, webhookId, eventId }]);
    return id;
  };
  const read = (pageToken: string) => page({ eventId, pageSize: 2, pageToken });
  expect(await read("")).toMatchObject({ deliveries: [], nextPageToken: "", previousPageToken: "" });
  const [first, second, third] = [await add(1), await add(2), await add(3)];

  const newest = await read("");
  expect(newest.ids).toEqual([third, second]);
  const older = await read(newest.nextPageToken);
  expect(older).toMatchObject({ deliveries: [{ id: first }], nextPageToken: "" });
  const back = await read(older.previousPageToken);
  expect([back.ids, back.previousPageToken]).toEqual([[third, second], ""]);
  expect((await read(back.nextPageToken)).ids).toEqual([first]);

  const nothing = await read(newest.previousPageToken);
  expect(nothing).toMatchObject({ deliveries: [], previousPageToken: "" });
  expect((await read(nothing.nextPageToken)).ids).toEqual([third, second]);
  const fourth = await add(4);
  const since = await read(newest.previousPageToken);
  expect(since.ids).toEqual([fourth]);
  expect((await read(since.nextPageToken)).ids).toEqual([third, second]);
});

test("of deliveries of which few pass, a page ends after 20,000 that were looked at, and tells how far it has searched", async () => {
  await api.empty();
  const webhookId = await api.register();
  await db.raw(
    `with event as materialized (select new_event_id() as id from generate_series(1, 20_500))
      insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, finished)
      select new_delivery_id(id), id, ?, 'failed', 0, 0, now() from event`,
    [String(webhookId)],
  );
  const ids: string[] = await db("deliveries").orderBy("id", "desc").pluck("id");
  // Newest first; the last one that the first page looks at is found.
  const expected = [3, 19_999, 20_499].map((place) => ids[place] as string);
  await db("deliveries").whereIn("id", expected).update({ outcome: "delivered" });
  for (const filter of [{}, { webhookId }]) {
    const wanted = { ...filter, states: [DeliveryState.DELIVERED] };
    const pages = await pagesOf((pageToken) => page({ ...wanted, pageToken }));
    expect(pages.map((each) => each.ids)).toEqual([expected.slice(0, 2), expected.slice(2)]);
    const times = pages.map(({ searchedBackTo }) => searchedBackTo && timestampDate(searchedBackTo));
    expect(times).toEqual([timeOfId(ids[19_999] as string), undefined]);
  }
});
