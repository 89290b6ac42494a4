import { randomUUID } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { afterAll, expect, test } from "vitest";
import { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { customerScope } from "../../../src/calls/index.ts";
import { termOf } from "../../../src/events/search.ts";
import { listDeliveries } from "../../../src/log/list.ts";
import { changeReplay, insertReplay } from "../../../src/replays/replays.ts";
import { NIL_ID } from "../../../src/schema/index.ts";
import { aWebhook } from "../../support/builders.ts";
import { expectRefused } from "../../support/refusals.ts";
import { idBeside, storeDeliveries } from "../../support/stored-deliveries.ts";
import { freshUrl, startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
/** Rights that a key of a customer can have. */
const permissions = [
  Permission.READ_ADMINISTRATIVE_DATA,
  Permission.WRITE_ADMINISTRATIVE_DATA,
  Permission.PUBLISH_EVENTS,
  Permission.MANAGE_API_KEYS,
];
const keyOf = (customer: string, more = {}) => api.key({ permissions, customer, ...more });
const app = await api.app("Shop");
const [acme, globex] = [await keyOf("acme"), await keyOf("globex")];
const ofAcme = await api.register({ key: acme.secret });
const ofGlobex = await api.register({ key: globex.secret });
const ofOperator = await api.register();
const [asAcme, asApp] = [
  api.as(acme.secret),
  api.as((await api.key({ permissions, installedAppId: app })).secret),
];
await storeDeliveries(db, [
  ...[ofAcme, ofGlobex, ofGlobex].map((webhookId) => ({ webhookId, state: "failed" as const })),
  ...[ofAcme, ofGlobex, ofGlobex].map((webhookId) => ({ webhookId, state: "retrying" as const })),
]);

const rights = { name: "new", permissions: [Permission.READ_ADMINISTRATIVE_DATA] };
const orderOf = (userId: string, orderNumber: string) => ({
  userId,
  idempotencyKey: randomUUID(),
  data: {
    case: "orderDispatched" as const,
    value: { orderId: 1n, orderNumber, dispatchedAt: { seconds: 1n, nanos: 0 } },
  },
});
const order = (userId: string) => orderOf(userId, "1");

test("a key of a customer makes keys of its customer only, named or not; others are refused alike, whether they exist or not", async () => {
  const { apiKey: unnamed } = await asAcme.keys.createApiKey(rights);
  const { apiKey: named } = await asAcme.keys.createApiKey({ ...rights, customer: "acme" });
  expect([unnamed?.customer, named?.customer]).toEqual(["acme", "acme"]);
  const refused = await Promise.all(
    ["globex", "nobody"].map((customer) =>
      expectRefused(
        asAcme.keys.createApiKey({ ...rights, customer }),
        Code.PermissionDenied,
        "belongs to another customer",
      ),
    ),
  );
  expect(new Set(refused.map(({ rawMessage }) => rawMessage)).size).toBe(1);
  for (const customer of ["acme", "nobody"])
    await expectRefused(
      asApp.keys.createApiKey({ ...rights, customer, installedApplicationId: app }),
      Code.PermissionDenied,
      "installed app, and cannot access customers",
    );
});

test.each([
  [{ quotas: { webhooks: 1 } }, Code.PermissionDenied, "keys of customers cannot set quotas"],
  [{ installedApplicationId: app }, Code.PermissionDenied, "belongs to a customer and to no installed app"],
  [{ permissions: [Permission.MANAGE_EVENT_TYPES] }, Code.InvalidArgument, "keys of customers cannot have"],
  [{ permissions: [Permission.MANAGE_CUSTOMERS] }, Code.InvalidArgument, "keys of customers cannot have"],
])("a key of a customer does not make a key with %j", async (more, code, text) => {
  await expectRefused(asAcme.keys.createApiKey({ ...rights, ...more }), code, text);
});

test("a key of a customer makes no key with more rights than its own", async () => {
  const { secret } = await keyOf("acme", { permissions: [Permission.MANAGE_API_KEYS] });
  await expectRefused(
    api.as(secret).keys.createApiKey(rights),
    Code.PermissionDenied,
    "a key of a customer manages keys with at most its own rights",
  );
});

test.each([
  ["", "is empty"],
  ["a b", "a space"],
  ["käse", "a character outside ASCII"],
  ["\0", "a control character"],
  ["a".repeat(129), "129 characters"],
])("the name %j of a customer is refused to every key, in every request", async (customer, text) => {
  for (const { keys, deliveries, stats } of [api, asAcme, asApp])
    for (const call of [
      () => keys.createApiKey({ ...rights, customer }),
      () => keys.listApiKeys({ customer }),
      () => deliveries.listDeliveries({ customer }),
      () => stats.getOverview({ customer }),
    ])
      await expectRefused(call(), Code.InvalidArgument, text);
});

test("the operator makes keys of customers and of their apps, and narrows lists to a customer; an entry names it", async () => {
  const { apiKey } = await api.keys.createApiKey({
    ...rights,
    customer: "initech",
    installedApplicationId: app,
  });
  expect(apiKey).toMatchObject({ customer: "initech", installedApplicationId: app });
  const { apiKeys } = await api.keys.listApiKeys({ customer: "initech" });
  expect(apiKeys.map(({ id }) => id)).toEqual([apiKey?.id]);
  const { entries } = await api.audit.listAuditEntries({ customer: "initech" });
  expect(entries).toMatchObject([{ targetId: apiKey?.id, customer: "initech" }]);
  const { deliveries } = await api.deliveries.listDeliveries({ customer: "acme" });
  expect(new Set(deliveries.map(({ webhookId }) => webhookId))).toEqual(new Set([ofAcme]));
  const { overview } = await api.stats.getOverview({ customer: "globex" });
  expect(overview).toMatchObject({ retrying: 2n, healthyWebhooks: 1n });
  await expectRefused(asApp.deliveries.listDeliveries({ customer: "acme" }), Code.PermissionDenied);
});

test("webhooks stay with their customer: they are transferred to a key of the same customer only", async () => {
  const from = await keyOf("acme");
  await api.register({ key: from.secret });
  const toKey = (transferToKeyId: string) =>
    api.keys.revokeApiKey({
      apiKeyId: from.id,
      webhooks: { case: "transferToKeyId", value: transferToKeyId },
    });
  for (const { id } of [globex, await api.key()])
    await expectRefused(toKey(id), Code.FailedPrecondition, "do not belong to the same customer");
  expect((await toKey(acme.id)).webhooksTransferred).toBe(1);
  const own = await api.key();
  await expectRefused(
    api.keys.revokeApiKey({ apiKeyId: own.id, webhooks: { case: "transferToKeyId", value: acme.id } }),
    Code.FailedPrecondition,
    "do not belong to the same customer",
  );
  const unknown = (id: string) =>
    expectRefused(
      asAcme.keys.revokeApiKey({ apiKeyId: acme.id, webhooks: { case: "transferToKeyId", value: id } }),
      Code.NotFound,
      `there is no API key ${id}`,
    );
  for (const id of [globex.id, own.id, randomUUID()]) await unknown(id);
});

test("a key of a customer publishes its own events only, and is not told of the operator's webhooks", async () => {
  const refused = await Promise.all(
    ["globex", "nobody"].map((userId) =>
      expectRefused(asAcme.events.publishEvent(order(userId)), Code.PermissionDenied, "user_id"),
    ),
  );
  expect(new Set(refused.map(({ rawMessage }) => rawMessage)).size).toBe(1);
  const { eventId, deliveriesQueued } = await asAcme.events.publishEvent(order("acme"));
  expect(deliveriesQueued).toBe(0);
  const queued = (await db("queue").where({ event_id: eventId }).pluck("webhook_id")).map(BigInt);
  expect(queued).toEqual(expect.arrayContaining([ofAcme, ofOperator]));
  expect(queued).not.toContain(ofGlobex);
  const { deliveries } = await asAcme.deliveries.getEvent({ eventId });
  expect(deliveries).toMatchObject([{ count: queued.length - 1 }]);
});

test.each(["publishEventBatch", "publishEvents"] as const)(
  "with %s, an event of another customer is refused by itself",
  async (method) => {
    const events = [order("acme"), order("globex"), order("acme")];
    const stream = async function* () {
      yield { events };
    };
    const { results } =
      method === "publishEvents"
        ? await asAcme.events.publishEvents(stream())
        : await asAcme.events.publishEventBatch({ events });
    expect(results.map(({ result }) => result.case)).toEqual(["published", "error", "published"]);
    expect(results[1]?.result.value).toMatchObject({ code: Code.PermissionDenied });
  },
);

test("a key of a customer finds its customer's events that no webhook of it has received, unless it is for other event types", async () => {
  const { eventId } = await api.events.publishEvent(order("hooli"));
  const found = async (more = {}) =>
    (await api.as((await keyOf("hooli", more)).secret).deliveries.getEvent({ eventId })).event?.id;
  expect(await found()).toBe(eventId);
  for (const call of [
    () => found({ allowedProcesses: [2] }),
    () => found({ installedAppId: app }),
    () => asAcme.deliveries.getEvent({ eventId }),
  ])
    await expectRefused(call(), Code.NotFound, `there is no event ${eventId}`);
});

test("a key of a customer erases payloads of its customer only, and only with access to all of them", async () => {
  await api.events.publishEvent(order("globex"));
  await asAcme.events.publishEvent(order("acme"));
  const keys = [
    acme,
    await keyOf("acme", { allowedProcesses: [1] }),
    await keyOf("acme", { installedAppId: app }),
  ];
  const [whole, ...limited] = keys.map(({ secret }) => api.as(secret).events);
  for (const userId of ["globex", "nobody"])
    await expectRefused(
      whole?.erasePayloads({ userId }) as Promise<unknown>,
      Code.PermissionDenied,
      "of this customer only",
    );
  for (const events of limited)
    await expectRefused(
      events.erasePayloads({ userId: "acme" }),
      Code.PermissionDenied,
      "of this customer only",
    );
  const { erased, cancelled } = await asAcme.events.erasePayloads({ userId: "acme" });
  expect([erased > 0, cancelled]).toEqual([true, 0]);
  const [entry] = (await asAcme.audit.listAuditEntries({})).entries;
  expect(entry).toMatchObject({ customer: "acme", actor: { apiKeyId: acme.id } });
  expect(entry?.changes.map(({ field }) => field)).toEqual(["user_id", "payloads_erased"]);
  expect(await db("events").where({ user_id: "globex", payload: null }).pluck("id")).toEqual([]);
});

test.each(["service", "test"])(
  "no customer is named %s, the user of events of the service itself, which it could erase",
  async (customer) => {
    await expectRefused(
      api.keys.createApiKey({ ...rights, customer }),
      Code.InvalidArgument,
      "users of the service's own",
    );
  },
);

test("notices about the operator's webhooks that have the customer's user are neither shown to the customer nor counted when it erases", async () => {
  const notice = {
    api_key_id: NIL_ID,
    process: WebhookProcess.DELIVERY_FAILED,
    user_id: "initech",
    occurred: new Date(),
    recipients: 1,
    payload: JSON.stringify({ Webhook: { Url: "https://operator.example" } }),
  };
  const events = ["1", "2"].map((key) => ({ ...notice, id: db.raw("new_event_id()"), idempotency_key: key }));
  const [event] = await db("events").insert(events).returning("id");
  const as = api.as((await keyOf("initech")).secret);
  await expectRefused(as.deliveries.getEvent({ eventId: event?.id }), Code.NotFound, "there is no event");
  expect((await api.deliveries.getEvent({ eventId: event?.id })).event?.id).toBe(event?.id);
  await api.events.publishEvent(order("initech"));
  expect(await as.events.erasePayloads({ userId: "initech" })).toMatchObject({ erased: 1, more: false });
  const [entry] = (await as.audit.listAuditEntries({})).entries;
  expect(entry?.changes).toMatchObject([{ after: "initech" }, { field: "payloads_erased", after: "1" }]);
  expect(await db("events").where({ user_id: "initech" }).whereNotNull("payload")).toEqual([]);
});

test("each customer may have five open replays; those of others neither count nor are counted with the operator's", async () => {
  const start = (as: typeof asAcme) =>
    as.replays.startReplay({ what: { case: "resend", value: { webhookId: ofAcme } } });
  const insert = (customer: string, apiKeyId: string) =>
    insertReplay(
      db,
      { customer, installedAppId: null, processes: [], permissions: [] },
      { apiKeyId, idempotencyKey: null, kind: "resend", filter: { states: ["failed"] } },
      30,
    );
  for (let n = 0; n < 60; n += 1) await insert("globex", globex.id);
  for (let n = 0; n < 4; n += 1) await insert("acme", acme.id);
  await start(asAcme);
  await expectRefused(start(asAcme), Code.FailedPrecondition, "5 replays of your API keys");
  await start(api);
  await db("replays").delete();
});

test("a replay of another customer is not changed, not even for the time of a call", async () => {
  const request = { apiKeyId: globex.id, idempotencyKey: null, kind: "resend" as const };
  const { id } = await insertReplay(
    db,
    customerScope("globex"),
    { ...request, filter: { states: ["failed"] } },
    30,
  );
  const changed = (customer: string) =>
    db.transaction((trx) => changeReplay(trx, customerScope(customer), id, "pause"));
  expect([await changed("acme"), await changed("globex")]).toEqual([false, true]);
  await db("replays").delete();
});

test("overviews that are read at the same time are shared by keys of the same customer only", async () => {
  const [a, b] = await Promise.all([asAcme, api.as(globex.secret)].map(({ stats }) => stats.getOverview({})));
  expect([a?.overview?.retrying, b?.overview?.retrying]).toEqual([1n, 2n]);
});

test("a customer's key sees no installed apps; one of an app sees this app", async () => {
  expect((await asAcme.keys.listInstalledApps({})).installedApps).toEqual([]);
  const both = await keyOf("acme", { installedAppId: app });
  expect((await api.as(both.secret).keys.listInstalledApps({})).installedApps).toMatchObject([{ id: app }]);
});

test("a filter of a customer's webhook is tried on events of this customer", async () => {
  await api.events.publishEvent(order("acme"));
  await api.events.publishEvent(order("globex"));
  const tried = await api.webhooks.tryWebhookFilter({ webhookId: ofAcme, filter: "true" });
  expect(new Set(tried.events.map(({ userId }) => userId))).toEqual(new Set(["acme"]));
});

test("rows of others end no page of a customer early, however many webhooks it has", async () => {
  const { id } = await keyOf("umbrella");
  const webhooks: bigint[] = [];
  for (let n = 0; n < 101; n += 1)
    webhooks.push(await aWebhook().ownedBy(id).with({ customer: "umbrella" }).in(db));
  const [first, last] = [webhooks[0] as bigint, webhooks.at(-1) as bigint];
  const own = await storeDeliveries(
    db,
    [first, last].map((webhookId) => ({ webhookId, state: "delivered" })),
  );
  await storeDeliveries(
    db,
    Array.from({ length: 300 }, () => ({ webhookId: ofGlobex, state: "delivered" as const })),
  );
  const scope = { customer: "umbrella", installedAppId: null, processes: [], permissions: [] };
  const { deliveries, searchedTo } = await listDeliveries(db, scope, {}, 3, 202);
  expect([new Set(deliveries.map((each) => each.id)), searchedTo]).toEqual([new Set(own), null]);
});

test("events of others end no search of a customer early, however many match", async () => {
  const number = `A-${randomUUID()}`;
  const { eventId } = await asAcme.events.publishEvent(orderOf("acme", number));
  await db.raw(
    `with others as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, payload)
        select new_event_id(), :keyId::uuid, 'other ' || n, 1, 'globex', now(), '{}' from generate_series(1, 1001) n
        returning id
      )
      insert into search_terms (term, event_id) select :term::bigint, id from others`,
    { keyId: globex.id, term: String(termOf(number)) },
  );
  const found = async (search: string) => {
    const { deliveries, nextPageToken } = await asAcme.deliveries.listDeliveries({ search });
    return [new Set(deliveries.map((each) => each.eventId)), nextPageToken];
  };
  expect(await found(number)).toEqual([new Set([eventId]), ""]);
  expect(await found("globex")).toEqual([new Set(), ""]);
});

test("deliveries of an event that are not queued yet are counted for the operator only", async () => {
  const { eventId } = await asAcme.events.publishEvent(order("acme"));
  const counted = async ({ deliveries }: typeof asAcme) =>
    (await deliveries.getEvent({ eventId })).deliveries.reduce((sum, { count }) => sum + count, 0);
  const [own, all] = [await counted(asAcme), await counted(api)];
  await db("fan_out").insert({ event_id: eventId, process: 1, revision: 0, remaining: 5 });
  expect([await counted(asAcme), await counted(api)]).toEqual([own, all + 5]);
  await db("fan_out").delete();
});

test("with APP_ISOLATION=strict, a key of an app lists and deletes webhooks of its app only, by every protocol", async () => {
  const strict = await startTestApi({ isolatesApps: true });
  afterAll(() => strict.stop());
  const [shop, other] = [await strict.app("Shop"), await strict.app("Other")];
  const { secret } = await strict.key({ installedAppId: shop });
  // For another event type than that of a second key of the app.
  const narrow = await strict.key({ installedAppId: shop, allowedProcesses: [2] });
  const url = freshUrl();
  const own = await strict.register({ key: secret, url });
  const others = [
    await strict.register({ key: (await strict.key({ installedAppId: other })).secret }),
    await strict.register(),
  ];
  for (const key of [secret, narrow.secret]) {
    const { envelope } = await strict.rest("GET", "/api/webhook/list", { key });
    expect(envelope.Data.map(({ Url }: { Url: string }) => Url)).toEqual([url]);
    const { webhooks } = await strict.as(key).webhooks.listWebhooks({});
    expect(webhooks.map(({ id }) => id)).toEqual([own]);
  }
  for (const webhookId of others)
    await expectRefused(strict.as(secret).webhooks.deleteWebhook({ webhookId }), Code.NotFound);
  expect((await strict.webhooks.listWebhooks({})).webhooks).toHaveLength(3);
  expect((await strict.as(narrow.secret).webhooks.deleteWebhook({ webhookId: own })).webhook?.id).toBe(own);
});

test("the operator's webhooks of a customer's event end neither its search nor its list early, and are not counted so", async () => {
  const { id, secret } = await keyOf("hooli");
  const own = await aWebhook().ownedBy(id).with({ customer: "hooli" }).in(db);
  const number = `H-${randomUUID()}`;
  const event = {
    api_key_id: id,
    process: 1,
    user_id: "hooli",
    occurred: new Date(),
    recipients: 30_000,
    payload: "{}",
  };
  const events: string[] = await db("events")
    .insert(["1", "2"].map((key) => ({ ...event, id: db.raw("new_event_id()"), idempotency_key: key })))
    .returning("id")
    .then((made) => made.map((each) => each.id));
  await db("search_terms").insert(events.map((event_id) => ({ term: String(termOf(number)), event_id })));
  const recipients = [ofOperator, ofOperator, ofOperator, own];
  await storeDeliveries(
    db,
    events.flatMap((eventId) =>
      recipients.map((webhookId) => ({
        webhookId,
        eventId,
        id: idBeside(eventId),
        state: "delivered" as const,
      })),
    ),
  );
  const { deliveries } = api.as(secret);
  for (const search of [number, "hooli"]) {
    const { deliveries: found, nextPageToken } = await deliveries.listDeliveries({ search });
    expect([new Set(found.map((each) => each.eventId)), nextPageToken]).toEqual([new Set(events), ""]);
  }
  const eventId = events[0] as string;
  const { deliveries: listed, searchedTo } = await listDeliveries(
    db,
    customerScope("hooli"),
    { eventId },
    2,
    2,
  );
  expect([listed.map((each) => each.webhookId), searchedTo]).toEqual([[own], null]);
});
