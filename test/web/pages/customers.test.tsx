import { expect, test } from "vitest";
import { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import type { Customer } from "../../../gen/webhook/v1/customer_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import {
  ADMINISTRATOR,
  ALL,
  aCustomer,
  aDelivery,
  ago,
  aKey,
  aWebhook,
  customers,
  deliveries,
  HOUR,
  READER,
  SECOND,
  signedIn,
  webhooks,
} from "./answers.ts";
import {
  all,
  choose,
  click,
  fill,
  find,
  goTo,
  isDisabled,
  later,
  open,
  path,
  region,
  row,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

const ACME = "/customers/details?id=tenant-7";
const OF_ACME = {
  ...webhooks(aWebhook({ customer: "tenant-7" })),
  ...deliveries(aDelivery({ customer: "tenant-7" })),
};
const KEY = aKey({ name: "Acme, production", customer: "tenant-7" });
const hrefs = (scope?: HTMLElement) => all("link", undefined, scope).map((link) => link.getAttribute("href"));
const pages = () => all("link", undefined, find("navigation", "Pages")).map((link) => text(link));

test("customers are searched by the service, and listed with counts, health, pause and erasure", async () => {
  const { calls } = await open("/customers", {
    ...customers(
      aCustomer(),
      aCustomer({
        userId: "tenant-8",
        displayName: "",
        paused: ago(HOUR),
        counts: { webhooks: 4, failingWebhooks: 3 },
      }),
      aCustomer({ userId: "a/../b?c", displayName: "Odd", erasure: { started: ago(HOUR) }, counts: {} }),
    ),
  });
  for (const says of ["tenant-7", "Healthy", "1,000+"]) sees(says, row("Acme"));
  for (const says of ["Paused", "3 failing"]) sees(says, row("tenant-8"));
  sees("Erasing", row("Odd"));
  expect(hrefs(row("Odd"))).toEqual(["/customers/details?id=a%2F..%2Fb%3Fc"]);
  await fill("Search customers", "Acm");
  await later(SECOND);
  expect(path()).toBe("/customers?search=Acm");
  expect(calls.listCustomers.at(-1)).toMatchObject({ search: "Acm" });
  seesNot("tenant-8");
  await fill("Search customers", "nobody");
  await later(SECOND);
  sees("No customer’s user id begins with “nobody”");
});

test("a search goes on where a page of it has no customers", async () => {
  await open("/customers?search=late", {
    listCustomers: ({ search, pageToken }) =>
      search === "" || pageToken !== ""
        ? { customers: [aCustomer({ displayName: "Late" })] }
        : { nextPageToken: "next" },
  });
  row("Late");
});

test("a customer's page has its state, counts, quotas, webhooks, deliveries, keys and notes, and leads to lists of its own", async () => {
  const customer = aCustomer({
    quotas: { webhooks: 20, pendingDeliveries: 1_000 },
    metadata: { plan: "gold" },
  });
  const { calls } = await open(ACME, { ...customers(customer), ...OF_ACME, listApiKeys: { apiKeys: [KEY] } });
  find("heading", "Acme");
  for (const says of ["Healthy", "tenant-7", "3 pending", "1,000+ retrying", "plan", "gold"])
    sees(says, region("Summary"));
  sees("At most 20 webhooks, 1,000 pending deliveries", region("Quotas"));
  sees("shop.example", region("Webhooks"));
  sees("Failed", region("Last deliveries"));
  sees("Acme, production", region("API keys"));
  for (const name of ["searchWebhooks", "listDeliveries", "listApiKeys"] as const)
    expect(calls[name].at(-1)).toMatchObject({ customer: "tenant-7" });
  expect(hrefs(find("main"))).toEqual(
    expect.arrayContaining([
      "/webhooks?customer=tenant-7",
      "/deliveries?customer=tenant-7&state=pending",
      "/keys?customer=tenant-7",
      "/audit?customer=tenant-7",
    ]),
  );
  await goTo("/customers/details?id=nobody");
  sees("There is no such customer");
});

/** The page of a customer that the service changes. */
async function openChanging(more: Parameters<typeof aCustomer>[0] = {}) {
  const customer: Customer = aCustomer(more);
  const answers = customers(customer);
  const change = (to: Partial<Customer>) => () => ({ customer: Object.assign(customer, to) });
  const service = await open(ACME, {
    ...answers,
    ...OF_ACME,
    pauseCustomer: change({ paused: ago(0) }),
    resumeCustomer: change({ paused: undefined as never }),
    updateCustomer: ({ displayName }) => change(displayName === undefined ? {} : { displayName })(),
    eraseCustomer: change(aCustomer({ erasure: { started: ago(0), webhooks: 1n, payloads: 1_200n } })),
  });
  return { ...service, customer };
}

test("the operator pauses and resumes a customer, and changes its name, notes and quotas", async () => {
  const { calls, answers, customer } = await openChanging({ metadata: { plan: "gold" } });
  await click("Pause");
  sees("Deliveries of all its webhooks wait");
  await click("Resume");
  seesNot("Deliveries of all its webhooks wait");
  await click("Edit");
  expect(value("Metadata")).toBe("plan: gold");
  await fill("Name", "Acme Ltd");
  await click("Save changes");
  expect(calls.updateCustomer.at(-1)).toMatchObject({ customer: "tenant-7", displayName: "Acme Ltd" });
  expect(calls.updateCustomer.at(-1)?.metadata).toBeUndefined();
  find("heading", "Acme Ltd");
  await click("Edit");
  await fill("Metadata", "no value");
  await click("Save changes");
  sees("Write each entry in its own line");
  await fill("Metadata", "site: https://acme.example\nplan: silver");
  await click("Save changes");
  const entries = { site: "https://acme.example", plan: "silver" };
  expect(calls.updateCustomer.at(-1)).toMatchObject({ metadata: { entries } });

  await click("Change", "button", region("Quotas"));
  await fill("Pending deliveries", "500");
  answers.updateCustomer = new DomainError("REQUEST_INVALID", "that is too many");
  await click("Save quotas");
  sees("The quotas were not saved");
  answers.updateCustomer = {};
  Object.assign(customer, aCustomer({ quotas: { webhooks: 5 } }));
  await click("Save quotas");
  sees("This customer was changed meanwhile");
  await click("Load the current values");
  expect([value("Webhooks"), value("Pending deliveries")]).toEqual(["5", ""]);
  await fill("Webhooks", "");
  await click("Save quotas");
  expect(calls.updateCustomer.at(-1)).toMatchObject({ quotas: { webhooks: 0, eventsPerSecond: 0 } });
});

test("a customer is erased once its user id is typed, and the page follows the progress to the end", async () => {
  const { calls, customer } = await openChanging();
  await click("Erase");
  expect(isDisabled("Erase customer")).toBe(true);
  await fill("Type tenant-7 to confirm", "tenant-7");
  await click("Erase customer");
  expect(calls.eraseCustomer).toMatchObject([{ customer: "tenant-7" }]);
  sees("1 webhook deleted, 0 API keys revoked, 0 deliveries cancelled, 1,200 payloads erased.");
  expect(isDisabled("Erase")).toBe(true);
  Object.assign(customer, aCustomer({ erasure: { started: ago(0), finished: ago(0), payloads: 5_000n } }));
  await later(3 * SECOND);
  sees("5,000 payloads erased");
  sees(/Erased 21 Nov 2026/);
  expect(isDisabled("Erase")).toBe(false);
});

test("each list is restricted to a customer that is chosen, found by the service, and kept in the address", async () => {
  const all = customers(aCustomer(), aCustomer({ userId: "shop-1", displayName: "" }));
  const { calls } = await open("/", { ...all, ...OF_ACME, listApiKeys: { apiKeys: [ADMINISTRATOR, KEY] } });
  const lists = {
    "/": ["watchOverview", "getHistory", "listIncidents"],
    "/incidents": ["listIncidents"],
    "/webhooks": ["searchWebhooks"],
    "/deliveries": ["listDeliveries", "listFailureReasons", "listReplays"],
    "/replays": ["listReplays"],
    "/keys": ["listApiKeys"],
    "/audit": ["listAuditEntries"],
  } as const;
  for (const [at, methods] of Object.entries(lists)) {
    await goTo(at);
    for (const name of methods)
      expect((calls[name].at(-1) as { customer?: string }).customer).toBeUndefined();
    await choose("Customer", /Acme.*tenant-7/);
    expect(path()).toBe(`${at}?customer=tenant-7`);
    for (const name of methods) expect(calls[name].at(-1)).toMatchObject({ customer: "tenant-7" });
  }
  await fill("Customer", "sho");
  await later(SECOND);
  expect(calls.listCustomers.at(-1)).toMatchObject({ search: "sho" });
  await click("shop-1", "option", document.body);
  expect(path()).toBe("/audit?customer=shop-1");
  await click("Any customer");
  expect(path()).toBe("/audit");
});

test("the list of webhooks has the operator's own, or those of all customers too, as the overview counts them", async () => {
  const { calls } = await open("/", {
    ...customers(aCustomer()),
    ...OF_ACME,
    watchOverview: [{ overview: { failingWebhooks: 1n, deliveredLastDay: 1n } }],
  });
  await click("1 webhook failing", "link");
  expect(path()).toBe("/webhooks?health=failing&customer=all+customers");
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ withoutCustomer: false });
  await click("Without a customer");
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ withoutCustomer: true });
});

test("a webhook, a delivery, a key and an entry of the audit log lead to their customer", async () => {
  const delivery = aDelivery();
  await open("/webhooks", {
    ...customers(aCustomer()),
    ...OF_ACME,
    getDelivery: { delivery, event: { id: delivery.eventId, process: 1, userId: "tenant-7" } },
    listApiKeys: { apiKeys: [KEY] },
    listAuditEntries: {
      entries: [
        { id: "1", time: ago(HOUR), action: AuditAction.CUSTOMER_PAUSED, targetId: "7", customer: "7" },
        { id: "2", time: ago(HOUR), action: AuditAction.WEBHOOK_PAUSED, targetId: "7", customer: "tenant-7" },
      ],
    },
  });
  for (const at of [
    "/webhooks",
    "/webhooks/7",
    "/deliveries",
    `/deliveries/${delivery.id}`,
    "/keys",
    "/audit",
  ]) {
    await goTo(at);
    expect([at, hrefs(find("main"))]).toEqual([at, expect.arrayContaining([ACME])]);
  }
  // A user id that is a number is that of no webhook.
  expect(hrefs(row("Customer paused"))).toEqual(["/customers/details?id=7"]);
});

test("a key is made for a customer, and its webhooks go to keys of the same customer only", async () => {
  const { calls } = await open("/keys?customer=tenant-7", {
    ...customers(aCustomer()),
    ...OF_ACME,
    listApiKeys: {
      apiKeys: [ADMINISTRATOR, KEY, aKey({ id: "b", name: "Acme, test", customer: "tenant-7" })],
    },
    searchWebhooks: { webhooks: [aWebhook({ customer: "tenant-7", apiKeyId: KEY.id })], found: 1 },
    createApiKey: { apiKey: KEY, secret: "whk_s" },
  });
  await click("New key");
  expect(value("Customer", find("dialog"))).toBe("tenant-7");
  await fill("Name", "Acme, staging");
  await click(/^Read /, "checkbox");
  await click("Create key");
  expect(calls.createApiKey).toMatchObject([{ name: "Acme, staging", customer: "tenant-7" }]);
  await click("I have copied it");
  await click("Revoke Acme, production");
  await click("Transfer them to another key", "radio");
  await click("New owner", "combobox");
  expect(
    all("option")
      .map((option) => text(option))
      .filter((name) => name.includes("whk_")),
  ).toEqual(["Acme, test (whk_b…)"]);
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ apiKeyId: KEY.id });
});

test("a customer's key sees its own customer, without notes and actions, and nothing of others", async () => {
  const own = { ...KEY, permissions: ALL.slice(0, 4) };
  const { calls } = await open("/", {
    getSession: signedIn(own),
    ...customers(aCustomer()),
    ...OF_ACME,
    listApiKeys: { apiKeys: [KEY] },
  });
  expect(pages().slice(0, 7)).toEqual([
    "Overview",
    "Incidents",
    "Webhooks",
    "Deliveries",
    "Customer",
    "API keys",
    "Audit log",
  ]);
  sees("Live delivery status of the customer’s webhooks");
  expect(all("button", "Dispatch now")).toEqual([]);
  await click("Customer", "link");
  expect(path()).toBe(ACME);
  find("heading", "Acme");
  expect(all("button", /Edit|Pause|Erase|Change/, find("main"))).toEqual([]);
  expect(hrefs(find("main"))).not.toContain("/customers");
  for (const at of ["/webhooks", "/deliveries", "/replays", "/keys", "/audit"]) {
    await goTo(at);
    expect([at, all("combobox", "Customer")]).toEqual([at, []]);
  }
  await goTo("/keys");
  await click("New key");
  expect(all("textbox", "Customer", find("dialog"))).toEqual([]);
  expect(all("checkbox", /Manage customers|Manage event types/, find("dialog"))).toEqual([]);
  expect(calls.listInstalledApps).toEqual([]);
  expect(calls.listCustomers).toEqual([]);
});

test("who may not manage customers has no actions; a key of an app has no way to customers; without any, no page tells of them", async () => {
  await open(ACME, { getSession: signedIn({ permissions: READER }), ...customers(aCustomer()), ...OF_ACME });
  expect(all("button", /Edit|Pause|Erase|Change/, find("main"))).toEqual([]);
  await open("/", { getSession: signedIn({ installedApplicationId: "app" }) });
  expect(pages()).not.toContain("Customers");
  const byEvent = aCustomer({ created: undefined as never });
  delete byEvent.created;
  await open("/", { ...customers(byEvent), ...webhooks(aWebhook()), ...deliveries(aDelivery()) });
  for (const at of ["/", "/webhooks", "/deliveries", "/replays", "/keys", "/audit"]) {
    await goTo(at);
    expect([at, all("combobox", "Customer")]).toEqual([at, []]);
    seesNot("ustomer", find("main"));
  }
  await goTo("/customers");
  sees("By an event", row("Acme"));
});
