import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { aDelivery, ago, aKey, aWebhook, deliveries, HOUR, SECOND, TOO_MANY, webhooks } from "./answers.ts";
import { type Answers, all, click, find, goTo, later, open, sees, seesNot, text } from "./page.tsx";

const REFUSED = "Too many calls.";
/** The longest interval between refreshes. */
const REFRESH = 30 * SECOND;
const anEntry = (n: number) => ({ id: String(n), time: ago(n * HOUR), targetName: `App ${n}` });
const OF_ONE = { ...webhooks(aWebhook()), ...deliveries(aDelivery()) };

test("a list stays when a refresh fails, says so, and is refreshed by itself", async () => {
  const { answers } = await open("/apps", {
    ...OF_ONE,
    listApiKeys: { apiKeys: [aKey()] },
    listInstalledApps: { installedApps: [{ id: "a", name: "Scale" }] },
    listAuditEntries: { entries: [anEntry(1)] },
    listReplays: { replays: [{ id: "r", state: ReplayState.RUNNING }] },
  });
  for (const [at, method, shown] of [
    ["/apps", "listInstalledApps", "Scale"],
    ["/keys", "listApiKeys", "Shop"],
    ["/audit", "listAuditEntries", "App 1"],
    ["/webhooks", "searchWebhooks", "shop.example/hooks"],
    ["/deliveries", "listDeliveries", "shop.example/hooks"],
    ["/replays", "listReplays", "Running"],
  ] as const) {
    await goTo(at);
    sees(shown, find("main"));
    seesNot(REFUSED);
    const answer = answers[method];
    answers[method] = TOO_MANY;
    await later(REFRESH);
    sees(REFUSED);
    sees(shown, find("main"));
    Object.assign(answers, { [method]: answer });
    await later(REFRESH);
    seesNot(REFUSED);
    sees(shown, find("main"));
  }
});

const NOTICE = /Not refreshed since .*Too many calls\./;
/** Moves the page's clock until so many notices are shown. */
async function laterNotices(count: number): Promise<void> {
  const shown = () => all("status").filter((each) => NOTICE.test(text(each))).length;
  for (let refreshes = 0; refreshes < 4 && shown() !== count; refreshes++) await later(REFRESH);
  expect(shown()).toBe(count);
}

test.each([
  ["/", ["listIncidents", "getHistory", "listDispatchRuns"], 3],
  ["/webhooks/7", ["getWebhook", "getWebhookStats", "listWebhookHistory", "listDeliveries"], 4],
] as [string, (keyof Answers)[], number][])(
  "the figures at %s stay when a refresh fails, with a notice of their time until one succeeds",
  async (path, methods, count) => {
    const service = await open(path, {
      ...OF_ONE,
      getHistory: { buckets: [{ attempts: 1n }] },
      getWebhookStats: { periods: [{ hours: 168, attempts: 1n, delivered: 1n }] },
      listWebhookHistory: { webhooks: [{ webhookId: 7n, attempts: 1n }], intervalSeconds: 1_800 },
      listDispatchRuns: {},
    });
    if (path === "/") await click("Show");
    const figures = all("img").length;
    const before = Object.fromEntries(methods.map((method) => [method, service.answers[method]]));
    Object.assign(service.answers, Object.fromEntries(methods.map((method) => [method, TOO_MANY])));
    await laterNotices(count);
    expect(all("img").length).toBeGreaterThanOrEqual(figures);
    Object.assign(service.answers, before);
    await laterNotices(0);
  },
);

test("entries of the audit log are still shown when older ones cannot be read, and these follow on demand", async () => {
  const page = (from: number) => Array.from({ length: 50 }, (_, n) => anEntry(from + n));
  const { answers } = await open("/audit", {
    listAuditEntries: { entries: page(1), nextPageToken: "older" },
  });
  sees("50 entries shown");
  answers.listAuditEntries = TOO_MANY;
  await click("Show more");
  sees(REFUSED);
  sees("50 entries shown");
  answers.listAuditEntries = { entries: [anEntry(51)] };
  await click("Show more");
  sees("51 entries");
  seesNot(REFUSED);
});

/** What a proxy answers in place of the service. */
const NOT_REACHED = new ConnectError("HTTP 502", Code.Unavailable);

test("while the service is away, one notice says so, and it goes as soon as the service answers again", async () => {
  const { answers } = await open("/webhooks/7", OF_ONE);
  const before = { ...answers };
  const answer = Object.fromEntries(
    [
      "getSession",
      "getWebhook",
      "getWebhookStats",
      "listWebhookHistory",
      "listDeliveries",
      "pauseWebhook",
    ].map((method) => [method, NOT_REACHED]),
  );
  Object.assign(answers, answer);
  await later(REFRESH);
  const notices = () => all("alert").filter((each) => /does not answer|Not refreshed/.test(text(each)));
  expect(notices()).toHaveLength(1);
  await click("Pause");
  sees("shop.example/hooks was not paused: the service is not available");
  Object.assign(answers, {
    ...Object.fromEntries(Object.keys(answer).map((method) => [method, undefined])),
    ...before,
  });
  await later(3 * SECOND);
  seesNot("does not answer");
  sees("shop.example/hooks was not paused: the service did not answer");
});
