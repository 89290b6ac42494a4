import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { keyedTransport } from "../support/test-service.ts";
import { SCREENS } from "./browser.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
let webhookId: bigint;
/** A key that changed the webhook and was removed. */
let removed: string;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
  const { webhooks } = web.service;
  const created = await webhooks.createWebhook({ process: 1, url: "https://receiver.example/audited" });
  webhookId = created.webhook?.id as bigint;
  const { keys, grpcPort } = web.service;
  const { apiKey, secret } = await keys.createApiKey({
    name: "Removed",
    permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
  });
  removed = apiKey?.id as string;
  const asRemoved = createClient(WebhookService, keyedTransport(grpcPort, secret));
  await asRemoved.setWebhookRateLimit({ webhookId, rateLimit: 5 });
  await asRemoved.setWebhookRateLimit({ webhookId, rateLimit: 25 });
  await keys.revokeApiKey({ apiKeyId: removed, webhooks: { case: "deleteWebhooks", value: {} } });
  await keys.deleteApiKey({ apiKeyId: removed });
  for (let n = 0; n < 60; n++) await webhooks.getWebhookSecret({ webhookId });
  await webhooks.pauseWebhook({ webhookId });
});
afterAll(() => web?.stop());

test("the audit log shows who changed what with the value before and after, and leads to the webhook", () =>
  web.visit({ path: `/audit?target=${webhookId}&action=webhook-updated&key=${removed}` }, async (page) => {
    const change = page.getByRole("row", { name: /rate limit: 5 → 25/ });
    await change.waitFor();
    expect(await change.textContent()).toContain("API call from 127.0.0.1");
    await page.getByRole("row", { name: /rate limit: 5$/ }).waitFor();
    await expect.poll(() => page.getByRole("row").count()).toBe(3);
    const key = page.getByRole("combobox", { name: "Changed with" });
    await expect.poll(() => key.inputValue()).toBe(`Key ${removed}`);
    await expectAccessible(page);
    await page.getByLabel("Any API key").click();
    await expect.poll(() => key.inputValue()).toBe("");
    expect(new URL(page.url()).searchParams.has("key")).toBe(false);
    await change.getByRole("link").click();
    await page.getByRole("heading", { level: 1, name: /receiver\.example/ }).waitFor();
  }));

test("what is changed on the page is in the audit log with its session, and older entries follow on demand", () =>
  web.visit({ path: "/apps" }, async (page) => {
    await page.getByRole("button", { name: "New app" }).click();
    await page.getByRole("dialog").getByLabel("Name").fill("Stock planner");
    await page.keyboard.press("Enter");
    await page.getByRole("row", { name: /Stock planner/ }).waitFor();
    await page.getByRole("link", { name: "Audit log" }).click();
    const created = page.getByRole("row", { name: /App created.*Stock planner/ });
    await created.waitFor();
    expect(await created.textContent()).toMatch(/Settings page, session [0-9a-f]{8} from (127\.0\.0\.1|::1)/);
    await page.getByText("50 entries shown").waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "audit");
    await page.getByRole("button", { name: "Show more" }).click();
    await page.getByRole("row", { name: /Webhook created/ }).waitFor();
    await page.getByRole("combobox", { name: "Action" }).click();
    await page.getByRole("option", { name: "Webhook paused" }).click();
    await page.getByText("1 entry", { exact: true }).waitFor();
    // In the zone of the page, as all other times.
    await page
      .locator("ins time")
      .filter({ hasText: /CET|CEST|GMT\+[12]/ })
      .waitFor();
    expect(new URL(page.url()).search).toBe("?action=webhook-paused");
    await page.getByRole("searchbox", { name: "Id of what was changed" }).fill("4711");
    await page.getByText("No entry matches").waitFor();
    await page.getByRole("button", { name: "Clear the filters" }).click();
    // What was read before is still there.
    await page.getByText(/^\d\d entries$/).waitFor();
    await expectFitsPhone(page);
  }));

const LONG_URL =
  "https://integrations.shop-with-a-long-name.example/tenants/4d1f4d1f4d1f4d1f4d1f4d1f4d1f4d1f/hooks/stock-levels?source=warehouse";
/** Texts of new values that are on more than one line. Run in the page. */
const BROKEN = `[...document.querySelectorAll("ins")].flatMap(({ childNodes }) => [...childNodes].filter((node) => {
  const range = document.createRange();
  range.selectNode(node);
  return range.getClientRects().length > 1;
}).map(({ textContent }) => textContent))`;

test("on a phone, long URLs break between their parts", async () => {
  const id = await web.service.register(LONG_URL);
  await web.visit({ path: `/audit?target=${id}` }, async (page) => {
    await page.setViewportSize(SCREENS.narrow);
    await page.getByRole("listitem").filter({ hasText: "api key id" }).last().waitFor();
    expect(await page.locator("ins").first().textContent()).toBe(LONG_URL);
    expect(await page.evaluate(BROKEN)).toEqual([]);
  });
});
