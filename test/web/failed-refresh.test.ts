import { type Client, createClient } from "@connectrpc/connect";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { expectAccessible } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

/** The deadline of the page's unary calls. */
const TIMEOUT_MS = 60_000;
/** The longest interval between refreshes of a list. */
const REFRESH_MS = 30_000;

let web: Web;
let replays: Client<typeof ReplayService>;
let webhookId: bigint;
let deliveryId: string;

beforeAll(async () => {
  // Nothing is dispatched, so that a replay stays open.
  web = await startWeb({ DISPATCH_INTERVAL: "24h" });
  replays = createClient(ReplayService, web.service.transport);
  webhookId = await web.service.register("https://shop.example/hooks");
  [deliveryId = ""] = await storeDeliveries(web.service.db, [
    {
      webhookId,
      state: "failed",
      created: new Date(Date.now() - 3_600_000),
      tried: [{ status: 503, durationMs: 1_234 }],
    },
  ]);
  const read = () => web.service.webhooks.getWebhookSecret({ webhookId });
  await Promise.all(Array.from({ length: 60 }, read));
});
afterAll(() => web?.stop());

/** Has calls refused as by a limit, which the page does not retry. Returns what lets them pass again. */
async function refuse(page: Page, method: string): Promise<() => Promise<void>> {
  const url = `**/${method}`;
  await page.route(url, (route) =>
    route.fulfill({ status: 429, json: { code: "resource_exhausted", message: "too many calls" } }),
  );
  return () => page.unroute(url);
}

/** The notices of figures that are not refreshed. */
const noticesOf = (page: Page) =>
  page.getByRole("status").filter({ hasText: "Not refreshed since" }).filter({ hasText: "Too many calls." });

/** Moves the page's clock until so many notices are shown. */
async function fastForwardToNotices(page: Page, count: number): Promise<void> {
  await expect
    .poll(async () => {
      await page.clock.fastForward(REFRESH_MS);
      return noticesOf(page).count();
    })
    .toBe(count);
}

const failureOf = (page: Page) => page.getByRole("alert").getByText("Too many calls.");

/** Moves the page's clock until the failure is shown, or no longer shown. */
async function fastForwardUntil(page: Page, isShown: boolean): Promise<void> {
  await expect
    .poll(async () => {
      await page.clock.fastForward(REFRESH_MS);
      return (await failureOf(page).count()) > 0;
    })
    .toBe(isShown);
}

test("an export survives a failed refresh of the list behind it, Escape and a click beside it", () =>
  web.visit({ path: "/deliveries", clock: true }, async (page) => {
    await page.getByRole("checkbox", { name: `Select delivery ${deliveryId}` }).check();
    await page.getByRole("button", { name: "Export…" }).click();
    const dialog = page.getByRole("dialog", { name: "Export, or search payloads" });
    const held = Promise.withResolvers<void>();
    await page.route("**/ExportDeliveries", (route) => held.promise.then(() => route.continue()));
    const started = page.waitForRequest("**/ExportDeliveries");
    await dialog.getByRole("button", { name: "Export", exact: true }).click();
    await started;
    const admit = await refuse(page, "ListDeliveries");
    await fastForwardUntil(page, true);
    await page.keyboard.press("Escape");
    await page.mouse.click(5, 5);
    // Exports have no deadline.
    await page.clock.fastForward(TIMEOUT_MS);
    await dialog.getByRole("button", { name: "Stop" }).waitFor();
    const downloading = page.waitForEvent("download");
    held.resolve();
    await downloading;
    await dialog.getByText(/^1 delivery\. Saved as deliveries-/).waitFor();
    await admit();
    await fastForwardUntil(page, false);
    await dialog.getByRole("button", { name: "Close", exact: true }).last().click();
    await page.getByText("1 selected").waitFor();
  }));

test("the search of the webhooks keeps its text and the focus when a refresh fails", () =>
  web.visit({ path: "/webhooks", clock: true }, async (page) => {
    const search = page.getByRole("searchbox", { name: "Search" });
    await search.fill("shop");
    const admit = await refuse(page, "ListWebhooks");
    await fastForwardUntil(page, true);
    expect(await search.and(page.locator(":focus")).inputValue()).toBe("shop");
    await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
    await admit();
    await fastForwardUntil(page, false);
  }));

test("replays are still shown when a refresh fails", async () => {
  const { replay } = await replays.startReplay({ what: { case: "resend", value: { webhookId } } });
  await web.visit({ path: "/replays", clock: true }, async (page) => {
    const card = page.getByRole("listitem", { name: "Failed deliveries" });
    await card.waitFor();
    const admit = await refuse(page, "ListReplays");
    await fastForwardUntil(page, true);
    expect(await card.count()).toBe(1);
    await admit();
    await fastForwardUntil(page, false);
  });
  await replays.cancelReplay({ replayId: replay?.id as string }).catch(() => {});
});

test("entries of the audit log are still shown when older ones cannot be read, and these follow on demand", () =>
  web.visit({ path: "/audit" }, async (page) => {
    await page.getByText("50 entries shown").waitFor();
    const admit = await refuse(page, "ListAuditEntries");
    await page.getByRole("button", { name: "Show more" }).click();
    await failureOf(page).waitFor();
    await page.getByText("50 entries shown").waitFor();
    await admit();
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByText(/^6\d entries$/).waitFor();
    expect(await failureOf(page).count()).toBe(0);
  }));

test("the figures of the overview stay when a refresh fails, with a notice of their time until one succeeds", () =>
  web.visit({ path: "/", clock: true }, async (page) => {
    const runs = page.getByRole("region", { name: "Last dispatch runs" });
    await runs.getByRole("button", { name: "Show" }).click();
    const figures = [
      page.getByRole("img", { name: /^In the last 24 hours \d+ attempts succeeded and 1 failed/ }),
      page.getByRole("region", { name: "Most failed attempts" }).getByText("1 of 1"),
      page.getByRole("region", { name: "Slowest webhooks" }).getByText("1.2 s").first(),
      runs.getByText(/^None yet\./),
    ];
    for (const each of figures) await each.waitFor();
    const admitted = await Promise.all(
      ["GetHistory", "ListWebhookStats", "ListDispatchRuns"].map((method) => refuse(page, method)),
    );
    await fastForwardToNotices(page, figures.length);
    for (const each of figures) expect(await each.count()).toBe(1);
    await expectAccessible(page);
    for (const admit of admitted) await admit();
    await fastForwardToNotices(page, 0);
    for (const each of figures) expect(await each.count()).toBe(1);
  }));

test("a webhook and its statistics, charts and deliveries say when they are old", () =>
  web.visit({ path: `/webhooks/${webhookId}`, clock: true }, async (page) => {
    const deliveries = page.getByRole("region", { name: "Last deliveries" });
    const ofOne = deliveries.locator(`a[href="/deliveries/${deliveryId}"]`);
    await ofOne.waitFor();
    await page.getByRole("table", { name: "Statistics by period" }).waitFor();
    await page.getByRole("region", { name: "Attempts", exact: true }).getByRole("img").first().waitFor();
    const admitted = await Promise.all(
      ["GetWebhook", "GetWebhookStats", "ListWebhookHistory", "ListDeliveries"].map((method) =>
        refuse(page, method),
      ),
    );
    await fastForwardToNotices(page, 4);
    expect(await ofOne.count()).toBe(1);
    for (const admit of admitted) await admit();
    await fastForwardToNotices(page, 0);
  }));

test.each([
  {
    path: "/keys",
    method: "ListApiKeys",
    create: (name: string) =>
      web.service.keys.createApiKey({ name, permissions: [Permission.PUBLISH_EVENTS] }),
  },
  {
    path: "/apps",
    method: "ListInstalledApps",
    create: (name: string) => web.service.keys.createInstalledApp({ name }),
  },
  {
    path: "/audit",
    method: "ListAuditEntries",
    create: (name: string) => web.service.keys.createInstalledApp({ name }),
  },
])(
  "the list at $path stays when a refresh fails, and shows by itself what was created meanwhile",
  async ({ path, method, create }) => {
    await create("Created before");
    await web.visit({ path, clock: true }, async (page) => {
      const row = (text: string) => page.getByRole("row").filter({ hasText: text });
      await row("Created before").first().waitFor();
      const admit = await refuse(page, method);
      await fastForwardUntil(page, true);
      expect(await row("Created before").count()).toBeGreaterThan(0);
      await create("Created meanwhile");
      await admit();
      await fastForwardUntil(page, false);
      await row("Created meanwhile").first().waitFor();
    });
  },
);

/** The interval at which new deliveries are counted. */
const COUNT_MS = 4_000;
/** The page size of the request that counts new deliveries. */
const MAX_ARRIVED = 100;
/** Counts the moments without an alert. Run in the page. */
const COUNT_GAPS = `window.gaps = 0;
  new MutationObserver(() => {
    if (!document.querySelector("[role=alert]")) window.gaps += 1;
  }).observe(document.body, { childList: true, subtree: true });`;

test("the alert about new deliveries that cannot be counted stays while the page tries again, and goes when it can", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    await page.clock.install();
    let refusals = 0;
    await page.route("**/ListDeliveries", (route) => {
      if (route.request().postDataJSON().pageSize !== MAX_ARRIVED) return route.continue();
      refusals += 1;
      return route.fulfill({ status: 429, json: { code: "resource_exhausted", message: "too many calls" } });
    });
    await page.goto("/deliveries");
    await failureOf(page).waitFor();
    await page.evaluate(COUNT_GAPS);
    const before = refusals;
    await expect
      .poll(async () => {
        await page.clock.fastForward(COUNT_MS);
        return refusals;
      })
      .toBeGreaterThan(before + 2);
    await failureOf(page).waitFor();
    expect(await page.evaluate("window.gaps")).toBe(0);
    expect(await page.getByText("Kept up to date").count()).toBe(0);
    await page.unroute("**/ListDeliveries");
    await fastForwardUntil(page, false);
    await page.getByText("Kept up to date").waitFor();
  }));
