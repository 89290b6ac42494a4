import { type Client, createClient } from "@connectrpc/connect";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
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
    { webhookId, state: "failed", created: new Date(Date.now() - 3_600_000), attempts: 4 },
  ]);
  for (let n = 0; n < 60; n++) await web.service.webhooks.getWebhookSecret({ webhookId });
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
  web.visit({ path: "/deliveries" }, async (page) => {
    await page.clock.install();
    await page.reload();
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
  web.visit({ path: "/webhooks" }, async (page) => {
    await page.clock.install();
    await page.reload();
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
  await web.visit({ path: "/replays" }, async (page) => {
    await page.clock.install();
    await page.reload();
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
