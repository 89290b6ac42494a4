import { randomUUID } from "node:crypto";
import { type Timestamp, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import type { DeliveryStateName } from "../../../../src/db/deliveries/deliveries.ts";
import { type DeliveryFilter, listDeliveries } from "../../../../src/db/deliveries/list.ts";
import { createInstalledApp } from "../../../../src/db/keys/installed-apps.ts";
import { timeOfId } from "../../../../src/db/partitions.ts";
import type { Scope } from "../../../../src/db/scope.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { idAt, idBeside, type Stored, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

const STATES = ["delivered", "failed", "cancelled", "pending", "retrying", "delivering"] as const;
const HOUR = 3_600_000;

interface Made {
  id: string;
  webhookId: number;
  process: WebhookProcess;
  state: (typeof STATES)[number];
  created: Date;
}

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
/** Oldest first: 120 deliveries, an hour apart, of four webhooks of two event types, in every state. */
const made: Made[] = [];

beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
  const webhooks: { id: number; process: WebhookProcess }[] = [];
  for (const process of [1, 1, 2, 2] as WebhookProcess[]) {
    const url = `https://receiver.example/${webhooks.length}`;
    const answer = await api.rest("POST", "/api/webhook", { json: { process, url } });
    webhooks.push({ id: answer.envelope.Data.Id, process });
  }
  const start = Date.now() - 200 * HOUR;
  for (let n = 0; n < 120; n += 1) {
    const webhook = webhooks[(n * 7) % 4] as (typeof webhooks)[number];
    const created = new Date(start + n * HOUR);
    const state = STATES[(n * 5 + Math.floor(n / 6)) % STATES.length] as Made["state"];
    made.push({ id: idAt(created, n), webhookId: webhook.id, process: webhook.process, state, created });
  }
  await storeDeliveries(api.context.db, made);
});
afterAll(() => api.stop());

interface Filter {
  webhookId?: bigint;
  process?: WebhookProcess;
  states?: DeliveryState[];
  from?: Timestamp;
  to?: Timestamp;
}

/** What the filter finds, gathered by pages of seven; also back from the last page to the first. */
async function pages(filter: Filter): Promise<string[]> {
  const read = (pageToken: string) => deliveries.listDeliveries({ ...filter, pageSize: 7, pageToken });
  const ids = (page: { deliveries: Delivery[] }) =>
    page.deliveries.map(({ id, state, webhookId }) => {
      const one = made.find((each) => each.id === id);
      expect([nameOf(state), webhookId]).toEqual([one?.state, BigInt(one?.webhookId ?? 0)]);
      return id;
    });
  let page = await read("");
  const found = ids(page);
  while (page.nextPageToken !== "") {
    page = await read(page.nextPageToken);
    found.push(...ids(page));
  }
  const back = ids(page);
  while (page.previousPageToken !== "") {
    page = await read(page.previousPageToken);
    back.unshift(...ids(page));
  }
  expect(back).toEqual(found);
  return found;
}

const nameOf = (state: DeliveryState) =>
  Object.entries(DeliveryState)
    .find(([, number]) => number === state)?.[0]
    .toLowerCase();

const matching = ({ webhookId, process, states = [], from, to }: Filter) =>
  made
    .filter(
      (delivery) =>
        (webhookId === undefined || BigInt(delivery.webhookId) === webhookId) &&
        (process === undefined || delivery.process === process) &&
        (states.length === 0 || states.some((state) => nameOf(state) === delivery.state)) &&
        (!from || delivery.created.getTime() >= Number(from.seconds) * 1_000 + from.nanos / 1e6) &&
        (!to || delivery.created.getTime() < Number(to.seconds) * 1_000 + to.nanos / 1e6),
    )
    .map(({ id }) => id)
    .reverse();

describe("a list of deliveries, page by page and newest first, has what its filter lets through and no more", () => {
  const states: [string, DeliveryState[]][] = [
    ["any state", []],
    ["failed", [DeliveryState.FAILED]],
    ["pending", [DeliveryState.PENDING]],
    ["any of three", [DeliveryState.FAILED, DeliveryState.CANCELLED, DeliveryState.DELIVERED]],
  ];
  test.each(states)("by %s, with event type, webhook and time", async (_name, wanted) => {
    const state = { states: wanted };
    const webhookId = BigInt(made[0]?.webhookId as number);
    // From the moment of one delivery, which is in, to that of another, which is not.
    const times = {
      from: timestampFromDate(made[20]?.created as Date),
      to: timestampFromDate(made[90]?.created as Date),
    };
    const filters: Filter[] = [
      state,
      { ...state, process: 1 },
      { ...state, process: 2, ...times },
      { ...state, webhookId },
      { ...state, webhookId, ...times },
      { ...state, webhookId, process: made[0]?.process as WebhookProcess },
      { ...state, ...times },
    ];
    for (const filter of filters) {
      const expected = matching(filter);
      expect(expected.length).toBeGreaterThan(0);
      expect(await pages(filter)).toEqual(expected);
    }
  });
});

test("a page is gone back to from the next one, and from the first one lead what came since", async () => {
  const eventId = idBeside(idAt(new Date()));
  const webhookId = made[0]?.webhookId as number;
  const add = async (n: number) => {
    const id = `${eventId.slice(0, 18)}-8000-${n.toString().padStart(12, "0")}`;
    await storeDeliveries(api.context.db, [{ id, webhookId, eventId }]);
    return id;
  };
  const read = (pageToken: string) => deliveries.listDeliveries({ eventId, pageSize: 2, pageToken });
  expect(await read("")).toMatchObject({ deliveries: [], nextPageToken: "", previousPageToken: "" });
  const [first, second, third] = [await add(1), await add(2), await add(3)];

  const newest = await read("");
  expect(newest.deliveries.map(({ id }) => id)).toEqual([third, second]);
  const older = await read(newest.nextPageToken);
  expect(older).toMatchObject({ deliveries: [{ id: first }], nextPageToken: "" });
  const back = await read(older.previousPageToken);
  expect(back.deliveries.map(({ id }) => id)).toEqual([third, second]);
  expect(back.previousPageToken).toBe("");
  expect((await read(back.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([first]);

  const nothing = await read(newest.previousPageToken);
  expect(nothing).toMatchObject({ deliveries: [], previousPageToken: "" });
  expect((await read(nothing.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([third, second]);
  const fourth = await add(4);
  const since = await read(newest.previousPageToken);
  expect(since.deliveries.map(({ id }) => id)).toEqual([fourth]);
  expect((await read(since.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([third, second]);
});

test("filters that exclude each other find nothing", async () => {
  const [{ webhookId, process }] = made as [Made];
  const other = process === 1 ? 2 : 1;
  expect(await pages({ webhookId: BigInt(webhookId), process: other })).toEqual([]);
  expect(await pages({ process: 3 })).toEqual([]);
  const early = timestampFromDate(new Date("2020-01-01T00:00:00Z"));
  expect(await pages({ to: early })).toEqual([]);
});

test("a delivery is found by its id, unless the rest of the filter is against it", async () => {
  const { id: deliveryId, state } = made[3] as Made;
  const found = await deliveries.listDeliveries({ deliveryId });
  expect(found.deliveries.map(({ id }) => id)).toEqual([deliveryId]);
  expect(found.nextPageToken).toBe("");
  const others = STATES.filter((each) => each !== state).map(
    (each) => DeliveryState[each.toUpperCase() as keyof typeof DeliveryState],
  );
  expect((await deliveries.listDeliveries({ deliveryId, states: others })).deliveries).toEqual([]);
  expect((await deliveries.listDeliveries({ deliveryId: randomUUID() })).deliveries).toEqual([]);
});

describe("a search that ends early, since few deliveries pass its filter,", () => {
  let sparse: TestApi;
  let apps: [string, string];
  /** Oldest first. */
  const all: (Stored & { id: string; webhookId: bigint; process: number; app: string | null })[] = [];

  beforeAll(async () => {
    sparse = await startTestApi();
    const { db } = sparse.context;
    apps = [await appWithWebhooks(2), await appWithWebhooks(101)];
    const webhooks = await rows<{ id: bigint; process: number; app: string | null }>(
      db,
      "select id, process, installed_app_id as app from webhooks order by id",
    );
    const [one, two, other] = [
      webhooks.filter(({ app }) => app === apps[0]),
      [await sparse.register(), await sparse.register()].map((id) => ({ id, process: 1, app: null })),
      webhooks.filter(({ app }) => app === apps[1]),
    ];
    const start = Date.now() - 500_000;
    // One webhook of each pair had its deliveries before the other one; all of the latter's late ones failed.
    const ages: [from: number, to: number, webhooks: typeof webhooks, states: DeliveryStateName[]][] = [
      [0, 60, [one[0], two[0]] as typeof webhooks, ["delivered", "failed", "delivered", "pending"]],
      [60, 90, other, ["delivered", "retrying", "failed", "cancelled", "pending", "delivering"]],
      [90, 150, [one[1], two[1]] as typeof webhooks, ["failed", "delivered", "cancelled", "retrying"]],
      [150, 290, [one[1], two[1]] as typeof webhooks, ["failed", "failed", "delivering", "failed"]],
      [290, 300, [...one, ...two, ...other.slice(0, 1)], ["failed", "delivered", "pending"]],
    ];
    for (const [from, to, owners, states] of ages) {
      for (let n = from; n < to; n += 1) {
        const { id: webhookId, ...owner } = owners[(n >> 2) % owners.length] as (typeof webhooks)[number];
        const state = states[n % states.length] as DeliveryStateName;
        all.push({ id: idAt(new Date(start + n * 1_000), n), webhookId, state, ...owner });
      }
    }
    await storeDeliveries(db, all);
  });
  afterAll(() => sparse.stop());

  /** Makes an installed app with webhooks of OrderDispatched and DocumentCreated in turn; answers its id. */
  async function appWithWebhooks(count: number): Promise<string> {
    const { db } = sparse.context;
    const { id } = await createInstalledApp(db, "app");
    await db.raw(
      `insert into webhooks (process, url, target_url, api_key_id, installed_app_id, secret)
        select 1 + n % 2, :id || n, :id || n, :key::uuid, :id::uuid, '' from generate_series(1, :count::int) n`,
      { id, count, key: sparse.adminKeyId },
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
      const list = await listDeliveries(sparse.context.db, scope, { ...filter, ...place }, limit, scanned);
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
  const searches: [string, number, () => [Scope, DeliveryFilter]][] = [
    ["all webhooks", 20, () => ["everything", delivered]],
    [
      "all webhooks, of a state that the queue has no index for",
      20,
      () => ["everything", { states: ["pending"] }],
    ],
    [
      "all webhooks, of states in every table",
      20,
      () => ["everything", { states: ["pending", "retrying", "delivered"] }],
    ],
    [
      "all webhooks, created in a time",
      20,
      () => [
        "everything",
        { ...delivered, from: new Date(Date.now() - 470_000), to: new Date(Date.now() - 205_000) },
      ],
    ],
    ["one webhook", 10, () => ["everything", { ...delivered, webhookId: all[150]?.webhookId as bigint }]],
    ["the webhooks of an event type", 1_040, () => ["everything", { ...delivered, process: 2 }]],
    ["the webhooks of an app", 20, () => [scopeOf(apps[0]), delivered]],
    [
      "the webhooks of an app, of several states",
      20,
      () => [scopeOf(apps[0]), { states: ["delivered", "pending", "cancelled"] }],
    ],
    ["the webhooks of an app, in any state", 20, () => [scopeOf(apps[0]), {}]],
    ["the webhooks of an app, that failed", 20, () => [scopeOf(apps[0]), { states: ["failed"] }]],
    [
      "one webhook of an app",
      10,
      () => [scopeOf(apps[0]), { ...delivered, webhookId: all[152]?.webhookId as bigint }],
    ],
    ["the more than a hundred webhooks of an app", 20, () => [scopeOf(apps[1]), {}]],
    [
      "the more than a hundred webhooks of an app, of a state",
      20,
      () => [scopeOf(apps[1]), { states: ["cancelled"] }],
    ],
  ];
  test.each(searches)(
    "leads to each delivery of %s once, to the older and back",
    async (_name, scanned, of) => {
      const [scope, filter] = of();
      const { states = [], webhookId, process, from, to } = filter;
      const expected = all
        .filter((one) => scope === "everything" || one.app === scope.installedAppId)
        .filter((one) => webhookId === undefined || one.webhookId === webhookId)
        .filter((one) => process === undefined || one.process === process)
        .filter((one) => states.length === 0 || states.includes(one.state as DeliveryStateName))
        .filter(({ id }) => (!from || timeOfId(id) >= from) && (!to || timeOfId(id) < to))
        .map(({ id }) => id)
        .reverse();
      expect(expected.length).toBeGreaterThan(4);
      const first = idAt(new Date(0), 0);
      for (const limit of [1, 4, 11, 500]) {
        const down = await walk(scope, filter, limit, scanned);
        expect(down.found, `pages of ${limit}`).toEqual(expected);
        const up = await walk(scope, { ...filter, after: first }, limit, scanned);
        expect(up.found, `pages of ${limit}, back`).toEqual(expected);
        // No page is full, so each but the last one ends early.
        if (limit === 500) expect(Math.min(down.early, up.early)).toBeGreaterThan(0);
      }
    },
  );
});

describe("among so many deliveries that few pass, pages are answered early and tell how far they have searched:", () => {
  /** As many as a page looks at, of a table or of one webhook in it. */
  const SCANNED = 20_000;
  const COUNT = 2 * SCANNED + 5_000;
  let large: TestApi;
  let webhookId: bigint;
  /** Newest first. */
  let expected: string[];
  /** The last deliveries that the first and the second page of one webhook look at. */
  let horizons: string[];

  beforeAll(async () => {
    large = await startTestApi();
    const { db } = large.context;
    webhookId = await large.register();
    await large.register();
    await db.raw(
      `with event as materialized (select new_event_id() as id from generate_series(1, ?::int))
        insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, finished)
        select new_delivery_id(id), id, ?, 'failed', 0, 0, now() from event`,
      [COUNT, String(webhookId)],
    );
    const ids = await db("deliveries").orderBy("id", "desc").pluck("id");
    horizons = [ids[SCANNED - 1], ids[2 * SCANNED - 1]];
    // The last one of the first page is found. The second page has none, the third one has only its last.
    expected = [3, 700, 701, SCANNED - 1, COUNT - 1].map((place) => ids[place]);
    await db("deliveries").whereIn("id", expected).update({ outcome: "delivered" });
  }, 180_000);
  afterAll(() => large.stop());

  const states = [DeliveryState.DELIVERED];
  const searches: [string, () => Filter][] = [
    ["all webhooks", () => ({ states })],
    ["one webhook", () => ({ states, webhookId })],
  ];
  test.each(searches)("of %s, to the older and back", async (_name, filter) => {
    const client = createClient(DeliveryService, grpc(large));
    const read = (pageToken: string) => client.listDeliveries({ ...filter(), pageSize: 10, pageToken });
    const idsOf = (page: { deliveries: Delivery[] }) => page.deliveries.map(({ id }) => id);
    const pages = [await read("")];
    while (pages.at(-1)?.nextPageToken) pages.push(await read(pages.at(-1)?.nextPageToken as string));
    expect(pages.map(idsOf)).toEqual([expected.slice(0, 4), [], expected.slice(4)]);
    expect(pages.map(({ searchedBackTo }) => searchedBackTo && timestampDate(searchedBackTo))).toEqual([
      timeOfId(horizons[0] as string),
      timeOfId(horizons[1] as string),
      undefined,
    ]);

    for (const { previousPageToken } of pages.slice(1)) {
      const found: string[] = [];
      let newest = "";
      for (let token = previousPageToken; token !== ""; ) {
        const page = await read(token);
        found.unshift(...idsOf(page));
        [newest, token] = [token, page.previousPageToken];
      }
      expect(found).toEqual(expected.slice(0, 4));
      // And once more to the older, from the newest page.
      const again = [await read(newest)];
      while (again.at(-1)?.nextPageToken) again.push(await read(again.at(-1)?.nextPageToken as string));
      expect(again.flatMap(idsOf)).toEqual(expected);
    }
  });

  test("of an event type, whose webhooks share what a page looks at", async () => {
    const client = createClient(DeliveryService, grpc(large));
    const found: string[] = [];
    const searched: (Timestamp | undefined)[] = [];
    let pageToken = "";
    do {
      const page = await client.listDeliveries({ states, process: 1, pageSize: 10, pageToken });
      found.push(...page.deliveries.map(({ id }) => id));
      searched.push(page.searchedBackTo);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(found).toEqual(expected);
    // A page looks at half as many deliveries of each of the two webhooks.
    expect(searched.map((time) => time !== undefined)).toEqual([true, true, true, true, false]);
  });

  test("and sending them all again call by call reaches each of them", async () => {
    const client = createClient(DeliveryService, grpc(large));
    const sent: number[] = [];
    let pageToken = "";
    do {
      const answer = await client.sendAgainMany({ states, pageSize: 10, pageToken });
      sent.push(answer.sentAgain);
      pageToken = answer.nextPageToken;
    } while (pageToken !== "");
    expect(sent).toEqual([4, 0, 1]);
    expect(await large.context.db("queue").orderBy("id", "desc").pluck("id")).toEqual(expected);
  });
});

test("what cannot be an id, an event type or a time is INVALID_ARGUMENT", async () => {
  const refused = await Promise.all([
    failure(deliveries.listDeliveries({ deliveryId: "x" })),
    failure(deliveries.listDeliveries({ process: 99 as WebhookProcess })),
    failure(deliveries.listDeliveries({ from: { seconds: 1n << 60n, nanos: 0 } })),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
  expect(refused[0]?.rawMessage).toContain("delivery_id");
});
