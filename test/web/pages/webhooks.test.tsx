import { expect, test } from "vitest";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import {
  type Webhook,
  WebhookHealth,
  WebhookOrder,
  WebhookState,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { ago, aKey, aWebhook, HOUR, READER, signedIn, TYPES, webhooks } from "./answers.ts";
import {
  type Answers,
  all,
  back,
  choose,
  click,
  expectFocus,
  fill,
  find,
  goTo,
  later,
  open,
  path,
  press,
  row,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

const APP = { application: "scale-app", applicationName: "Scale" };
const REFUSED = "connection refused; check that the server runs (ECONNREFUSED)";
const LISTED = [
  aWebhook({
    id: 1n,
    url: "https://shop.example/in",
    paused: ago(HOUR),
    lastError: REFUSED,
    health: WebhookHealth.FAILING,
  }),
  aWebhook({ id: 2n, url: "https://shop.example/out", webhookProcess: 3, ...APP }),
  aWebhook({ id: 3n, url: "https://books.example/in", webhookProcess: 3, health: WebhookHealth.DEGRADED }),
];

/** The list of these webhooks, as the service returns it, whatever is searched: in pages. */
function openList(at: string, all: Webhook[] = LISTED, answers: Answers = {}) {
  return open(at, {
    ...webhooks(...all),
    searchWebhooks: ({ pageToken, pageSize }) => {
      const start = Number(pageToken);
      return {
        webhooks: all.slice(start, start + pageSize),
        nextPageToken: all[start + pageSize] ? String(start + pageSize) : "",
        found: all.length,
      };
    },
    listProcesses: { processes: TYPES },
    ...answers,
  });
}

/** The addresses that the list shows, from the top. */
const listed = () =>
  all("link", undefined, find("table")).flatMap(({ title }) => (title.startsWith("https") ? [title] : []));

const { OLDEST, LEAST_HEALTHY } = WebhookOrder;

test("the service searches, filters and sorts by the address of the list, a page at a time, and nothing else is read of webhooks", async () => {
  const { calls } = await openList("/webhooks");
  for (const [search, expected] of [
    // What an earlier release or a mistyped address asks for restricts nothing.
    [
      "process=None&state=gone&health=ill&sort=failures",
      { search: "", health: [], states: [], order: WebhookOrder.UNSPECIFIED, withoutCustomer: true },
    ],
    ["process=StockLevelChanged&sort=oldest", { process: 3, order: OLDEST }],
    ["search=shop OUT", { search: "shop OUT" }],
    ["application=scale-app", { installedApplicationId: "scale-app" }],
    ["application=none&sort=health", { installedApplicationId: "", order: LEAST_HEALTHY }],
    ["state=paused&health=degraded", { states: [WebhookState.PAUSED], health: [WebhookHealth.DEGRADED] }],
  ] as const) {
    await goTo(`/webhooks?${search}`);
    expect(calls.searchWebhooks.at(-1), search).toMatchObject({ pageSize: 50, pageToken: "", ...expected });
  }
  expect(calls.listWebhooks).toEqual([]);
  for (const { webhookIds } of calls.listWebhookStats) expect(webhookIds).toEqual([1n, 2n, 3n]);
});

test("filters are chosen into the address, Back undoes them, and those that find nothing are taken away at once", async () => {
  const { calls, answers } = await openList("/webhooks?process=StockLevelChanged&search=shop");
  await click("Any event type");
  await choose("Health", "Failing");
  expect(path()).toBe("/webhooks?search=shop&health=failing");
  await back();
  expect(path()).toBe("/webhooks?search=shop");
  answers.searchWebhooks = {};
  await goTo("/webhooks?search=shop&application=other-app");
  expect(value("Installed app")).toBe("other-app");
  sees("None of the webhooks matches these filters.");
  await click("Clear the filters");
  expect(path()).toBe("/webhooks");
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ search: "" });
  sees("No webhooks yet");
});

test("each webhook of the list tells its state, health, last error, attempts and deliveries of a period", async () => {
  const bars = (hours: number) => ({
    intervalSeconds: 3_600,
    webhooks: [
      { webhookId: 2n, attempts: BigInt(hours), failedAttempts: 5n, latencyP50Ms: 40, latencyP95Ms: 900 },
    ],
  });
  await openList("/webhooks", LISTED, {
    listWebhookStats: {
      webhooks: [
        { webhookId: 1n, attempts: 12n, failedAttempts: 12n },
        { webhookId: 2n, attempts: 9n, delivered: 1n, failed: 1n },
      ],
    },
    listWebhookHistory: ({ hours }) => bars(hours),
  });
  for (const words of ["Paused", "Failing", "Connection refused", "12 of 12 attempts failed"])
    sees(words, row("shop.example/in"));
  // The remedy is on its page.
  seesNot("check that the server runs", row("shop.example/in"));
  sees("50%1 delivered, 1 failed", row("shop.example/out"));
  find("img", /^24 attempts in the last 24 hours, 5 failed; p50 40 ms/, row("shop.example/out"));
  await click("1 hour", "radio");
  find("img", /^1 attempts? in the last hour/, row("shop.example/out"));
  expect(path()).toBe("/webhooks?period=1h");
  await click(/^Deliveries of StockLevelChanged to .*\/out: 1 delivered, 1 failed$/, "link");
  expect(path()).toBe("/deliveries?webhook=2");
});

test("the list names the other event types of an endpoint also of webhooks that a filter leaves out, and leads to them", async () => {
  const together = aWebhook({
    id: 2n,
    endpointId: "end",
    url: "https://together.example/in",
    webhookProcess: 2,
  });
  await openList("/webhooks?process=DocumentCreated", [], {
    searchWebhooks: {
      webhooks: [together, aWebhook({ id: 9n })],
      found: 2,
      endpoints: [{ id: "end", processNames: ["OrderDispatched", "DocumentCreated", "StockLevelChanged"] }],
    },
  });
  expect(all("link", /of the same endpoint/, row("shop.example"))).toEqual([]);
  await click("2 event types of the same endpoint: OrderDispatched, StockLevelChanged", "link");
  expect(path()).toBe("/webhooks?search=end");
});

test("of very many webhooks a page is shown, more on demand with their own figures, and those that a search finds", async () => {
  const many = Array.from({ length: 111 }, (_, n) =>
    aWebhook({ id: BigInt(n + 1), url: `https://customer-${n}.example/in` }),
  );
  const { calls } = await openList("/webhooks", many);
  sees("50 of 111 webhooks");
  expect(listed()).toHaveLength(50);
  const more = () => find("button", "Show more");
  more().focus();
  await press("{Enter}");
  sees("100 of 111 webhooks");
  expectFocus(more());
  for (const { webhookIds } of [...calls.listWebhookStats, ...calls.listWebhookHistory])
    expect(webhookIds).toHaveLength(50);
  await press("{Enter}");
  sees("111 webhooks");
  await fill("Search webhooks", "customer-77.");
  await later(200);
  expect(path()).toBe("/webhooks?search=customer-77.");
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ search: "customer-77.", pageToken: "" });
});

const openForm = (answers: Answers = {}) => openList("/webhooks/new", [], answers);

test("the event types that a key may subscribe to are found by what they say, and all of them chosen at once", async () => {
  const allowedProcesses = TYPES.map(({ number }) => number as WebhookProcess).filter((each) => each !== 2);
  await openForm({ getSession: signedIn(aKey({ allowedProcesses })) });
  const box = (name: string) => find("checkbox", name) as HTMLInputElement;
  expect(box("DocumentCreated").matches(":disabled")).toBe(true);
  await fill("Search event types", "no such thing");
  sees("No such event type");
  await fill("Search event types", "stock");
  expect(all("checkbox", "OrderDispatched")).toEqual([]);
  // Enter does not send the form.
  await press("{Enter}");
  await click("StockLevelChanged", "checkbox");
  sees('"Sku"', find("region", "Sample of StockLevelChanged"));
  expect(text()).not.toContain("Enter the URL of the endpoint.");
  await fill("Search event types", "");
  await click("Choose all events");
  expect(box("OrderDispatched").checked).toBe(true);
  expect(find("group", "Notices about webhooks").querySelectorAll(":checked")).toHaveLength(0);
});

test("a webhook of one event type is registered with a circuit breaker, then tested; going back does not open the form again", async () => {
  const made = aWebhook({ id: 5n, url: "https://breaker.example/hooks" });
  const { calls } = await openList("/webhooks", LISTED, {
    createWebhook: { webhook: made, created: true, warnings: ["breaker.example does not exist"] },
    getWebhook: { webhook: made },
    tryWebhookRequest: { accepted: true, status: 204, durationMs: 9 },
  });
  await click("New webhook", "link");
  expect(path()).toBe("/webhooks/new");
  await click("OrderDispatched", "checkbox");
  await fill("URL", made.url);
  await click(/^Use a circuit breaker/, "switch");
  await click("Register webhook");
  expect(calls.createWebhook).toMatchObject([{ process: 1, url: made.url }]);
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 5n, circuitBreaker: { enabled: true } }]);
  expect(path()).toBe("/webhooks/new?webhook=5");
  sees("breaker.example does not exist");
  const step = find("region", "2 of 2: Test it");
  sees("Events of OrderDispatched are sent to breaker.example/hooks from now on.", step);
  await click("Test now");
  sees("The endpoint answered 204 after 9 ms", step);
  await back();
  expect(path()).toBe("/webhooks");
});

test("who may not register webhooks is told so at the address of the form", async () => {
  await openForm({ getSession: signedIn({ permissions: READER }) });
  sees("Your key may not register webhooks");
  expect(all("textbox", undefined, find("main"))).toEqual([]);
});
