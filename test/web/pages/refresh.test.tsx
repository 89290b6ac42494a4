import { expect, test } from "vitest";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { aDelivery, ago, aKey, aWebhook, deliveries, HOUR, SECOND, TOO_MANY, webhooks } from "./answers.ts";
import {
  type Answers,
  all,
  click,
  expectFocus,
  fill,
  find,
  later,
  open,
  sees,
  seesNot,
  text,
  value,
} from "./page.tsx";

const REFUSED = "Too many calls.";
/** The longest interval between refreshes. */
const REFRESH = 30 * SECOND;
const anEntry = (n: number) => ({ id: String(n), time: ago(n * HOUR), targetName: `App ${n}` });
const OF_ONE = { ...webhooks(aWebhook()), ...deliveries(aDelivery()) };

test.each([
  ["/keys", "listApiKeys", { listApiKeys: { apiKeys: [aKey()] } }, "Shop"],
  [
    "/apps",
    "listInstalledApps",
    { listInstalledApps: { installedApps: [{ id: "a", name: "Scale" }] } },
    "Scale",
  ],
  ["/audit", "listAuditEntries", { listAuditEntries: { entries: [anEntry(1)] } }, "App 1"],
  ["/webhooks", "listWebhooks", OF_ONE, "shop.example/hooks"],
  ["/deliveries", "listDeliveries", OF_ONE, "shop.example/hooks"],
  [
    "/replays",
    "listReplays",
    { listReplays: { replays: [{ id: "r", state: ReplayState.RUNNING }] } },
    "Running",
  ],
] as [string, keyof Answers, Answers, string][])(
  "the list at %s stays when a refresh fails, says so, and is refreshed by itself",
  async (path, method, answers, shown) => {
    const service = await open(path, answers);
    sees(shown, find("main"));
    seesNot(REFUSED);
    const answer = service.answers[method];
    Object.assign(service.answers, { [method]: TOO_MANY });
    await later(REFRESH);
    sees(REFUSED);
    sees(shown, find("main"));
    Object.assign(service.answers, { [method]: answer });
    await later(REFRESH);
    seesNot(REFUSED);
    sees(shown, find("main"));
  },
);

const NOTICE = /Not refreshed since .*Too many calls\./;
/** Moves the page's clock until so many notices are shown. */
async function laterNotices(count: number): Promise<void> {
  const shown = () => all("status").filter((each) => NOTICE.test(text(each))).length;
  for (let refreshes = 0; refreshes < 4 && shown() !== count; refreshes++) await later(REFRESH);
  expect(shown()).toBe(count);
}

test.each([
  ["/", ["getHistory", "listWebhookStats", "listDispatchRuns"], 4],
  ["/webhooks/7", ["getWebhook", "getWebhookStats", "listWebhookHistory", "listDeliveries"], 4],
] as [string, (keyof Answers)[], number][])(
  "the figures at %s stay when a refresh fails, with a notice of their time until one succeeds",
  async (path, methods, count) => {
    const service = await open(path, {
      ...OF_ONE,
      getHistory: { buckets: [{ attempts: 1n }] },
      listWebhookStats: { webhooks: [{ webhookId: 7n, attempts: 1n, failedAttempts: 1n }] },
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

test("the search of the webhooks keeps its text and the focus when a refresh fails", async () => {
  const { answers } = await open("/webhooks", OF_ONE);
  find("searchbox").focus();
  await fill("Search webhooks", "shop");
  answers.listWebhooks = TOO_MANY;
  await later(REFRESH);
  sees(REFUSED);
  expectFocus(find("searchbox"));
  expect(value("Search webhooks")).toBe("shop");
});

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

test("the alert about new deliveries that cannot be counted stays while the page tries again, and goes when it can", async () => {
  let refused = true;
  const { calls } = await open("/deliveries", {
    ...OF_ONE,
    listDeliveries: ({ pageToken }) => {
      if (pageToken === "anchor" && refused) throw TOO_MANY;
      return { deliveries: pageToken ? [] : [aDelivery()], previousPageToken: "anchor" };
    },
  });
  await later(4 * SECOND);
  sees(REFUSED);
  const before = calls.listDeliveries.length;
  let gaps = 0;
  const observer = new MutationObserver(() => {
    if (!document.querySelector("[role=alert]")) gaps++;
  });
  observer.observe(document.body, { childList: true, subtree: true });
  await later(20 * SECOND);
  observer.disconnect();
  expect(calls.listDeliveries.length).toBeGreaterThan(before + 2);
  expect(gaps).toBe(0);
  seesNot("Kept up to date");
  refused = false;
  await later(8 * SECOND);
  seesNot(REFUSED);
  sees("Kept up to date");
});
