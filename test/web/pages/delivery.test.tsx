import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { CircuitBreakerState, WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import {
  aDelivery,
  ago,
  ahead,
  aWebhook,
  DAY,
  deliveries,
  deliveryId,
  HOUR,
  MINUTE,
  notFound,
  READER,
  SECOND,
  signedIn,
  webhooks,
} from "./answers.ts";
import { type Answers, all, click, find, later, open, path, region, sees, seesNot, text } from "./page.tsx";

const AT = `/deliveries/${deliveryId(1)}`;

const attempts = () => all("listitem", undefined, region("Attempts")).map((item) => text(item));

test("a delivery under way counts down to its next attempt, is not sent again meanwhile, and is followed to its end", async () => {
  const retrying = aDelivery({
    state: DeliveryState.RETRYING,
    attemptCount: 1,
    nextAttempt: ahead(5 * MINUTE),
  });
  const { answers } = await open(AT, {
    ...webhooks(aWebhook()),
    getDelivery: {
      delivery: retrying,
      attempts: [{ number: 1, durationMs: 5_000, error: "connection timed out (ETIMEDOUT)" }],
    },
  });
  await later(30 * SECOND);
  expect(attempts()).toEqual([
    expect.stringMatching(/^Attempt 2in 4:[23]\dRound 1, 2 of 4$/),
    expect.stringMatching(/^Attempt 1Connection timed out \(ETIMEDOUT\)Round 1, 1 of 4 .* took 5.0 s$/),
  ]);
  expect(all("button", "Send again")).toEqual([]);
  sees("The event is not kept any more.");
  answers.getDelivery = { delivery: aDelivery({ state: DeliveryState.CANCELLED }) };
  await later(2 * SECOND);
  sees("Cancelled", region("Summary"));
});

const OPEN = {
  circuitBreaker: { state: CircuitBreakerState.OPEN, nextProbe: ahead(5 * MINUTE) },
};

test.each([
  {
    state: DeliveryState.RETRYING,
    of: OPEN,
    waits: /Waits for the circuit breaker; next probe in [45]:\d\d\./,
  },
  {
    state: DeliveryState.PENDING,
    of: OPEN,
    waits: /Waits for the circuit breaker; next probe in [45]:\d\d\./,
  },
  { state: DeliveryState.PENDING, of: { paused: ago(HOUR) }, waits: /Waits until the webhook is resumed\./ },
])("a delivery that waits says for what: $waits", async ({ state, of, waits }) => {
  const delivery = aDelivery({ state, attemptCount: 1, nextAttempt: ahead(5 * MINUTE) });
  // Only the first attempt of a test event does not wait.
  await open(AT, { ...webhooks(aWebhook(of)), getDelivery: { delivery, event: { test: true } } });
  sees(waits, region("Summary"));
  expect(attempts()[0]).toMatch(waits);
});

test("a delivery whose retry is overdue says so, and what it waits for", async () => {
  const webhook = aWebhook({ health: WebhookHealth.FAILING, lastError: "connection refused (ECONNREFUSED)" });
  const delivery = aDelivery({
    state: DeliveryState.RETRYING,
    attemptCount: 1,
    nextAttempt: ago(16 * MINUTE),
  });
  await open(AT, {
    ...deliveries(delivery),
    getWebhook: { webhook, overdueRetries: { count: 12, oldestDue: ago(16 * MINUTE) } },
  });
  const reason = "waiting for shop.example, which does not answer; 12 retries overdue, oldest 16 min.";
  sees(`The retry is overdue by 16 min: ${reason}`);
  expect(attempts()[0]).toContain("Overdue by 16 min");
  seesNot("any moment now");
  await click("All deliveries", "link");
  sees("retry overdue by 16 min");
});

test("a delivery of a deleted webhook, or that one may only read, has no way to be sent again", async () => {
  const answers = {
    ...webhooks(aWebhook()),
    ...deliveries(aDelivery({ reason: "interrupted", attemptCount: 0 })),
  };
  await open(AT, { ...answers, getSession: signedIn({ permissions: READER }) });
  sees("No attempts were made.");
  expect(all("button", /again/)).toEqual([]);
  await open(AT, { ...answers, ...webhooks() });
  sees("The webhook was deleted, so this delivery cannot be sent again.");
  sees("The worker crashed 10 times while sending this delivery.");
});

test.each([
  ["payload erased", "The payload was erased first."],
  ["webhook deleted", "The webhook was deleted first."],
])("a delivery that was cancelled says why: %s", async (reason, said) => {
  await open(AT, deliveries(aDelivery({ state: DeliveryState.CANCELLED, reason })));
  sees(said, region("Summary"));
});

test("a delivery that is sent again waits for its paused webhook, and says so", async () => {
  await open(AT, { ...webhooks(aWebhook({ paused: ago(HOUR) })), ...deliveries(aDelivery()) });
  await click("Send again");
  sees("It waits until the webhook is resumed");
  sees("Up to 4 more attempts under the same id, numbered from 5.");
});

test("what failed since a failed delivery is replayed from its page, that one included", async () => {
  const created = ago(2 * HOUR);
  const { calls } = await open(AT, {
    ...webhooks(aWebhook()),
    ...deliveries(aDelivery({ created }), aDelivery({ id: deliveryId(2) })),
  });
  await click("Replay failed since this one…");
  const dialog = find("dialog", "Send 2 deliveries again?");
  sees("https://shop.example/hooks", dialog);
  await click("Send again", "button", dialog);
  sees("The replay has started");
  expect(calls.startReplay).toMatchObject([
    { what: { case: "resend", value: { webhookId: 7n, from: created, states: [DeliveryState.FAILED] } } },
  ]);
});

test.each([
  ["delivery", AT, { getDelivery: notFound("DELIVERY_NOT_FOUND") }],
  ["event", "/events/01a2b3c4-0000-7000-8000-000000000000", { getEvent: notFound("EVENT_NOT_FOUND") }],
] as [string, string, Answers][])(
  "an address without a %s says so and leads to the list",
  async (what, at, answers) => {
    await open(at, answers);
    sees(`There is no such ${what}`);
    await click(all("link", "All deliveries").at(-1) as HTMLElement);
    expect(path()).toBe("/deliveries");
  },
);

const RUNNING = { id: "r1", state: ReplayState.RUNNING, created: ago(HOUR), queued: 20n };
const OF_FAILED = { case: "resend" as const, value: { webhookId: 7n, states: [DeliveryState.FAILED] } };
const OF_MISSED = { case: "backfill" as const, value: { webhookId: 7n, from: ago(DAY) } };

test("replays are listed with what they do, and say which webhook is paused", async () => {
  const eventId = "01a2b3c4-e000-7000-8000-000000000001";
  const ofOne = { eventId, states: [DeliveryState.CANCELLED] };
  await open("/replays", {
    ...webhooks(aWebhook({ paused: ago(HOUR) })),
    listReplays: {
      replays: [
        { ...RUNNING, what: OF_MISSED, webhooks: 1, webhooksWaiting: 1 },
        { ...RUNNING, id: "r2", what: { case: "resend", value: ofOne }, skipped: 3n },
      ],
    },
  });
  sees("the webhook is paused: the rest waits until it is resumed", find("listitem", "Missed events"));
  const card = find("listitem", "Cancelled deliveries");
  sees(`All webhooks, event ${eventId}`, card);
  sees("20 deliveries queued, 3 skipped · 0 % examined", card);
  await click(eventId, "link");
  expect(path()).toBe(`/events/${eventId}`);
});

test("who may only read sees replays, and no way to change or start one", async () => {
  const reader = { getSession: signedIn({ permissions: READER }), ...webhooks(aWebhook()) };
  await open("/replays", { ...reader, listReplays: { replays: [{ ...RUNNING, what: OF_FAILED }] } });
  find("listitem", "Failed deliveries");
  expect(all("button", /Pause|Cancel replay/)).toEqual([]);
  await click(/Webhook #7/, "link");
  region("Last deliveries");
  expect(all("button", "Send missed events…")).toEqual([]);
});

test("a replay that ended two minutes ago disappears from the open list of deliveries", async () => {
  const ended = { ...RUNNING, what: OF_FAILED, state: ReplayState.CANCELLED, ended: ago(MINUTE) };
  await open("/deliveries", { listReplays: { replays: [ended] } });
  find("group", "Replays");
  await later(MINUTE + 10 * SECOND);
  expect(all("group", "Replays")).toEqual([]);
});

test("missed events are proposed from the day before the webhook was registered, and a replay without an answer starts once in its dialog", async () => {
  const { calls, answers } = await open("/webhooks/7", {
    ...webhooks(aWebhook({ created: ago(3 * DAY) })),
    startReplay: new Error("no answer"),
  });
  await click("Send missed events…");
  sees("Each OrderDispatched event since then");
  find("button", /^Since/);
  await click("The last hour", "radio");
  expect(all("button", /^Since/)).toEqual([]);
  const dialog = find("dialog", "Send missed events?");
  for (const _ of [1, 2]) {
    await click("Send missed events", "button", dialog);
    find("alert", undefined, dialog);
  }
  const [first, second] = calls.startReplay;
  expect(second?.idempotencyKey).toBe(first?.idempotencyKey);
  expect(first?.what.value?.from?.seconds).toBe(ago(HOUR).seconds);
  await click("Cancel");
  answers.startReplay = {};
  await click("Send missed events…");
  await click("Send missed events", "button", find("dialog", "Send missed events?"));
  sees("The replay has started");
  expect(calls.startReplay[2]?.idempotencyKey).not.toBe(first?.idempotencyKey);
  expect(calls.startReplay[2]?.what.value?.from?.seconds).toBe(ago(4 * DAY).seconds);
});
