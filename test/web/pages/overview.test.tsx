import { expect, test } from "vitest";
import { Bottleneck } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth } from "../../../gen/webhook/v1/webhook_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { BOTTLENECKS } from "../../../src/contract/stats/bottlenecks.ts";
import { aDelivery, ago, aWebhook, deliveries, HOUR, MINUTE, SECOND, webhooks } from "./answers.ts";
import { all, click, find, later, open, region, sees, seesNot, text } from "./page.tsx";

/** An overview as it is told once; nobody but the page ends the stream. */
const told = (overview: object) => ({ watchOverview: [{ overview }] });
const link = (name: string | RegExp) => find("link", name).getAttribute("href");

test("the overview tells the figures of a day, compared with the day before, and leads to the deliveries", async () => {
  const { calls } = await open("/", {
    ...webhooks(aWebhook({ url: "https://bad.example/hooks" })),
    ...told({
      pending: 2n,
      failingWebhooks: 0n,
      deliveredLastDay: 1_004n,
      deliveredPreviousDay: 1_001n,
      failedLastDay: 4n,
      failedPreviousDay: 8n,
      failedAttemptsLastDay: 14n,
      failedAttemptsPreviousDay: 5_000n,
    }),
    getHistory: { buckets: [{ attempts: 15n, failedAttempts: 12n }] },
    listWebhookStats: {
      webhooks: [{ webhookId: 7n, attempts: 12n, failedAttempts: 12n, averageMs: 1_234, longestMs: 3_000 }],
    },
  });
  expect(link(/^Delivered\s*1,004.*less than 1% more than the day before \(1,001\)$/)).toContain(
    "state=delivered",
  );
  expect(link(/^Failed deliveries\s*4.*50% fewer than the day before \(8\)$/)).toBe(
    "/deliveries?state=failed&last=24h",
  );
  expect(link(/^Failed attempts\s*14.*more than 99% fewer/)).toContain("state=retrying%2Cfailed&last=24h");
  expect(link(/^Pending\s*2$/)).toBe("/deliveries?state=pending");
  find("img", "In the last 24 hours 3 attempts succeeded and 12 failed.");
  await click("1 hour", "radio");
  find("img", "In the last hour 3 attempts succeeded and 12 failed.");
  expect(calls.getHistory).toMatchObject([
    { hours: 24, buckets: 48 },
    { hours: 1, buckets: 60 },
  ]);
  sees("12 of 12", region("Most failed attempts"));
  sees("1.2 s", region("Slowest webhooks"));
});

test("the overview begins with the webhooks that are failing, unannounced, and leads to them", async () => {
  const lastError = "connection refused (ECONNREFUSED)";
  const failing = { health: WebhookHealth.FAILING, failingSince: ago(HOUR), lastError };
  await open("/", {
    ...webhooks(aWebhook(failing), aWebhook({ ...failing, id: 8n, lastError: "HTTP status 503" })),
    ...told({ failingWebhooks: 2n, degradedWebhooks: 1n, failed: 1n }),
  });
  const notice = find("note", /./, find("main"));
  for (const words of ["2 webhooks are failing", "Connection refused (ECONNREFUSED)", "HTTP status 503"])
    sees(words, notice);
  const announced = [...document.querySelectorAll("[role=alert], [role=status], [aria-live]")];
  expect(announced.map((each) => text(each)).join()).not.toContain("failing");
  expect(link("2 webhooks are failing")).toBe("/webhooks?health=failing");
  expect(link("1 webhook is degraded")).toBe("/webhooks?health=degraded");
});

test("the overview says which parts of the service deliveries wait for, and what to change", async () => {
  await open("/", told({ bottlenecks: [Bottleneck.DATABASE, Bottleneck.LIMIT], pending: 9n }));
  for (const cause of ["database", "limit"] as const) {
    const { problem, remedy } = BOTTLENECKS[cause];
    sees(remedy, find("note", problem, find("main")));
  }
  seesNot(BOTTLENECKS.thread.problem);
});

test("the first steps are shown until an event was delivered, and the dispatch runs on request", async () => {
  for (const [registered, log, words] of [
    [[], [], "Nothing is registered here yet."],
    [[aWebhook()], [], "Nothing has been sent yet."],
  ] as const) {
    await open("/", { ...webhooks(...registered), ...deliveries(...log) });
    sees(words, region("First steps"));
  }
  sees("YOUR_API_KEY", region("Command that publishes an event"));
  const { calls } = await open("/", { ...webhooks(aWebhook()), ...deliveries(aDelivery()) });
  expect(all("region", "First steps")).toEqual([]);
  expect(calls.listDispatchRuns).toEqual([]);
  await click("Show");
  sees("None yet.", region("Last dispatch runs"));
});

test("the overview says that its figures are not live while nothing arrives, and recovers without a reload", async () => {
  const NOT_LIVE = "The figures are not live at the moment";
  const { answers } = await open("/", {
    watchOverview: () => {
      throw new DomainError("UNAVAILABLE", "the service starts");
    },
  });
  sees(NOT_LIVE);
  Object.assign(answers, told({ pending: 3n }));
  await later(5 * SECOND);
  seesNot(NOT_LIVE);
  sees("Pending3");
  answers.watchOverview = [];
  await later(MINUTE + SECOND);
  sees(NOT_LIVE);
  sees("Pending3");
  Object.assign(answers, told({ pending: 4n }));
  await later(MINUTE + 5 * SECOND);
  seesNot(NOT_LIVE);
  sees("Pending4");
});
