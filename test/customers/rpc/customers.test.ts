import { Code } from "@connectrpc/connect";
import { beforeEach, describe, expect, test } from "vitest";
import { AuditAction, type AuditEntry } from "../../../gen/webhook/v1/audit_pb.ts";
import { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { OWN_USERS } from "../../../src/contract/catalogue.ts";
import { listCustomers } from "../../../src/customers/customer-list.ts";
import { NIL_ID } from "../../../src/schema/partitions.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";
import { customerKey, publishFor } from "../customer-parts.ts";

const api = await useApi();
const { db } = api.context;
const { customers } = api;
beforeEach(() => api.empty());

const OWN = Object.values(OWN_USERS);
const idsOf = (answer: { customers: { userId: string }[] }) => answer.customers.map(({ userId }) => userId);
/** The user ids of all pages, from the first one on. */
async function allPages(request: { pageSize?: number; search?: string }): Promise<string[][]> {
  const pages: string[][] = [];
  for (let pageToken = ""; ; ) {
    const page = await customers.listCustomers({ ...request, pageToken });
    pages.push(idsOf(page));
    pageToken = page.nextPageToken;
    if (pageToken === "") return pages;
  }
}
const entriesOf = async (targetId: string): Promise<AuditEntry[]> =>
  (await api.audit.listAuditEntries({ targetId })).entries;

describe("the list", () => {
  test("has the customers with a key or a setting and those that only events name, each once, in order", async () => {
    await customerKey(api, "key");
    await customers.updateCustomer({ customer: "Setting" });
    await publishFor(db, "event", "event", "key", "Zebra");
    const all = await customers.listCustomers({});
    expect(idsOf(all)).toEqual(["Setting", "Zebra", "event", "key"]);
    expect(all.nextPageToken).toBe("");
    const created = all.customers.map((customer) => customer.created !== undefined);
    expect(created).toEqual([true, false, false, true]);
  });

  test("is read in pages that miss and repeat none", async () => {
    await publishFor(db, ...Array.from({ length: 7 }, (_, n) => `event-${n}`));
    for (let n = 0; n < 6; n += 1) await customers.updateCustomer({ customer: `event-${n}a` });
    const found: string[] = [];
    let pageToken = "";
    do {
      const page = await customers.listCustomers({ pageSize: 3, pageToken });
      expect(page.customers.length).toBeLessThanOrEqual(3);
      found.push(...idsOf(page));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    expect(found).toHaveLength(13);
    expect(found).toEqual([...new Set(found)].sort());
  });

  test("is searched by the beginning of the user_id and by any part of the display name, whatever its case", async () => {
    await publishFor(db, "acme-1", "acme-2", "not-acme", "ACME");
    await customers.updateCustomer({ customer: "acme-3" });
    await customers.updateCustomer({ customer: "4711", displayName: "The ACME Company" });
    await customers.updateCustomer({ customer: "acme%", displayName: "%" });
    expect(idsOf(await customers.listCustomers({ search: "acme" }))).toEqual([
      "4711",
      "acme%",
      "acme-1",
      "acme-2",
      "acme-3",
    ]);
    expect(idsOf(await customers.listCustomers({ search: "%" }))).toEqual(["acme%"]);
    expect(idsOf(await customers.listCustomers({ search: "nobody" }))).toEqual([]);
    const first = await customers.listCustomers({ search: "acme", pageSize: 2 });
    const second = await customers.listCustomers({
      search: "acme",
      pageSize: 2,
      pageToken: first.nextPageToken,
    });
    expect([...idsOf(first), ...idsOf(second)]).toEqual(["4711", "acme%", "acme-1", "acme-2"]);
  });

  test("reads each user_id of many events once, however many events it has", async () => {
    await publishFor(db, ...Array.from({ length: 500 }, () => "a"), "b", "c");
    const { customers: found, next } = await listCustomers(db, { after: "a", search: "", limit: 1 });
    expect([found.map(({ id }) => id), next]).toEqual([["b"], "b"]);
  });

  test("has no users of the service's own events, whoever published them, on no page", async () => {
    const webhookId = await api.register();
    await api.webhooks.sendTestEvent({ webhookId });
    await db.raw(
      "insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload) values (new_event_id(), ?, 'notice', ?, 'service', now(), 0, '{}')",
      [NIL_ID, WebhookProcess.WEBHOOK_FAILING],
    );
    await publishFor(db, "acme", "service", "shop", "test", "tests");
    expect((await db("events").distinct("user_id").pluck("user_id")).sort()).toEqual(
      ["acme", ...OWN, "shop", "tests"].sort(),
    );
    for (const pageSize of [1, 2, 3, 50]) {
      const pages = await allPages({ pageSize });
      expect(pages.flat()).toEqual(["acme", "shop", "tests"]);
      expect(pages.every((page) => page.length > 0)).toBe(true);
    }
    expect((await allPages({ search: "te" })).flat()).toEqual(["tests"]);
    expect((await allPages({ search: "service" })).flat()).toEqual([]);
  });

  test.each(["x", Buffer.from("a b").toString("base64url"), Buffer.from("ä").toString("base64url")])(
    "refuses %s as a token",
    async (pageToken) => {
      await expectRefused(customers.listCustomers({ pageToken }), Code.InvalidArgument, "page_token");
    },
  );
});

describe("a customer", () => {
  test("is found once a key, a setting or an event names it", async () => {
    await expectRefused(
      customers.getCustomer({ customer: "acme" }),
      Code.NotFound,
      "neither an API key, a setting nor an event names this customer",
      "CUSTOMER_NOT_FOUND",
    );
    for (const call of [customers.pauseCustomer, customers.resumeCustomer, customers.eraseCustomer])
      await expectRefused(call({ customer: "acme" }), Code.NotFound, "", "CUSTOMER_NOT_FOUND");
    expect(await db("customers")).toEqual([]);
    await publishFor(db, "acme");
    const { customer } = await customers.getCustomer({ customer: "acme" });
    expect(customer).toMatchObject({ userId: "acme", displayName: "", metadata: {} });
    expect([customer?.created, customer?.quotas, customer?.paused, customer?.erasure]).toEqual(
      Array(4).fill(undefined),
    );
  });

  test("has the counts of its webhooks, keys and deliveries, and of nobody else's", async () => {
    const { id: ownedBy } = await customerKey(api, "acme");
    const revoked = await customerKey(api, "acme");
    await api.revoke(revoked.id);
    const { id: other } = await customerKey(api, "other");
    const [first, second, third] = [
      await api.register({ key: (await customerKey(api, "acme")).secret }),
      await api.register({ key: (await customerKey(api, "acme")).secret }),
      await api.register({ key: (await customerKey(api, "other")).secret }),
    ];
    const health = (webhook_id: bigint, name: string) => ({
      webhook_id: String(webhook_id),
      health: name,
      last_failure: new Date(),
    });
    await db("webhook_health").insert([
      health(first, "failing"),
      health(second, "degraded"),
      health(third, "failing"),
    ]);
    await storeDeliveries(db, [
      { webhookId: first },
      { webhookId: second },
      { webhookId: second, state: "retrying" },
      { webhookId: third },
      { webhookId: third, state: "retrying" },
    ]);
    const { customer } = await customers.getCustomer({ customer: "acme" });
    expect(customer?.counts).toMatchObject({
      webhooks: 2,
      degradedWebhooks: 1,
      failingWebhooks: 1,
      apiKeys: 3,
      pendingDeliveries: 2,
      retryingDeliveries: 1,
    });
    expect([ownedBy, other].every(Boolean)).toBe(true);
  });

  test.each(["", "a b", "ä", "x".repeat(129), "a\0"])("cannot have the user_id %j", async (customer) => {
    for (const call of [
      customers.getCustomer,
      customers.updateCustomer,
      customers.pauseCustomer,
      customers.resumeCustomer,
      customers.eraseCustomer,
    ])
      await expectRefused(call({ customer }), Code.InvalidArgument, "customer");
  });
});

describe.each(OWN)("the user of the service's own events %s", (customer) => {
  test("is refused as a customer by every method, also if it has events and for every key", async () => {
    await publishFor(db, customer);
    const own = api.as((await customerKey(api, "acme")).secret);
    for (const caller of [api, own]) {
      const calls = [
        caller.customers.getCustomer({ customer }),
        caller.keys.createApiKey({ name: "k", permissions: [Permission.PUBLISH_EVENTS], customer }),
        caller.keys.listApiKeys({ customer }),
        caller.deliveries.listDeliveries({ customer }),
        caller.stats.getOverview({ customer }),
      ];
      for (const call of calls)
        await expectRefused(call, Code.InvalidArgument, "must not be service or test");
    }
    const { updateCustomer, pauseCustomer, resumeCustomer, eraseCustomer } = customers;
    for (const call of [updateCustomer, pauseCustomer, resumeCustomer, eraseCustomer])
      await expectRefused(call({ customer }), Code.InvalidArgument, "must not be service or test");
    expect(await db("customers").pluck("id")).toEqual(["acme"]);
    expect((await db("events").first("payload"))?.payload).not.toBeNull();
  });
});

describe("settings", () => {
  test("that a request leaves out stay, and empty ones are removed", async () => {
    const quotas = { webhooks: 5, eventsPerSecond: 6, pendingDeliveries: 7 };
    const update = (request: object) => customers.updateCustomer({ customer: "acme", ...request });
    await update({ displayName: "Acme", metadata: { entries: { plan: "gold" } }, quotas });
    const kept = { displayName: "Acme", metadata: { plan: "gold" } };
    expect((await update({})).customer).toMatchObject({ ...kept, quotas });
    expect((await update({ quotas: { webhooks: 1 } })).customer).toMatchObject({
      ...kept,
      quotas: { webhooks: 1, eventsPerSecond: 0, pendingDeliveries: 0 },
    });
    const { customer } = await update({ displayName: "", metadata: {}, quotas: {} });
    expect(customer).toMatchObject({ displayName: "", metadata: {} });
    expect(customer?.quotas).toBeUndefined();
  });

  test.each([
    ["quotas.webhooks", { quotas: { webhooks: -1 } }],
    ["quotas.events_per_second", { quotas: { eventsPerSecond: 100_001 } }],
    ["quotas.pending_deliveries", { quotas: { pendingDeliveries: 1_000_000_001 } }],
    ["display_name", { displayName: "x".repeat(101) }],
    ["metadata", { metadata: { entries: { "": "x" } } }],
    ["metadata", { metadata: { entries: { [`${"x".repeat(41)}`]: "x" } } }],
    ["metadata", { metadata: { entries: { x: "x".repeat(501) } } }],
    ["metadata", { metadata: { entries: { x: "\0" } } }],
    [
      "metadata",
      { metadata: { entries: Object.fromEntries(Array.from({ length: 51 }, (_, n) => [n, "x"])) } },
    ],
  ])("are refused by the name of the field %s", async (field, request) => {
    const call = customers.updateCustomer({ customer: "acme", ...request });
    await expectRefused(call, Code.InvalidArgument, field);
    expect(await db("customers")).toEqual([]);
  });

  test("are in the audit log, the metadata only as changed, and not if nothing changes", async () => {
    const request = { customer: "acme", displayName: "Acme", metadata: { entries: { plan: "secret gold" } } };
    await customers.updateCustomer(request);
    await customers.updateCustomer(request);
    const entries = await entriesOf("acme");
    expect(entries).toMatchObject([
      { action: AuditAction.CUSTOMER_UPDATED, targetName: "Acme", actor: { apiKeyName: "admin" } },
    ]);
    const changes = entries[0]?.changes.map(({ field, after }) => `${field} ${after}`);
    expect(changes).toEqual(expect.arrayContaining(["display_name Acme", "metadata_changed true"]));
    expect(changes?.join()).not.toContain("gold");
  });
});

describe("a key of a customer", () => {
  test("gets and lists its own customer without metadata, and every other one is refused alike", async () => {
    await customers.updateCustomer({ customer: "acme", metadata: { entries: { plan: "gold" } } });
    await customers.updateCustomer({ customer: "other" });
    const own = api.as((await customerKey(api, "acme")).secret).customers;
    const shown = { userId: "acme", counts: { apiKeys: 1 } };
    const { customer } = await own.getCustomer({ customer: "acme" });
    const { customers: listed } = await own.listCustomers({});
    expect([customer, ...listed]).toMatchObject([shown, shown]);
    expect([customer, ...listed].map((each) => each?.metadata)).toEqual([{}, {}]);
    expect(idsOf(await own.listCustomers({ search: "ac" }))).toEqual(["acme"]);
    expect(idsOf(await own.listCustomers({ search: "other" }))).toEqual([]);
    const [known, unknown] = await Promise.all(
      ["other", "nobody"].map((customer) => failure(own.getCustomer({ customer }))),
    );
    expect(known?.code).toBe(Code.PermissionDenied);
    expect(unknown?.rawMessage).toBe(known?.rawMessage);
  });

  test("of an app counts what belongs to both only", async () => {
    const [mine, others] = [await api.app("mine"), await api.app("others")];
    const { secret } = await customerKey(api, "acme", { installedAppId: mine });
    await api.register({ key: secret });
    await api.register({ key: (await customerKey(api, "acme", { installedAppId: others })).secret });
    const { customer } = await api.as(secret).customers.getCustomer({ customer: "acme" });
    expect(customer?.counts).toMatchObject({ webhooks: 1, apiKeys: 1 });
  });

  test("for an event type counts webhooks of this type only", async () => {
    const wide = await customerKey(api, "acme");
    const narrow = await customerKey(api, "acme", { allowedProcesses: [2] });
    for (const process of [1, 1, 2] as const) await api.register({ key: wide.secret, process });
    const countedBy = async ({ secret }: typeof wide) =>
      (await api.as(secret).customers.getCustomer({ customer: "acme" })).customer?.counts?.webhooks;
    expect([await countedBy(wide), await countedBy(narrow)]).toEqual([3, 1]);
  });

  test("and a key of an app change no customer, and an app's sees none", async () => {
    const own = await customerKey(api, "acme");
    const app = await api.key({ installedAppId: await api.app() });
    for (const { secret } of [own, app]) {
      const { updateCustomer, pauseCustomer, resumeCustomer, eraseCustomer } = api.as(secret).customers;
      for (const call of [updateCustomer, pauseCustomer, resumeCustomer, eraseCustomer])
        for (const customer of ["acme", "nobody"])
          await expectRefused(call({ customer }), Code.PermissionDenied, "concerns the whole service");
    }
    const { listCustomers: list, getCustomer } = api.as(app.secret).customers;
    await expectRefused(list({}), Code.PermissionDenied, "app");
    for (const customer of ["acme", "nobody"])
      await expectRefused(getCustomer({ customer }), Code.PermissionDenied, "app");
  });
});
