import type { MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { type DeliverySchema, DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import {
  CircuitBreakerState,
  type Webhook,
  WebhookHealth,
  type WebhookSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import {
  aDelivery,
  ago,
  ahead,
  aKey,
  aWebhook,
  CHANGED_MEANWHILE,
  deliveries,
  HOUR,
  invalid,
  MINUTE,
  NOW,
  READER,
  SECOND,
  signedIn,
  TYPES,
  webhooks,
} from "./answers.ts";
import {
  type Answers,
  all,
  choose,
  click,
  expectFocus,
  fill,
  find,
  isDisabled,
  later,
  open,
  path,
  press,
  region,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

/** The page of a webhook; what is changed of it is shown. */
async function openWebhook(more: MessageInitShape<typeof WebhookSchema> = {}, answers: Answers = {}) {
  const webhook = aWebhook(more);
  const service = await open("/webhooks/7", {
    ...webhooks(webhook),
    listProcesses: { processes: TYPES },
    ...answers,
  });
  return { ...service, webhook };
}

/** Whether a screen reader announces each change of what says this. */
function isAnnounced(says: string): boolean {
  return [...document.querySelectorAll("[role=alert], [role=status], [aria-live]")].some((each) =>
    text(each).includes(says),
  );
}

test("a webhook's page tells what is registered and how it did, and offers nothing to who may only read", async () => {
  const url = `https://shop.example/integrations/orders/${"a-long-way-down/".repeat(12)}hooks`;
  await openWebhook(
    { url },
    {
      ...deliveries(aDelivery({ url })),
      getWebhookStats: { periods: [{ hours: 1, attempts: 3n, failed: 3n }] },
      getSession: signedIn({ permissions: READER }),
    },
  );
  sees("shop.example/integrations/orders/", find("heading", /^shop\.example/));
  expect(document.title).toContain("shop.example/integrations/orders/");
  find("img", "0% delivered");
  sees(url, region("Registration"));
  sees("Failed", region("Last deliveries"));
  sees("Answer with any 2xx status within 15 seconds.");
  const buttons = all("button", undefined, find("main")).map((button) => text(button));
  expect(buttons.filter((each) => /Send|Pause|Delete|secret|Rotate|Edit|Replay/.test(each))).toEqual([]);
});

test("a webhook that is not there says so, and leads to its deliveries", async () => {
  await open("/webhooks/7", webhooks());
  find("heading", "There is no such webhook");
  await click("Its deliveries", "link");
  expect(path()).toBe("/deliveries?webhook=7");
});

test("a test event has the payload and event type that were chosen, and one that is no JSON is not sent", async () => {
  const { calls, answers } = await openWebhook(
    {},
    { sendTestEvent: invalid("payload", "is not valid JSON") },
  );
  await click("Edit payload");
  expect(value("Payload")).toContain('"OrderId"');
  await choose("Event type", "StockLevelChanged");
  expect(value("Payload")).toContain('"Sku"');
  await fill("Payload", '{"Sku": "A-1", ');
  await click("Send test event");
  sees("Is not valid JSON.", region("Test event"));
  answers.sendTestEvent = { deliveryId: aDelivery().id };
  answers.getDelivery = { delivery: aDelivery() };
  const payload = '{"Sku": "A-1", "Id": 9007199254740993}';
  await fill("Payload", payload);
  await click("Send test event");
  expect(calls.sendTestEvent.at(-1)).toMatchObject({ webhookId: 7n, process: 3, payload });
  await click("Use the sample");
  await click("Send another");
  expect(calls.sendTestEvent.at(-1)?.payload).toBeUndefined();
});

const ended = (more: MessageInitShape<typeof DeliverySchema>, status?: number) => ({
  delivery: aDelivery(more),
  attempts: status ? [{ number: more.attemptCount ?? 4, status, durationMs: 12 }] : [],
});
test("a test event is followed to its end and says why it ended, and its button has the focus again", async () => {
  const sent = Promise.withResolvers<{ deliveryId: string }>();
  let sending: Promise<{ deliveryId: string }> = sent.promise;
  const { answers, calls } = await openWebhook({}, { sendTestEvent: () => sending });
  find("button", "Send test event").focus();
  await press("{Enter}");
  expectFocus(document.body);
  answers.getDelivery = ended({ state: DeliveryState.PENDING, attemptCount: 0, finished: undefined });
  sent.resolve({ deliveryId: aDelivery().id });
  await later(0);
  expectFocus(find("button", "Send another"));
  const section = region("Test event");
  sees("It waits for the next dispatch.", section);
  for (const [outcome, said] of [
    [
      ended({ state: DeliveryState.DELIVERED, attemptCount: 1 }, 200),
      "Delivered: the endpoint answered 200 after 12 ms.",
    ],
    [ended({}, 503), "It failed after 4 attempts. The last: the endpoint answered 503."],
    [ended({ attemptCount: 1 }, 410), "It failed after 1 attempt. The last: the endpoint answered 410."],
    [ended({ reason: "queue full" }), "Never sent: more deliveries waited for the webhook"],
    [ended({ reason: "its event cannot be read" }), "It failed: its event cannot be read."],
    [ended({ state: DeliveryState.CANCELLED, reason: "payload erased" }), "The payload was erased first."],
  ] as const) {
    answers.getDelivery = outcome;
    sending = Promise.resolve({ deliveryId: `of call ${calls.sendTestEvent.length}` });
    await click("Send another");
    sees(said, section);
  }
});

test("the audit log records a revealed secret once, however often the window is left and the webhook changed", async () => {
  const { calls } = await openWebhook({}, { getWebhookSecret: { secrets: [{ secret: "whsec_one" }] } });
  expect(calls.getWebhookSecret).toEqual([]);
  await click("Reveal secret");
  for (const state of ["hidden", "visible"]) {
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
  }
  for (const event of ["offline", "online"]) window.dispatchEvent(new Event(event));
  await click("Pause");
  sees("The webhook is paused");
  expect(value("Signing secret")).toBe("whsec_one");
  expect(calls.getWebhookSecret).toHaveLength(1);
  await click("Hide");
  seesNot("Signs beside");
  expect(document.body.innerHTML).not.toContain("whsec_one");
});

test("a rotation that revokes the old secret is chosen anew each time, and says what it means", async () => {
  const { calls } = await openWebhook({}, { getWebhookSecret: { secrets: [{ secret: "whsec_two" }] } });
  await click("Rotate");
  await click(/^Revoke immediately/, "radio");
  await click("Rotate secret");
  expect(calls.rotateWebhookSecret).toMatchObject([{ webhookId: 7n, revokeOldSecrets: true }]);
  sees("until then the endpoint refuses deliveries");
  expect(value("Signing secret")).toBe("whsec_two");
  await click("Rotate");
  expect((find("radio", /^For 24 hours/) as HTMLInputElement).checked).toBe(true);
});

test("a change of somebody else in between is not written over", async () => {
  const { calls, answers, webhook } = await openWebhook(
    { name: "Old", rateLimit: 20 },
    { updateWebhook: CHANGED_MEANWHILE },
  );
  await click("Edit");
  await fill("Name", "Mine");
  Object.assign(webhook, { name: "", rateLimit: undefined, revision: 5n });
  await click("Save changes");
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 7n, revision: 1n, name: "Mine" }]);
  sees("This webhook was changed meanwhile");
  await click("Load the current values");
  expect(value("Name")).toBe("");
  answers.updateWebhook = {};
  await fill("Name", "Mine");
  await click("Save changes");
  expect(calls.updateWebhook[1]).toMatchObject({ revision: 5n, name: "Mine", rateLimit: 0 });
});

test("an edit says what happens to waiting deliveries, and a rate limit of 0 is refused, not saved as no limit", async () => {
  const { calls } = await openWebhook(
    { rateLimit: 30 },
    deliveries(aDelivery({ state: DeliveryState.PENDING })),
  );
  await click("Edit");
  await fill("URL", "https://elsewhere.example/");
  sees("1 delivery not delivered yet goes to the new URL.");
  await fill("Deliveries a second", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for no limit.");
  expect(calls.updateWebhook).toEqual([]);
});

test("a change that got no answer for a minute fails, and its dialog can be closed", async () => {
  await openWebhook({}, { deleteWebhook: () => new Promise(() => {}) });
  await click("Delete");
  await click("Delete webhook");
  expect(isDisabled("Cancel")).toBe(true);
  await later(MINUTE);
  sees("The service took too long", find("alert"));
  await click("Cancel");
  expect(all("dialog")).toEqual([]);
});

test("failed deliveries are replayed from the webhook's page, all or those since a time", async () => {
  const { calls } = await openWebhook({}, deliveries(aDelivery(), aDelivery({ id: "2" })));
  await click("Replay failed…");
  const dialog = find("dialog", "Send 2 deliveries again?");
  await click("Since …", "radio");
  find("button", /^Since/, dialog);
  await click("The last hour", "radio");
  expect(calls.listDeliveries.at(-1)?.from?.seconds).toBe(ago(HOUR).seconds);
  // It is of one webhook: nothing is to be typed.
  await click("Send again", "button", dialog);
  expect(calls.startReplay).toMatchObject([
    { what: { value: { webhookId: 7n, states: [DeliveryState.FAILED] } } },
  ]);
});

const breaker = (state: CircuitBreakerState, nextProbe = ahead(3 * MINUTE)) => ({
  circuitBreaker: {
    settings: {
      enabled: true,
      failures: 4,
      failingSeconds: 1_800,
      probeSeconds: 300,
      disableSeconds: 432_000,
    },
    state,
    since: ago(HOUR),
    reason: "12 attempts in a row have failed, over 31 minutes",
    ...(state === CircuitBreakerState.OPEN ? { nextProbe } : {}),
  },
});

test("0 and Enter in a threshold of a circuit breaker is refused, and saves nothing", async () => {
  const { calls } = await openWebhook();
  const section = region("Circuit breaker");
  sees("Off: every delivery", section);
  await click("Change…", "button", section);
  await click(/^Use a circuit breaker/, "switch");
  await fill("Failed attempts in a row", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for the default.");
  expect(calls.updateWebhook).toEqual([]);
  await fill("Failed attempts in a row", "7");
  await click("Disable on 410 Gone", "checkbox");
  await click("Save");
  expect(calls.updateWebhook).toMatchObject([
    { circuitBreaker: { enabled: true, failures: 7, failingSeconds: 1_800, disableOnGone: true } },
  ]);
});

test("an open circuit breaker tells why, what waits and the next probe, without an announcement of each change", async () => {
  const { webhook } = await openWebhook(breaker(CircuitBreakerState.OPEN), deliveries(aDelivery()));
  const notice = find("note", /./, find("main"));
  sees("12 attempts in a row have failed, over 31 minutes. 1 delivery waits.", notice);
  sees("One is sent as a probe in 3 minutes; if it succeeds", notice);
  const section = region("Circuit breaker");
  for (const part of [
    "Open, since",
    "in 3 minutes",
    "after 4 failed attempts over 30 minutes",
    "first after 5 minutes",
  ])
    sees(part, section);
  sees("after 5 days without success", section);
  expect(isAnnounced("held back since")).toBe(false);
  // While a probe is sent, the time that was planned for it stays.
  await later(5 * MINUTE);
  sees("A probe is under way or about to be sent; if it succeeds", notice);
  sees("under way or about to be sent", section);
  seesNot("2 minutes ago");
  Object.assign(webhook, { paused: ago(0) });
  await later(15 * SECOND);
  sees("When it is resumed they are sent", find("note", /Paused/));
  expect(isAnnounced("When it is resumed")).toBe(false);
});

test("a failing webhook's page tells the last error, since when, and how many retries are overdue and why", async () => {
  const webhook = aWebhook({
    health: WebhookHealth.FAILING,
    lastError: "connection refused (ECONNREFUSED)",
    failingSince: ago(HOUR),
  });
  await open("/webhooks/7", {
    getWebhook: { webhook, overdueRetries: { count: 12, oldestDue: ago(16 * MINUTE) } },
  });
  sees("No attempt has succeeded since the first failure, 1 hour ago.");
  sees("Last error: Connection refused (ECONNREFUSED)");
  sees("Waiting for shop.example, which does not answer; 12 retries overdue, oldest 16 min.");
  expect(isAnnounced("retries overdue")).toBe(false);
});

const SHARED = { endpointId: "end", url: "https://shared.example/hooks" };
const three = () =>
  [7n, 8n, 9n].map((id, n) => aWebhook({ ...SHARED, id, webhookProcess: (n + 1) as WebhookProcess }));
const openEndpoint = (shared: Webhook[], answers: Answers = {}) =>
  open("/webhooks/7", { ...webhooks(...shared), listProcesses: { processes: TYPES }, ...answers });
const ALL_TYPES = "OrderDispatched, DocumentCreated, StockLevelChanged";

test("what changes for all event types of an endpoint names all of them", async () => {
  const { calls } = await openEndpoint(three());
  await click("Edit");
  sees(`Applies to all 3 event types of this endpoint: ${ALL_TYPES}.`, find("dialog"));
  await press("{Escape}");
  await click("Rotate");
  sees(ALL_TYPES, find("dialog", "Rotate the signing secret?"));
  await press("{Escape}");
  await click("Pause");
  sees("The endpoint is paused");
  sees(`Events of ${ALL_TYPES} queue until you resume it.`);
  expect(calls.pauseWebhook).toMatchObject([{ webhookId: 7n }]);
});

test("before the other event types of an endpoint are known, nothing is said of one alone, and nothing confirmed", async () => {
  const shared = three();
  const known = Promise.withResolvers<void>();
  const { answers } = await openEndpoint(shared, {
    getEndpoint: async () => known.promise.then(() => ({ endpoint: { id: "end", webhooks: shared } })),
  });
  await click("Rotate");
  const rotation = find("dialog", "Rotate the signing secret?");
  sees(SHARED.url, rotation);
  seesNot("OrderDispatched", rotation);
  expect(isDisabled("Rotate secret")).toBe(true);
  await click("Cancel");
  await click("Delete");
  expect(isDisabled("Delete", find("dialog", "Delete"))).toBe(true);
  known.resolve();
  await later(0);
  find("dialog", "Delete this event type or the endpoint?");
  find("radio", /^OrderDispatched only/);
  Object.assign(answers, webhooks(...shared.slice(1)));
  await click("Delete event type");
  expect(path()).toBe("/webhooks/8");
});

test("an event type that is removed says what becomes of what waits, and one at least is left", async () => {
  const { calls } = await openEndpoint(three(), { listDeliveries: {} });
  await click("Change event types");
  await click("OrderDispatched", "checkbox");
  sees("OrderDispatched is removed");
  sees("Nothing waits to be delivered at the moment.");
  for (const type of ["DocumentCreated", "StockLevelChanged"]) await click(type, "checkbox");
  await click("Save event types");
  sees("Choose at least one event type. To remove all, delete the endpoint.");
  expect(calls.updateEndpoint).toEqual([]);
});

const row = (name: string) =>
  [...(find("rowheader", name).parentElement as HTMLElement).querySelectorAll("td")].map((cell) =>
    text(cell),
  );

test("a webhook's page shows its success, deliveries, attempts and latency by period, and dashes where there are none", async () => {
  await openWebhook(
    {},
    {
      getWebhookStats: {
        periods: [
          { hours: 1 },
          { hours: 24, attempts: 2_004n, delivered: 1_999n, failed: 1n, failedAttempts: 5n },
          { hours: 168, attempts: 10_004n, delivered: 3n, failed: 1n, latencyP50Ms: 90, latencyP95Ms: 2_400 },
        ],
      },
    },
  );
  const table = find("table", "Statistics by period");
  expect(all("columnheader", undefined, table).map((header) => text(header))).toEqual([
    "1 hour",
    "24 hours",
    "7 days",
  ]);
  // The rates are rounded down, and told to who cannot see the rings.
  expect(row("Success rate")).toEqual(["–", "99.9%", "75%"]);
  find("img", "75% delivered", table);
  expect(row("Delivered")).toEqual(["0", "1,999", "3"]);
  expect(row("Failed attempts")).toEqual(["0", "5", "0"]);
  expect(row("Latency p50")).toEqual(["–", "–", "90 ms"]);
  expect(row("Latency p95")).toEqual(["–", "–", "2.4 s"]);
  expect(all("img", "No delivery ended", table)).toHaveLength(1);
  expect(all("img", "No attempts", table)).toHaveLength(2);
  expect(all("img", "Not counted yet", table)).toHaveLength(2);
});

test("attempts over time are told in words and as a table that leads to the deliveries of an interval", async () => {
  const start = { seconds: BigInt(NOW / SECOND) - 3_600n };
  const history = (attempts: bigint) => ({
    webhooks: [
      {
        webhookId: 7n,
        attempts,
        failedAttempts: 5n,
        latencyP50Ms: 90,
        latencyP95Ms: 300,
        intervals: [{ start, attempts: 8n, failedAttempts: 5n }],
      },
    ],
    intervalSeconds: 1_800,
  });
  const { calls } = await openWebhook(
    {},
    { listWebhookHistory: ({ hours }) => history(hours === 168 ? 10_004n : 2_004n) },
  );
  const section = region("Attempts");
  find("img", /^2,004 attempts in the last 24 hours, 5 failed; p50 90 ms/, section);
  await click("7 days", "radio", section);
  find("img", /^10,004 attempts in the last 7 days, 5 failed/, section);
  expect(calls.listWebhookHistory.at(-1)?.hours).toBe(168);
  await click("Show as a table");
  await click("Deliveries", "link", find("table", "Attempts over time"));
  expect(path()).toBe(
    "/deliveries?webhook=7&from=2026-11-21T10%3A00%3A00.000Z&to=2026-11-21T10%3A30%3A00.000Z",
  );
});

test("a webhook without deliveries says so, and statistics that cannot be read say why and are tried again", async () => {
  const away = new DomainError("UNAVAILABLE", "the database is away");
  const { answers } = await openWebhook({}, { getWebhookStats: away });
  // Once it has been tried three times.
  await later(5 * SECOND);
  const section = region("Statistics");
  sees("The database is away.", section);
  answers.getWebhookStats = { periods: [{ hours: 168 }] };
  find("button", "Try again", section).focus();
  await press("{Enter}");
  sees("No deliveries in the last 7 days.", section);
});

test("a key that may subscribe to some event types only tests a webhook with these", async () => {
  await openWebhook({}, { getSession: signedIn(aKey({ allowedProcesses: [1, 2] })) });
  await click("Edit payload");
  await click("Event type", "combobox");
  expect(all("option").map((option) => text(option))).toEqual(["OrderDispatched", "DocumentCreated"]);
});
