import { expect, test } from "vitest";
import { type Webhook, WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { ago, aKey, aWebhook, HOUR, invalid, READER, signedIn, TYPES, webhooks } from "./answers.ts";
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
  text,
  value,
} from "./page.tsx";

const APP = { application: "scale-app", applicationName: "Scale" };
const REFUSED = "connection refused (ECONNREFUSED)";
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

test("an empty list says what to do next, and offers it to nobody who may not", async () => {
  await openList("/webhooks", [], { getSession: signedIn({ permissions: READER }) });
  sees("No webhooks yet");
  expect(all("button", "New webhook")).toEqual([]);
  await openList("/webhooks", []);
  expect(all("button", "New webhook")).toHaveLength(1);
});

test.each([
  ["process=StockLevelChanged", ["shop/out", "books/in"]],
  ["search=shop OUT", ["shop/out"]],
  ["application=scale-app", ["shop/out"]],
  ["application=none", ["books/in", "shop/in"]],
  ["state=paused", ["shop/in"]],
  ["health=degraded", ["books/in"]],
  ["sort=oldest", ["shop/in", "shop/out", "books/in"]],
  ["sort=health", ["shop/in", "books/in", "shop/out"]],
  ["sort=failures", ["books/in", "shop/out", "shop/in"]],
  ["search=shop&state=paused&process=OrderDispatched", ["shop/in"]],
])("the list at ?%s shows these webhooks, in this order", async (search, expected) => {
  const failing = { webhookId: 3n, attempts: 9n, failedAttempts: 9n };
  await openList(`/webhooks?${search}`, LISTED, { listWebhookStats: { webhooks: [failing] } });
  if (search.startsWith("sort") || expected.length === 1) expect(shortOf()).toEqual(expected);
  else expect(shortOf().sort()).toEqual([...expected].sort());
});

test("filters are chosen into the address, Back undoes them, and unknown ones are shown and cleared by keyboard", async () => {
  await openList("/webhooks?process=NoSuchType&state=gone&search=shop");
  sees("None of the 3 webhooks matches these filters.");
  expect([value("Event type"), value("State")]).toEqual(["NoSuchType", "gone"]);
  find("button", "Any event type").focus();
  await press("{Enter}");
  expectFocus(find("combobox", "Event type"));
  await click("Any state");
  expect(shortOf()).toHaveLength(2);
  await choose("Health", "Failing");
  expect(path()).toBe("/webhooks?search=shop&health=failing");
  expect(shortOf()).toEqual(["shop/in"]);
  await back();
  expect(shortOf()).toHaveLength(2);
  find("button", "Clear the search").focus();
  await press("{Enter}");
  expectFocus(find("searchbox"));
});

test.each([
  ["by its name", {}, "Scale"],
  ["by its id to those who may not see apps", { getSession: signedIn({ permissions: READER }) }, "other-app"],
])("the app that the list is filtered by is named also without webhooks: %s", async (_how, answers, name) => {
  await openList("/webhooks?application=other-app", LISTED.slice(0, 1), {
    listInstalledApps: { installedApps: [{ id: "other-app", name: "Scale" }] },
    ...answers,
  });
  sees("1 webhook exists, but it does not match these filters.");
  expect(value("Installed app")).toBe(name);
  await click("Clear the filters");
  expect([shortOf(), value("Installed app")]).toEqual([["shop/in"], ""]);
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
  for (const words of ["Paused", "Failing", "Connection refused (ECONNREFUSED)", "12 of 12 attempts failed"])
    sees(words, row("shop.example/in"));
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
  expect(next().ariaDisabled ?? next().getAttribute("disabled")).not.toBeNull();
  await press("{Enter}");
  sees("101–111 of 111 webhooks");
  await fill("Search webhooks", "customer-77.");
  await later(200);
  expect(path()).toBe("/webhooks?search=customer-77.");
  expect(listed()).toEqual(["https://customer-77.example/in"]);
});

const openForm = (answers: Answers = {}) => openList("/webhooks?new=1", [], answers);

test("the event types are found by what they say, notices have a group, and each shows a sample", async () => {
  await openForm();
  const notices = find("group", "Notices about webhooks");
  find("checkbox", "WebhookDisabled", notices);
  expect(all("checkbox", "OrderDispatched", notices)).toEqual([]);
  await fill("Search event types", "no such thing");
  sees("No such event type");
  await fill("Search event types", "stock");
  expect(all("checkbox", "OrderDispatched")).toEqual([]);
  // Enter does not send the form.
  await press("{Enter}");
  await click("StockLevelChanged", "checkbox");
  sees('"Sku"', find("region", "Sample of StockLevelChanged"));
  expect(text()).not.toContain("Enter the URL of the endpoint.");
});

test("all events are chosen with one button, which leaves notices as they are, and a search keeps chosen ones in sight", async () => {
  await openForm();
  const chosen = () =>
    TYPES.flatMap(({ name }) => all("checkbox", name)).filter((box) => (box as HTMLInputElement).checked)
      .length;
  await click("WebhookDisabled", "checkbox");
  await click("Choose all events");
  expect(chosen()).toBe(4);
  await click("Choose no events");
  expect(chosen()).toBe(1);
});

test("a webhook of one event type is registered with a circuit breaker, and going back does not open the form again", async () => {
  const made = aWebhook({ id: 5n, url: "https://breaker.example/hooks" });
  const { calls } = await openList("/webhooks", LISTED, {
    createWebhook: { webhook: made, created: true },
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
  await back();
  expect(path()).toBe("/webhooks");
  expect(all("dialog")).toEqual([]);
});

test("a refused address is told at its field, and event types that are taken are named", async () => {
  const { answers } = await openForm({
    createWebhook: invalid("url", "begins with http://; only https:// is allowed"),
  });
  await click("OrderDispatched", "checkbox");
  await fill("URL", "http://shop.example");
  await press("{Enter}");
  sees("Begins with http://; only https:// is allowed.");
  await click("DocumentCreated", "checkbox");
  answers.createEndpoint = invalid("url", "is registered for OrderDispatched (webhook 12)");
  await click("Register webhook");
  sees("Is registered for OrderDispatched (webhook 12).");
});

test("a key that may subscribe to some event types only is offered these", async () => {
  await openForm({ getSession: signedIn(aKey({ allowedProcesses: [2] })) });
  const isOffered = (name: string) => !find("checkbox", name).matches(":disabled");
  expect([isOffered("DocumentCreated"), isOffered("OrderDispatched")]).toEqual([true, false]);
});

test("the form closes by Escape and by no click beside it, and the focus is back where it was", async () => {
  await openList("/webhooks");
  find("button", "New webhook").focus();
  await press("{Enter}");
  await click(document.querySelector(".mantine-Modal-overlay") as HTMLElement);
  find("dialog", "New webhook");
  await press("{Escape}");
  await later(1_000);
  expect(all("dialog")).toEqual([]);
  expectFocus(find("button", "New webhook"));
  // What opened it on another page is gone: the focus is on this page then.
  await openForm();
  await press("{Escape}");
  await later(1_000);
  expectFocus(find("main"));
  expect(path()).toBe("/webhooks");
});
