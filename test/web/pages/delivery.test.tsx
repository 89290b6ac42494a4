import { expect, test } from "vitest";
import { DeliveryState, WaitingFor } from "../../../gen/webhook/v1/delivery_pb.ts";
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
  SECOND,
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

test("a failed attempt shows where its time went", async () => {
  const timing = { dnsMs: 12, connectMs: 4_900 };
  const attempt = { number: 1, durationMs: 5_000, error: "connection timed out (ETIMEDOUT)", timing };
  const delivery = aDelivery({ state: DeliveryState.FAILED, attemptCount: 1 });
  await open(AT, { ...webhooks(aWebhook()), getDelivery: { delivery, attempts: [attempt] } });
  find("img", "Wait 88 ms, DNS 12 ms, Connect 4.9 s", region("Attempts"));
});

test("a delivery that waits says for what, and one that ended says why", async () => {
  const circuitBreaker = { state: CircuitBreakerState.OPEN, nextProbe: ahead(5 * MINUTE) };
  const delivery = aDelivery({ state: DeliveryState.PENDING, attemptCount: 1 });
  for (const [of, waits] of [
    [{ circuitBreaker }, /Waits for the circuit breaker; next probe in [45]:\d\d\./],
    [{ paused: ago(HOUR) }, /Waits until the webhook is resumed\./],
    [{ heldUntil: ahead(5 * MINUTE) }, /Waits until the endpoint wants requests again, in [45]:\d\d\./],
  ] as const) {
    // Only the first attempt of a test event does not wait.
    await open(AT, { ...webhooks(aWebhook(of)), getDelivery: { delivery, event: { test: true } } });
    sees(waits, region("Summary"));
    expect(attempts()[0]).toMatch(waits);
  }
  const nextAttempt = ahead(10 * MINUTE);
  const retrying = aDelivery({ state: DeliveryState.RETRYING, attemptCount: 1, nextAttempt });
  await open(AT, { ...webhooks(aWebhook({ heldUntil: ahead(5 * MINUTE) })), ...deliveries(retrying) });
  sees(/The last attempt failed; the next one is in (10:00|9:5\d)\./, region("Summary"));
  for (const [state, reason, said] of [
    [DeliveryState.CANCELLED, "payload erased", "The payload was erased first."],
    [DeliveryState.CANCELLED, "webhook deleted", "The webhook was deleted first."],
    [DeliveryState.FAILED, "interrupted", "The worker crashed 10 times while sending this delivery."],
  ] as const) {
    await open(AT, { ...webhooks(), ...deliveries(aDelivery({ state, reason })) });
    sees(said, region("Summary"));
    expect(all("button", /again/)).toEqual([]);
  }
  sees("The webhook was deleted, so this delivery cannot be sent again.");
});

test.each([
  [
    WaitingFor.HOST,
    "Waits for its turn: requests to the host time out, so that only a few are made at once.",
  ],
  [WaitingFor.RATE_LIMIT, "Waits for its turn under the rate limit of the webhook."],
])("a delivery that was claimed but not sent says what it waits for (%s)", async (waitingFor, waits) => {
  const delivery = aDelivery({ state: DeliveryState.DELIVERING, attemptCount: 0, waitingFor });
  await open(AT, { ...webhooks(aWebhook()), ...deliveries(delivery) });
  sees(waits, region("Summary"));
  expect(attempts()[0]).toContain(waits);
});

test("a failed attempt says what to do, and the latest what follows and how many others wait for the same", async () => {
  const cause = { code: "connection_refused", summary: "connection refused", remedy: "check that it runs" };
  const error = "connection refused; check that it runs (ECONNREFUSED)";
  const failed = (number: number) => ({ number, durationMs: 5, error, cause });
  const found = { attempts: [failed(1), failed(2)], incidentId: "i" };
  const nextAttempt = ahead(5 * MINUTE);
  const retrying = aDelivery({ state: DeliveryState.RETRYING, attemptCount: 2, nextAttempt });
  const { answers } = await open(AT, {
    ...webhooks(aWebhook()),
    getDelivery: { delivery: retrying, ...found },
    getIncident: { incident: { waiting: 42n, failingWebhooks: 3n } },
  });
  const others = "41 other deliveries of 3 webhooks wait for the same.";
  expect(attempts()).toEqual([
    expect.stringMatching(/^Attempt 3in [45]:\d\d/),
    expect.stringContaining(`Attempt 2Connection refusedWhat to do: check that it runs.${others}Round 1`),
    expect.stringContaining("Attempt 1Connection refusedWhat to do: check that it runs.Round 1"),
  ]);
  answers.getDelivery = { delivery: aDelivery({ attemptCount: 2 }), ...found };
  await later(2 * SECOND);
  expect(attempts()[0]).toContain(
    "No attempt follows. Send it again once that is mended. 42 other deliveries",
  );
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

test("replays are listed with what they do, and say which webhook is paused", async () => {
  const eventId = "01a2b3c4-e000-7000-8000-000000000001";
  const running = { state: ReplayState.RUNNING, created: ago(HOUR), queued: 20n };
  const missed = { case: "backfill" as const, value: { webhookId: 7n, from: ago(DAY) } };
  const cancelled = { case: "resend" as const, value: { eventId, states: [DeliveryState.CANCELLED] } };
  await open("/replays", {
    ...webhooks(aWebhook({ paused: ago(HOUR) })),
    listReplays: {
      replays: [
        { ...running, id: "r1", what: missed, webhooks: 1, webhooksWaiting: 1 },
        { ...running, id: "r2", what: cancelled, skipped: 3n },
      ],
    },
  });
  sees("the webhook is paused: the rest waits until it is resumed", find("listitem", "Missed events"));
  const card = find("listitem", "Cancelled deliveries");
  sees(`All webhooks, event ${eventId}`, card);
  sees("0 of 20 delivered, 3 skipped · 0 % examined", card);
  await click(eventId, "link");
  expect(path()).toBe(`/events/${eventId}`);
});
