import type { MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import {
  CircuitBreakerState,
  SignatureForm,
  WebhookHealth,
  type WebhookSchema,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import {
  aDelivery,
  ago,
  ahead,
  aWebhook,
  CHANGED_MEANWHILE,
  deliveries,
  HOUR,
  invalid,
  MINUTE,
  NOW,
  notFound,
  SECOND,
  signedIn,
  TOO_MANY,
  TYPES,
  webhooks,
} from "./answers.ts";
import {
  type Answers,
  all,
  back,
  choose,
  click,
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

/** The page of a webhook, at a tab; what is changed of it is shown. */
async function openWebhook(
  more: MessageInitShape<typeof WebhookSchema> = {},
  answers: Answers = {},
  tab?: "settings" | "verify",
) {
  const webhook = aWebhook(more);
  const service = await open(tab ? `/webhooks/7?tab=${tab}` : "/webhooks/7", {
    ...webhooks(webhook),
    listProcesses: { processes: TYPES },
    ...answers,
  });
  return { ...service, webhook };
}

/** A figure of the statistics. */
const figure = (name: string) => {
  const names = [...find("region", "Attempts").querySelectorAll("dt")];
  return text(names.find((each) => text(each) === name)?.nextElementSibling as HTMLElement);
};

/** Does something that the menu of a webhook offers. */
async function act(name: string): Promise<void> {
  await click("More actions");
  await click(name, "menuitem");
}

/** A webhook that fails since an hour ago. */
const FAILING = {
  health: WebhookHealth.FAILING,
  lastError: "connection refused; check that the server runs, and its host and port (ECONNREFUSED)",
  failingSince: ago(HOUR),
};

test("a webhook's page tells what is registered, what failed and how it did in each period", async () => {
  const webhook = aWebhook(FAILING);
  await openWebhook(
    {},
    {
      getWebhook: { webhook, overdueRetries: { count: 12, oldestDue: ago(16 * MINUTE) } },
      ...deliveries(aDelivery()),
      getWebhookStats: {
        periods: [
          { hours: 1 },
          { hours: 24, attempts: 2_004n, delivered: 1_999n, failed: 1n, failedAttempts: 5n },
          { hours: 168, attempts: 10_004n, delivered: 3n, failed: 1n, latencyP50Ms: 90, latencyP95Ms: 2_400 },
        ],
      },
    },
  );
  expect(document.title).toContain("shop.example/hooks");
  sees("Failed", region("Last deliveries"));
  const fix = region("Fix it");
  sees("No attempt has succeeded since the first failure, 1 hour ago.", fix);
  sees("Connection refused", fix);
  sees("What to do: check that the server runs, and its host and port", fix);
  sees("Waiting for shop.example, which does not answer; 12 retries overdue, oldest 16 min.", fix);
  // Charts are loaded when they are shown.
  await expect.poll(() => all("region", "Attempts")).toHaveLength(1);
  // Rates are rounded down.
  const shown = () =>
    ["Success rate", "Delivered", "Failed attempts", "Latency p50", "Latency p95"].map(figure);
  expect(shown()).toEqual(["99.9%", "1,999", "5", "–", "–"]);
  await click("7 days", "radio", region("Attempts"));
  expect(shown()).toEqual(["75%", "3", "0", "90 ms", "2.4 s"]);
  await click("1 hour", "radio", region("Attempts"));
  seesNot("Success rate");
  await click("Settings", "tab");
  expect(path()).toBe("/webhooks/7?tab=settings");
  sees(webhook.url, region("Registration"));
  await click("Verify", "tab");
  sees("Answer with any 2xx status within 15 seconds.");
  await back();
  expect(path()).toBe("/webhooks/7?tab=settings");
});

test("a webhook's page tells until when its endpoint wants no requests, and how many it takes", async () => {
  const webhook = aWebhook({ heldUntil: ahead(10 * MINUTE), takesPerSecond: 4.96 });
  await openWebhook(
    {},
    { getWebhook: { webhook, overdueRetries: { count: 12, oldestDue: ago(16 * MINUTE) } } },
  );
  sees("The endpoint wants no requests for now");
  sees("use up no attempts; test events are sent. It takes about 5/s.");
  sees("On hold", find("main"));
  sees("Shop.example wants no requests for now; 12 retries overdue, oldest 16 min.");
  await click("Settings", "tab");
  sees("Takes about 5/s", region("Registration"));
});

/** The open incident of webhooks at a host. */
const anIncident = (subject: string) => ({
  incidents: [
    {
      subject,
      cause: { code: "http_404", summary: "the receiver answers 404 Not Found", remedy: "check the path" },
      failingWebhooks: 12n,
      customers: 3n,
      waiting: 2_007n,
      nextAttempt: ahead(3 * MINUTE),
    },
  ],
});

test("a failing webhook gets another URL, is tested there, and what failed is replayed, in three clicks, until it works again", async () => {
  const { calls, answers, webhook } = await openWebhook(FAILING, {
    listIncidents: anIncident("shop.example"),
    listFailureReasons: { total: 2_007n, examined: 5_000 },
    getWebhookRequestSettings: { settings: { headerNames: ["X-Tenant"], hasBearerToken: true } },
    tryWebhookRequest: { accepted: true, status: 200, durationMs: 12 },
    ...deliveries(aDelivery()),
  });
  const fix = region("Fix it");
  sees("The receiver answers 404 Not Found", fix);
  sees("What to do: check the path.", fix);
  sees("12 webhooks of 3 customers fail for the same. 2,007 deliveries wait.", fix);
  sees(/The next attempt is in [23] minutes\./, fix);
  sees("A circuit breaker holds deliveries back after 10 failed attempts in a row over 30 minutes", fix);
  answers.updateWebhook = () => {
    webhook.url = "https://shop.example/new";
    return { webhook, warnings: [] };
  };
  await fill("URL", "https://shop.example/new");
  await click("Save and test");
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 7n, url: "https://shop.example/new" }]);
  expect(calls.tryWebhookRequest).toMatchObject([
    { webhookId: 7n, settings: { headers: [{ name: "X-Tenant" }], authentication: { case: "bearer" } } },
  ]);
  sees("The endpoint answered 200 after 12 ms", fix);
  // The error of the old URL is none of the new one.
  seesNot("404", fix);
  sees("The failures so far are of the earlier one", fix);
  const replay = {
    id: "r",
    state: ReplayState.COMPLETED,
    ended: ago(0),
    what: { case: "resend" as const, value: { webhookId: 7n, states: [DeliveryState.FAILED] } },
    queued: 2_007n,
    delivered: 1_998n,
    failed: 3n,
    waiting: 6n,
  };
  answers.listReplays = { replays: [replay] };
  await click("Replay 2,007 failed");
  expect(calls.startReplay).toMatchObject([
    { what: { case: "resend", value: { webhookId: 7n, states: [DeliveryState.FAILED] } } },
  ]);
  const card = find("listitem", "Failed deliveries");
  sees("Sending", card);
  sees("1,998 of 2,007 delivered, 3 failed again, 6 wait", card);
  Object.assign(webhook, { health: WebhookHealth.HEALTHY, lastError: undefined });
  answers.listReplays = { replays: [{ ...replay, delivered: 2_004n, waiting: 0n }] };
  answers.listFailureReasons = { total: 3n };
  await later(15 * SECOND);
  sees("The latest attempts have succeeded.", region("It works again"));
  sees("2,004 of 2,007 delivered, 3 failed again", find("listitem", "Failed deliveries"));
});

test("a webhook at a host of a domain shows the incident of that domain, and a webhook elsewhere does not", async () => {
  for (const [subject, said] of [
    ["hosts of example", "The receiver answers 404 Not Found"],
    ["hosts of ample", "The failures so far are of the earlier one"],
  ] as const) {
    await openWebhook(FAILING, { listIncidents: anIncident(subject) });
    sees(said, region("Fix it"));
  }
});

test("an incident of an earlier host is not told of the new one, and a circuit breaker is switched on at a click", async () => {
  const { calls } = await openWebhook(FAILING, { listIncidents: anIncident("old.example") });
  const fix = region("Fix it");
  sees("The failures so far are of the earlier one", fix);
  seesNot("404", fix);
  expect(all("button", /^Replay [0-9]/)).toEqual([]);
  await click("Use a circuit breaker", "button", fix);
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 7n, circuitBreaker: { enabled: true } }]);
});

test("a live test tells why it failed, where the time went, the addresses, and which certificate ends soon", async () => {
  const { answers } = await openWebhook(
    {},
    {
      tryWebhookRequest: {
        error: "certificate expired; renew it",
        cause: { code: "certificate_expired", summary: "certificate expired", remedy: "renew it" },
        durationMs: 140,
        timing: { dnsMs: 20, connectMs: 40, tlsMs: 60 },
        addresses: ["192.0.2.1", "2001:db8::1"],
        certificates: [
          { subject: "CN=shop.example", issuer: "CN=R3", notAfter: ago(3 * HOUR), names: ["shop.example"] },
          { subject: "CN=R3", issuer: "CN=Root", notAfter: ahead(5 * 24 * HOUR) },
        ],
      },
    },
    "settings",
  );
  await click("Test");
  expect(path()).toBe("/webhooks/7");
  const part = region("Test");
  for (const said of [
    "No response: certificate expired",
    "What to do: renew it.",
    "192.0.2.1, 2001:db8::1",
    /CN=shop.example, issued by CN=R3, .*: expired 3 hours ago\. For shop.example/,
    /CN=R3, issued by CN=Root, .*: ends in (4|5) days/,
  ])
    sees(said, part);
  find("img", "Wait 20 ms, DNS 20 ms, Connect 40 ms, TLS 60 ms", part);
  answers.tryWebhookRequest = TOO_MANY;
  await click("Test");
  sees("Nothing was sent", part);
});

test("attempts over time are described in words and in a table that links the deliveries of an interval", async () => {
  const start = { seconds: BigInt(NOW / SECOND) - 3_600n };
  const history = (attempts: bigint) => ({
    webhooks: [{ webhookId: 7n, attempts, failedAttempts: 5n, intervals: [{ start, attempts: 8n }] }],
    intervalSeconds: 1_800,
  });
  await openWebhook({}, { listWebhookHistory: ({ hours }) => history(hours === 168 ? 10_004n : 2_004n) });
  const section = region("Attempts");
  find("img", /^2,004 attempts in the last 24 hours, 5 failed/, section);
  await click("7 days", "radio", section);
  find("img", /^10,004 attempts in the last 7 days, 5 failed/, section);
  await click("Show as a table");
  await click("Deliveries", "link", find("table", "Attempts over time"));
  expect(path()).toBe(
    "/deliveries?webhook=7&from=2026-11-21T10%3A00%3A00.000Z&to=2026-11-21T10%3A30%3A00.000Z",
  );
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

test("a test event is followed to its end and says why it ended", async () => {
  const { answers, calls } = await openWebhook(
    {},
    { sendTestEvent: () => ({ deliveryId: `of call ${calls.sendTestEvent.length}` }) },
  );
  answers.getDelivery = { delivery: aDelivery({ state: DeliveryState.PENDING, attemptCount: 0 }) };
  await click("Send test event");
  const section = region("Test event");
  sees("Waits for the next dispatch.", section);
  const attempt = { number: 4, durationMs: 12 };
  for (const [delivery, status, said] of [
    [{ state: DeliveryState.DELIVERED }, 200, "200 OK after 12 ms"],
    [{ attemptCount: 1 }, 410, "410 Gone"],
    [{ attemptCount: 1 }, 429, "429 Too Many Requests: Retry-After: 9 s"],
    [{ reason: "queue full" }, 0, "Never sent: more deliveries waited for the webhook"],
    [{ state: DeliveryState.CANCELLED, reason: "payload erased" }, 0, "The payload was erased first."],
  ] as const) {
    answers.getDelivery = {
      delivery: aDelivery({ ...delivery, status, ...(status === 429 ? { error: "Retry-After: 9 s" } : {}) }),
      attempts: status ? [{ ...attempt, status }] : [],
    };
    await click("Send another");
    sees(said, section);
  }
});

test("a secret is recorded as revealed once, hidden again, and revoked by a rotation if that is chosen", async () => {
  const { calls } = await openWebhook(
    {},
    { getWebhookSecret: { secrets: [{ secret: "whsec_one" }] } },
    "verify",
  );
  expect(calls.getWebhookSecret).toEqual([]);
  await click("Reveal secret");
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
  for (const event of ["offline", "online"]) window.dispatchEvent(new Event(event));
  await click("Pause");
  sees("The webhook is paused");
  expect(value("Signing secret")).toBe("whsec_one");
  expect(calls.getWebhookSecret).toHaveLength(1);
  await click("Hide");
  expect(document.body.innerHTML).not.toContain("whsec_one");
  await click("Rotate");
  await click(/^Revoke immediately/, "radio");
  await click("Rotate secret");
  expect(calls.rotateWebhookSecret).toMatchObject([{ webhookId: 7n, revokeOldSecrets: true }]);
  sees("until then the endpoint refuses deliveries");
});

test("a rate limit with a period and the delays of retries are shown as set, and changed in seconds", async () => {
  const set = { rateLimit: 30, ratePeriodSeconds: 3_600, thirdRetrySeconds: 86_400 };
  const { calls } = await openWebhook(set, {}, "settings");
  const section = region("Registration");
  for (const part of ["30 deliveries an hour", "Third retry", "After 1 day"]) sees(part, section);
  for (const part of ["Rate period", "First retry"]) seesNot(part, section);
  await click("Edit");
  expect([value("Rate period"), value("Third retry")]).toEqual(["3,600", "86,400"]);
  await fill("Rate period", "");
  await fill("First retry", "5");
  await click("Save changes");
  expect(calls.updateWebhook).toMatchObject([
    {
      rateLimit: 30,
      ratePeriodSeconds: 0,
      firstRetrySeconds: 5,
      secondRetrySeconds: 0,
      thirdRetrySeconds: 86_400,
    },
  ]);
});

test("a second signature is chosen with its header and prefix, shown, and verified by code of the page", async () => {
  const { calls, answers } = await openWebhook({ signatureForm: SignatureForm.HEX }, {}, "verify");
  const section = region("Second signature");
  sees("X-Hub-Signature-256", section);
  await click("Second signature", "tab");
  sees("the value of X-Hub-Signature-256");
  answers.updateWebhook = invalid("signature_header", "must not have X-Own twice");
  await click("Change…", "button", section);
  await fill("Header", "X-Own");
  await fill("Prefix", "sha256=");
  await click("Save");
  sees("Must not have X-Own twice.");
  answers.updateWebhook = {};
  await choose("Form", /^Stripe/);
  await click("Save");
  expect(calls.updateWebhook).toMatchObject([
    { signatureForm: SignatureForm.HEX, signatureHeader: "X-Own", signaturePrefix: "sha256=" },
    { signatureForm: SignatureForm.STRIPE, signatureHeader: "X-Own", signaturePrefix: "" },
  ]);
});

test("a secret of one's own is rotated in as it is, or as the base64 of its text", async () => {
  const { calls } = await openWebhook(
    {},
    { getWebhookSecret: { secrets: [{ secret: "whsec_one" }] } },
    "verify",
  );
  for (const isText of [false, true]) {
    await click("Rotate");
    await fill("Secret of your own", "It's a Secret to Everybody");
    if (isText) await click(/^The endpoint uses this text itself/, "checkbox");
    await click("Rotate secret");
  }
  const secret = `whsec_${Buffer.from("It's a Secret to Everybody").toString("base64")}`;
  expect(calls.rotateWebhookSecret).toMatchObject([{ secret: "It's a Secret to Everybody" }, { secret }]);
});

test("a change of somebody else in between is not written over, and a rate limit of 0 is not saved as none", async () => {
  const { calls, answers, webhook } = await openWebhook(
    { name: "Old", rateLimit: 20 },
    { updateWebhook: CHANGED_MEANWHILE },
  );
  await act("Edit…");
  await fill("Rate limit", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for no limit.");
  await fill("Rate limit", "20");
  await fill("Name", "Mine");
  Object.assign(webhook, { name: "", rateLimit: undefined, revision: 5n });
  await click("Save changes");
  expect(calls.updateWebhook).toMatchObject([{ webhookId: 7n, revision: 1n, name: "Mine" }]);
  sees("This webhook was changed meanwhile");
  await click("Load the current values");
  expect(value("Name")).toBe("");
  answers.updateWebhook = { warnings: ["new.example does not exist"] };
  await fill("Name", "Mine");
  await click("Save changes");
  expect(calls.updateWebhook[1]).toMatchObject({ revision: 5n, name: "Mine", rateLimit: 0 });
  sees("new.example does not exist");
});

test("failed deliveries are replayed from the webhook's page, and missed events sent since a chosen time, once", async () => {
  const { calls, answers } = await openWebhook(
    {},
    { ...deliveries(aDelivery(), aDelivery({ id: "2" })), startReplay: new Error("no answer") },
  );
  await click("Replay failed…");
  await click("Send again", "button", find("dialog", "Send 2 deliveries again?"));
  expect(calls.startReplay).toMatchObject([
    { what: { case: "resend", value: { webhookId: 7n, states: [DeliveryState.FAILED] } } },
  ]);
  await click("Cancel");
  await click("Send missed events…");
  sees("Each OrderDispatched event since then");
  await click("The last hour", "radio");
  const dialog = find("dialog", "Send missed events?");
  for (const _ of [1, 2]) await click("Send missed events", "button", dialog);
  const [, first, second] = calls.startReplay;
  expect(first?.what).toMatchObject({ case: "backfill", value: { from: { seconds: ago(HOUR).seconds } } });
  expect(second?.idempotencyKey).toBe(first?.idempotencyKey);
  await click("Cancel", "button", dialog);
  answers.startReplay = {};
  // The same, asked for in another dialog, is another replay.
  await click("Replay failed…");
  await click("Send again", "button", find("dialog", "Send 2 deliveries again?"));
  sees("The replay has started");
  expect(calls.startReplay[3]?.idempotencyKey).not.toBe(calls.startReplay[0]?.idempotencyKey);
});

test("an open circuit breaker tells why, what waits and the next probe, and its thresholds are changed", async () => {
  const settings = { enabled: true, failures: 4, failingSeconds: 1_800, probeSeconds: 300 };
  const circuitBreaker = {
    settings: { ...settings, disableSeconds: 432_000 },
    state: CircuitBreakerState.OPEN,
    since: ago(HOUR),
    reason: "12 attempts in a row have failed, over 31 minutes",
    nextProbe: ahead(3 * MINUTE),
  };
  const { calls } = await openWebhook({ circuitBreaker }, deliveries(aDelivery()));
  const notice = find("note", /./, find("main"));
  sees("12 attempts in a row have failed, over 31 minutes. 1 delivery waits.", notice);
  sees("One is sent as a probe in 3 minutes; if it succeeds", notice);
  await later(5 * MINUTE);
  sees("A probe is under way or about to be sent; if it succeeds", notice);
  await click("Settings", "tab");
  const section = region("Circuit breaker");
  for (const part of [
    "Open, since",
    "under way or about to be sent",
    "after 4 failed attempts over 30 minutes",
    "first after 5 minutes",
    "after 5 days without success",
  ])
    sees(part, section);
  await click("Change…", "button", section);
  await fill("Failed attempts in a row", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for the default.");
  expect(calls.updateWebhook).toEqual([]);
  await fill("Failed attempts in a row", "7");
  await click("Disable on 410 Gone", "checkbox");
  // Periods are in the largest unit that is exact, or in the chosen one.
  const unit = (of: string) => value(`Unit: ${of}`);
  expect([value("Failing for at least"), unit("Failing for at least")]).toEqual(["30", "minutes"]);
  expect([value("Disable without success for"), unit("Disable without success for")]).toEqual(["5", "days"]);
  await fill("Failing for at least", "2");
  await click("Unit: Failing for at least", "combobox");
  await click(all("option", "hours", document.body)[0] as HTMLElement);
  await click("Save");
  expect(calls.updateWebhook).toMatchObject([
    { circuitBreaker: { ...settings, failures: 7, failingSeconds: 7_200, disableOnGone: true } },
  ]);
});

test("what changes for all event types of an endpoint names all of them, and one at least is left", async () => {
  const all = [7n, 8n, 9n].map((id, n) =>
    aWebhook({ endpointId: "end", id, webhookProcess: (n + 1) as WebhookProcess }),
  );
  const answers = { ...webhooks(...all), listProcesses: { processes: TYPES } };
  const { calls } = await open("/webhooks/7?tab=settings", answers);
  const names = "OrderDispatched, DocumentCreated, StockLevelChanged";
  await click("Edit");
  sees(`Applies to all 3 event types of this endpoint: ${names}.`, find("dialog"));
  await press("{Escape}");
  await act("Rotate secret…");
  sees(names, find("dialog", "Rotate the signing secret?"));
  await press("{Escape}");
  await click("Change event types");
  for (const type of names.split(", ")) await click(type, "checkbox");
  sees("Nothing waits to be delivered at the moment.");
  await click("Save event types");
  sees("Choose at least one event type. To remove all, delete the endpoint.");
  expect(calls.updateEndpoint).toEqual([]);
});

test("before the other event types of an endpoint are known, nothing can be confirmed for one alone", async () => {
  const webhook = aWebhook({ endpointId: "end" });
  await open("/webhooks/7", { ...webhooks(webhook), getEndpoint: () => new Promise(() => {}) });
  await act("Rotate secret…");
  seesNot("OrderDispatched", find("dialog", "Rotate the signing secret?"));
  expect(isDisabled("Rotate secret")).toBe(true);
  await click("Cancel");
  await act("Delete…");
  expect(isDisabled("Delete", find("dialog", "Delete"))).toBe(true);
});

test("a change that got no answer for a minute fails, and its dialog can be closed", async () => {
  await openWebhook({}, { deleteWebhook: () => new Promise(() => {}) });
  await act("Delete…");
  await click("Delete webhook");
  expect(isDisabled("Cancel")).toBe(true);
  await later(MINUTE);
  sees("The service took too long", find("alert"));
  await click("Cancel");
  expect(all("dialog")).toEqual([]);
});

test("a webhook that its circuit breaker has disabled says so, and is enabled from its page", async () => {
  const settings = { enabled: true, failures: 4, failingSeconds: 1_800, probeSeconds: 300 };
  const reason = "the endpoint answered 410 Gone";
  const circuitBreaker = { settings, state: CircuitBreakerState.DISABLED, since: ago(HOUR), reason };
  const { calls } = await openWebhook({ circuitBreaker }, deliveries(aDelivery()));
  sees("410 Gone", find("note", /./, find("main")));
  await click("Enable and send");
  expect(calls.resumeWebhook).toMatchObject([{ webhookId: 7n }]);
});

test("a webhook that is not found may also be one that the key has no access to", async () => {
  const missing = { getWebhook: notFound("WEBHOOK_NOT_FOUND") };
  await openWebhook({}, missing);
  sees("It was deleted or never existed.");
  await openWebhook({}, { ...missing, getSession: signedIn({ installedApplicationId: "app" }) });
  sees("It was deleted, belongs to an app or customer that your key does not see, or never existed.");
});

test("a webhook without attempts is not tried yet, instead of healthy", async () => {
  await openWebhook({ neverTried: true, health: WebhookHealth.HEALTHY });
  sees("Not tried yet");
  seesNot("Healthy");
});
