import { timestampDate } from "@bufbuild/protobuf/wkt";
import { describe, expect, test } from "vitest";
import { type Delivery, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import type { DeliveryStateName } from "../../../../src/db/deliveries/deliveries.ts";
import { type DeliveryFilter, listDeliveries } from "../../../../src/db/deliveries/list.ts";
import { timeOfId } from "../../../../src/db/partitions.ts";
import type { Scope } from "../../../../src/db/scope.ts";
import { databaseTime } from "../../../support/database-time.ts";
import { pagesOf } from "../../../support/pages.ts";
import { idAt, type Stored, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { deliveries } = api;
/** As many deliveries as a page looks at, of a table or of one webhook in it. */
const SCANNED = 20_000;

describe("a search that ends early, since few deliveries pass its filter,", async () => {
  const apps = [await appWithWebhooks(2), await appWithWebhooks(101)] as const;
  const webhooks = await rows<{ id: bigint; process: number; app: string | null }>(
    db,
    "select id, process, installed_app_id as app from webhooks order by id",
  );
  const one = webhooks.filter(({ app }) => app === apps[0]);
  const two = [await api.register(), await api.register()].map((id) => ({ id, process: 1, app: null }));
  const others = webhooks.filter(({ app }) => app === apps[1]);
  const start = (await databaseTime(db)).getTime() - 500_000;
  // One webhook of each pair had its deliveries before the other one; all of the latter's late ones failed.
  const ages: [from: number, to: number, webhooks: typeof webhooks, states: DeliveryStateName[]][] = [
    [0, 60, [one[0], two[0]] as typeof webhooks, ["delivered", "failed", "delivered", "pending"]],
    [60, 90, others, ["delivered", "retrying", "failed", "cancelled", "pending", "delivering"]],
    [90, 150, [one[1], two[1]] as typeof webhooks, ["failed", "delivered", "cancelled", "retrying"]],
    [150, 290, [one[1], two[1]] as typeof webhooks, ["failed", "failed", "delivering", "failed"]],
    [290, 300, [...one, ...two, ...others.slice(0, 1)], ["failed", "delivered", "pending"]],
  ];
  /** Oldest first. */
  const all: (Stored & { id: string; webhookId: bigint; process: number; app: string | null })[] = [];
  for (const [from, to, owners, states] of ages) {
    for (let n = from; n < to; n += 1) {
      const { id: webhookId, ...owner } = owners[(n >> 2) % owners.length] as (typeof webhooks)[number];
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

  const scopeOf = (installedAppId: string): Scope => ({ installedAppId, processes: [], permissions: [] });

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
  test.each<[string, number, Scope, DeliveryFilter]>([
    ["all webhooks", 20, "everything", delivered],
    ["all webhooks, of a state that the queue has no index for", 20, "everything", { states: ["pending"] }],
    [
      "all webhooks, of states in every table",
      20,
      "everything",
      { states: ["pending", "retrying", "delivered"] },
    ],
    ["all webhooks, created in a time", 20, "everything", { ...delivered, ...middle }],
    ["one webhook", 10, "everything", ofWebhook(150)],
    [
      "one webhook of an event type, in a time",
      10,
      "everything",
      { ...ofWebhook(150), ...middle, process: 1 },
    ],
    ["the webhooks of an event type", 1_040, "everything", { ...delivered, process: 2 }],
    ["the webhooks of an app", 20, scopeOf(apps[0]), delivered],
    [
      "the webhooks of an app, of several states",
      20,
      scopeOf(apps[0]),
      { states: ["delivered", "pending", "cancelled"] },
    ],
    ["the webhooks of an app, in any state", 20, scopeOf(apps[0]), {}],
    ["the webhooks of an app, that failed", 20, scopeOf(apps[0]), { states: ["failed"] }],
    ["one webhook of an app", 10, scopeOf(apps[0]), ofWebhook(152)],
    ["the more than a hundred webhooks of an app", 20, scopeOf(apps[1]), {}],
    [
      "the more than a hundred webhooks of an app, of a state",
      20,
      scopeOf(apps[1]),
      { states: ["cancelled"] },
    ],
  ])("leads to each delivery of %s once, to the older and back", async (_, scanned, scope, filter) => {
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
  });
});

test("of so many deliveries that few pass, pages are answered early and tell how far they have searched", async () => {
  await api.empty();
  const webhookId = await api.register();
  await api.register();
  await db.raw(
    `with event as materialized (select new_event_id() as id from generate_series(1, ?::int))
      insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, finished)
      select new_delivery_id(id), id, ?, 'failed', 0, 0, now() from event`,
    [SCANNED + 500, String(webhookId)],
  );
  const ids: string[] = await db("deliveries").orderBy("id", "desc").pluck("id");
  // Newest first; the last one of the first page is found.
  const expected = [3, 700, 701, SCANNED - 1, SCANNED + 499].map((place) => ids[place] as string);
  await db("deliveries").whereIn("id", expected).update({ outcome: "delivered" });
  const read = (filter: object) => (pageToken: string) =>
    deliveries.listDeliveries({ ...filter, states: [DeliveryState.DELIVERED], pageSize: 10, pageToken });
  const idsOf = (page: { deliveries: Delivery[] }) => page.deliveries.map(({ id }) => id);
  for (const filter of [{}, { webhookId }]) {
    const pages = await pagesOf(read(filter));
    expect(pages.map(idsOf)).toEqual([expected.slice(0, 4), expected.slice(4)]);
    const times = pages.map(({ searchedBackTo }) => searchedBackTo && timestampDate(searchedBackTo));
    expect(times).toEqual([timeOfId(ids[SCANNED - 1] as string), undefined]);
    const back = await pagesOf(read(filter), pages[1]?.previousPageToken, "previousPageToken");
    expect(back.reverse().flatMap(idsOf)).toEqual(expected.slice(0, 4));
  }
  // A page looks at half as many deliveries of each of the event type's two webhooks.
  const ofType = await pagesOf(read({ process: 1 }));
  expect(ofType.flatMap(idsOf)).toEqual(expected);
  expect(ofType.map(({ searchedBackTo }) => searchedBackTo !== undefined)).toEqual([true, true, false]);
});
