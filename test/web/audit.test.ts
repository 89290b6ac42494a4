import { afterAll, beforeAll, expect, test } from "vitest";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
let webhookId: bigint;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
  const { webhooks } = web.service;
  const created = await webhooks.createWebhook({ process: 1, url: "https://receiver.example/audited" });
  webhookId = created.webhook?.id as bigint;
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 5 });
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 25 });
  for (let n = 0; n < 60; n++) await webhooks.getWebhookSecret({ webhookId });
  await webhooks.pauseWebhook({ webhookId });
});
afterAll(() => web?.stop());

test("the audit log shows who changed what with the value before and after, and leads to the webhook", () =>
  web.visit({ path: `/audit?target=${webhookId}&action=webhook-updated` }, async (page) => {
    const change = page.getByRole("row", { name: /rate limit: 5 → 25/ });
    await change.waitFor();
    expect(await change.textContent()).toContain("API call from 127.0.0.1");
    await page.getByRole("row", { name: /rate limit: 5$/ }).waitFor();
    await expect.poll(() => page.getByRole("row").count()).toBe(3);
    await expectAccessible(page);
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
    expect(new URL(page.url()).search).toBe("?action=webhook-paused");
    await page.getByRole("searchbox", { name: "Id of what was changed" }).fill("4711");
    await page.getByText("No entry matches").waitFor();
    await page.getByRole("button", { name: "Clear the filters" }).click();
    // What was read before is still there.
    await page.getByText(/^\d\d entries$/).waitFor();
    await expectFitsPhone(page);
  }));
