import { expect, test } from "vitest";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { type Webhook, WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { ago, aKey, aWebhook, HOUR, signedIn, TYPES, webhooks } from "./answers.ts";
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

/** The list of these webhooks, newest first, as the service returns it: in pages of 50. */
function openList(at: string, all: Webhook[] = LISTED, answers: Answers = {}) {
  return open(at, {
    ...webhooks(...all),
    listWebhooks: ({ pageToken }) => {
      const start = Number(pageToken);
      return {
        webhooks: all.slice(start, start + 50),
        nextPageToken: all[start + 50] ? String(start + 50) : "",
      };
    },
    listProcesses: { processes: TYPES },
    ...answers,
  });
}

/** The addresses that the list shows, from the top. */
const listed = () =>
  all("link", undefined, find("table")).flatMap(({ title }) => (title.startsWith("https") ? [title] : []));
const shortOf = () => listed().map((url) => url.replace("https://", "").replace(".example", ""));

test("the list shows the webhooks that pass the filters of its address, in the order of its address", async () => {
  const failing = { webhookId: 3n, attempts: 9n, failedAttempts: 9n };
  await openList("/webhooks", LISTED, { listWebhookStats: { webhooks: [failing] } });
  for (const [search, expected] of [
    ["process=StockLevelChanged&sort=oldest", ["shop/out", "books/in"]],
    ["search=shop OUT", ["shop/out"]],
    ["application=scale-app", ["shop/out"]],
    ["application=none&sort=oldest", ["shop/in", "books/in"]],
    ["state=paused", ["shop/in"]],
    ["health=degraded", ["books/in"]],
    ["sort=health", ["shop/in", "books/in", "shop/out"]],
    ["sort=failures", ["books/in", "shop/out", "shop/in"]],
    ["search=shop&state=paused&process=OrderDispatched", ["shop/in"]],
  ] as const) {
    await goTo(`/webhooks?${search}`);
    expect(shortOf(), search).toEqual(expected);
  }
});

test("filters are chosen into the address, Back undoes them, and unknown ones are shown and cleared", async () => {
  await openList("/webhooks?process=NoSuchType&state=gone&search=shop");
  sees("None of the 3 webhooks matches these filters.");
  expect([value("Event type"), value("State")]).toEqual(["NoSuchType", "gone"]);
  await click("Any event type");
  await click("Any state");
  expect(shortOf()).toHaveLength(2);
  await choose("Health", "Failing");
  expect(path()).toBe("/webhooks?search=shop&health=failing");
  expect(shortOf()).toEqual(["shop/in"]);
  await back();
  expect(shortOf()).toHaveLength(2);
  await goTo("/webhooks?application=other-app");
  expect(value("Installed app")).toBe("other-app");
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
  const together = ([1, 2, 3] as const).map((n) =>
    aWebhook({ id: BigInt(n), endpointId: "end", url: "https://together.example/in", webhookProcess: n }),
  );
  await openList("/webhooks?process=DocumentCreated", [...together, aWebhook({ id: 9n })]);
  await click("2 event types of the same endpoint: OrderDispatched, StockLevelChanged", "link");
  expect(path()).toBe("/webhooks?search=end");
  expect(listed()).toHaveLength(3);
  await goTo("/webhooks");
  expect(all("link", /of the same endpoint/, row("shop.example"))).toEqual([]);
});

test("hundreds of webhooks are searched and paged through, and the focus stays on the button that led to the last page", async () => {
  const many = Array.from({ length: 111 }, (_, n) =>
    aWebhook({ id: BigInt(n + 1), url: `https://customer-${n}.example/in` }),
  );
  await openList("/webhooks?page=2", many);
  sees("51–100 of 111 webhooks");
  expect(listed()).toHaveLength(50);
  const next = () => find("button", "Go to the next page");
  next().focus();
  await press("{Enter}");
  sees("101–111 of 111 webhooks");
  expectFocus(next());
  await fill("Search webhooks", "customer-77.");
  await later(200);
  expect(path()).toBe("/webhooks?search=customer-77.");
  expect(listed()).toEqual(["https://customer-77.example/in"]);
});

const openForm = (answers: Answers = {}) => openList("/webhooks?new=1", [], answers);

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

test("a webhook of one event type is registered with a circuit breaker, and going back does not open the form again", async () => {
  const made = aWebhook({ id: 5n, url: "https://breaker.example/hooks" });
  const { calls } = await openList("/webhooks", LISTED, {
    createWebhook: { webhook: made, created: true, warnings: ["breaker.example does not exist"] },
    getWebhook: { webhook: made },
  });
  await click("New webhook");
  await click("OrderDispatched", "checkbox");
  await fill("URL", made.url);
  await click(/^Use a circuit breaker/, "switch");
  await click("Register webhook");
  expect(calls.createWebhook).toMatchObject([{ process: 1, url: made.url }]);
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 5n, circuitBreaker: { enabled: true } }]);
  expect(path()).toBe("/webhooks/5");
  sees("breaker.example does not exist");
  await back();
  expect(path()).toBe("/webhooks");
  expect(all("dialog")).toEqual([]);
});
