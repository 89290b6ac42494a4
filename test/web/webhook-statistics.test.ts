import { createClient } from "@connectrpc/connect";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { CHANGE } from "../../src/db/deliveries/rollup-deltas.ts";
import { durationInWords } from "../../web/src/parts/text/duration.ts";
import { tabTo } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
/** The longest delay before the page tries a call again. */
const RETRY_MS = 2_000;
/** Results that one statement records. */
const BATCH = 200;

let web: Web;
let webhookId: bigint;
let untouchedId: bigint;
beforeAll(async () => {
  web = await startWeb({ DISPATCH_INTERVAL: "24h" });
  webhookId = await web.service.register("https://127.0.0.1/orders");
  untouchedId = await web.service.register("https://127.0.0.1/stock", { process: 3 });
  const { delivered, failed, retrying } = CHANGE;
  await Promise.all([
    happened(webhookId, MINUTE, 40, [delivered, 3], [failed, 1], [retrying, 3]),
    // Few enough that p50 and p95 differ.
    happened(webhookId, MINUTE, 900, [retrying, 1]),
    happened(webhookId, 5 * HOUR, 90, [delivered, 1_996]),
    happened(webhookId, 75 * HOUR, 2_400, [delivered, 8_000]),
  ]);
});
afterAll(() => web?.stop());

/** Stores what attempts changed, in batches as recording their results does. */
async function happened(
  id: bigint,
  agoMs: number,
  durationMs: number,
  ...outcomes: [change: number, count: number][]
) {
  const minute = new Date(Math.floor((Date.now() - agoMs) / MINUTE) * MINUTE);
  const all = outcomes.flatMap(([change, count]) => Array<number>(count).fill(change));
  const batches = Array.from({ length: Math.ceil(all.length / BATCH) }, (_, n) =>
    all.slice(n * BATCH, (n + 1) * BATCH),
  );
  await web.service.db("rollup_deltas").insert(
    batches.map((changes) => ({
      minute,
      webhook_ids: changes.map(() => String(id)),
      changes,
      durations_ms: changes.map(() => durationMs),
    })),
  );
  // Latencies are told once they are folded.
  await vi.waitUntil(
    async () => (await web.service.db("rollup_deltas").select("minute")).length === 0,
    20_000,
  );
}

const statistics = (page: Page) => page.getByRole("table", { name: "Statistics by period" });

/** What a row shows for each period. */
function row(page: Page, name: string): Promise<string[]> {
  const found = statistics(page)
    .getByRole("row")
    .filter({ has: page.getByRole("rowheader", { name, exact: true }) });
  return found.getByRole("cell").allTextContents();
}

test("a webhook's page shows its success, deliveries, attempts and latency of an hour, a day and a week", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await statistics(page).waitFor();
    expect(await statistics(page).getByRole("columnheader").allTextContents()).toEqual([
      "1 hour",
      "24 hours",
      "7 days",
    ]);
    // The rates are rounded down, and told to who cannot see the rings.
    expect(await row(page, "Success rate")).toEqual(["75%", "99.9%", "99.9%"]);
    await statistics(page).getByRole("img", { name: "75% delivered" }).waitFor();
    expect(await row(page, "Delivered")).toEqual(["3", "1,999", "9,999"]);
    expect(await row(page, "Failed")).toEqual(["1", "1", "1"]);
    expect(await row(page, "Attempts")).toEqual(["8", "2,004", "10,004"]);
    expect(await row(page, "Failed attempts")).toEqual(["5", "5", "5"]);
    const { periods } = await createClient(StatsService, web.service.transport).getWebhookStats({
      webhookId,
    });
    const inWords = (latencies: (number | undefined)[]) =>
      latencies.map((ms) => durationInWords(ms as number));
    expect(periods[0]?.latencyP95Ms).toBeGreaterThan(periods[0]?.latencyP50Ms as number);
    expect(await row(page, "Latency p50")).toEqual(inWords(periods.map((each) => each.latencyP50Ms)));
    expect(await row(page, "Latency p95")).toEqual(inWords(periods.map((each) => each.latencyP95Ms)));
    await takeScreenshots(page, "webhook-statistics");
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));

test("attempts by outcome and latency are charted over a chosen period, and lead to the deliveries of an interval", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Attempts", exact: true });
    await section
      .getByRole("img", { name: /^2,00\d attempts in the last 24 hours, 5 failed; p50 / })
      .waitFor();
    await section.getByText("7 days").click();
    await section.getByRole("img", { name: /^10,004 attempts in the last 7 days, 5 failed/ }).waitFor();
    await section.getByText("1 hour").click();
    await section.getByRole("img", { name: /^8 attempts in the last hour, 5 failed/ }).waitFor();
    await takeScreenshots(page, "webhook-charts");
    await section.locator(".recharts-bar-rectangle path").last().click();
    await page.waitForURL(new RegExp(`/deliveries\\?webhook=${webhookId}&from=.*&to=`));
    await page.goBack();
    await section.getByRole("button", { name: "Show as a table" }).click();
    const table = section.getByRole("table", { name: "Attempts over time" });
    const link = table.getByRole("link", { name: "Deliveries" }).first();
    expect(await link.getAttribute("href")).toMatch(/^\/deliveries\?webhook=\d+&from=.*&to=/);
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));

test("each row of the list has its webhook's attempts, success rate and latency of a chosen period", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    await page.getByRole("img", { name: /^2,00\d attempts in the last 24 hours, 5 failed; p50 / }).waitFor();
    await page.getByText("1 hour", { exact: true }).click();
    const row = page
      .getByRole("row")
      .filter({ has: page.getByRole("img", { name: /^8 attempts in the last hour/ }) });
    await row.getByText(/^p95 /).waitFor();
    await row.getByTitle("37.5% of 8 attempts succeeded").waitFor();
    expect(new URL(page.url()).search).toBe("?period=1h");
    await takeScreenshots(page, "webhooks-charts");
    await expectAccessible(page);
  }));

test("a webhook without deliveries says so in place of figures", () =>
  web.visit({ path: `/webhooks/${untouchedId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Statistics" });
    await section.getByText("No deliveries in the last 7 days.").waitFor();
    expect(await statistics(page).count()).toBe(0);
    await expectAccessible(page);
  }));

test("a period without attempts shows dashes that are told in words", async () => {
  const quiet = await web.service.register("https://127.0.0.1/documents", { process: 2 });
  await happened(quiet, 75 * HOUR, 20, [CHANGE.delivered, 1]);
  await web.visit({ path: `/webhooks/${quiet}` }, async (page) => {
    await statistics(page).waitFor();
    expect(await row(page, "Success rate")).toEqual(["–", "–", "100%"]);
    await expect.poll(() => statistics(page).getByRole("img", { name: "No delivery ended" }).count()).toBe(2);
    await expect.poll(() => statistics(page).getByRole("img", { name: "No attempts" }).count()).toBe(4);
    await expectAccessible(page);
  });
});

test("statistics that cannot be read say why, and are tried again by keyboard", () =>
  web.visit({ path: "/webhooks", clock: true }, async (page) => {
    let refused = true;
    await page.route("**/GetWebhookStats**", (route) => (refused ? route.abort() : route.continue()));
    await page
      .getByRole("link", { name: /127\.0\.0\.1\/orders/ })
      .first()
      .click();
    const section = page.getByRole("region", { name: "Statistics" });
    // Once it has been tried three times.
    await expect
      .poll(async () => {
        await page.clock.fastForward(RETRY_MS);
        return section.getByRole("alert").count();
      })
      .toBeGreaterThan(0);
    await expectAccessible(page);
    refused = false;
    await tabTo(page, section.getByRole("button", { name: "Try again" }));
    await page.keyboard.press("Enter");
    await statistics(page).waitFor();
  }));
