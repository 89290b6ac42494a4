import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { CircuitBreakerState } from "../../gen/webhook/v1/webhook_pb.ts";
import { decideBreakers } from "../../src/db/circuit-breaker/decide.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { announced, expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb();
});
afterAll(() => web?.stop());

/** Opens the breaker of a webhook, as failed attempts would. */
async function open(webhookId: bigint): Promise<void> {
  const { db } = web.service;
  await db.raw(
    `update webhook_breakers set failures = 12, failing_since = now() - interval '31 minutes', due = now()
      where webhook_id = ?`,
    [String(webhookId)],
  );
  // Maintenance of the service may do it first.
  await decideBreakers(db, 30);
  const state = async () =>
    (await web.service.webhooks.getWebhook({ webhookId })).webhook?.circuitBreaker?.state;
  await expect.poll(state).toBe(CircuitBreakerState.OPEN);
}

test("a circuit breaker is switched on with its thresholds, shows its state, and lets what waits go at a click", async () => {
  const receiver = await web.service.receiver();
  const webhookId = await web.service.register(`${receiver.url}/hooks`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Circuit breaker" });
    await section.getByText(/^Off: every delivery/).waitFor();
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Use a circuit breaker").check({ force: true });
    await dialog.getByLabel("First probe after, in seconds").fill("300");
    await dialog.getByLabel("Failed attempts in a row").fill("4");
    await dialog.getByLabel("Disable on 410 Gone").check();
    await expectAccessible(page);
    await takeScreenshots(page, "circuit-breaker-settings");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("after 4 failed attempts over 30 minutes").waitFor();
    await section.getByText("after 5 days without success, and on 410 Gone").waitFor();
    await section.getByText("first after 5 minutes, then up to 5 minutes apart").waitFor();

    await open(webhookId);
    await page.reload();
    const notice = page.getByRole("note").filter({ hasText: "Circuit breaker open" });
    await notice.getByText(/12 attempts in a row have failed, over 31 minutes/).waitFor();
    await section.getByText(/^Open, since/).waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "circuit-breaker-open");
    await expectFitsPhone(page);
    await page.goto(`/webhooks?state=open`);
    await page.getByTitle(/held back: 12 attempts/).waitFor();
    await page.getByText("/hooks").first().waitFor();
    await page.goto(`/webhooks/${webhookId}`);
    await notice.getByRole("button", { name: "Send all now" }).click();
    await section.getByText(/^Closed, since/).waitFor();
    expect(await notice.count()).toBe(0);
    await page.goto(`/audit?target=${webhookId}`);
    await page.getByText("Circuit breaker opened").first().waitFor();
    await page.getByText("The service", { exact: true }).first().waitFor();
  });
});

test("0 and Enter in a threshold of a circuit breaker is refused, and saves nothing", async () => {
  const webhookId = await web.service.register("https://thresholds.example/hooks");
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Circuit breaker" });
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("Use a circuit breaker").check({ force: true });
    const failures = dialog.getByLabel("Failed attempts in a row");
    await failures.fill("0");
    await failures.press("Enter");
    await dialog.getByText("From 1. Leave it empty for the default.").waitFor();
    await failures.fill("7");
    await failures.press("Enter");
    await section.getByText("after 7 failed attempts over 30 minutes").waitFor();
  });
});

test("notices of an open circuit breaker and of a pause, whose counts change by themselves, are not announced each time", async () => {
  const { service } = web;
  const webhookId = await service.register("https://unannounced.example/hooks");
  await service.webhooks.updateWebhook({ webhookId, circuitBreaker: { enabled: true } });
  await open(webhookId);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const notice = page.getByText(/^Its deliveries have been held back since/);
    const announcedNotice = announced(page).filter({ has: notice });
    await notice.filter({ hasText: "One is sent as a probe" }).waitFor();
    expect(await announcedNotice.count()).toBe(0);
    await service.webhooks.pauseWebhook({ webhookId });
    await page.reload();
    await notice.filter({ hasText: "When it is resumed" }).waitFor();
    expect(await announcedNotice.count()).toBe(0);
  });
});

test("an open circuit breaker whose probe is due says so, and not how long ago that was", async () => {
  const { service } = web;
  const webhookId = await service.register("https://probed.example/hooks");
  const circuitBreaker = { enabled: true, probeSeconds: 300 };
  await service.webhooks.updateWebhook({ webhookId, circuitBreaker });
  await open(webhookId);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Circuit breaker" });
    const notice = page.getByRole("note").filter({ hasText: "Circuit breaker open" });
    await notice.getByText(/One is sent as a probe in \d+ minutes?; if it succeeds/).waitFor();
    await section.getByText(/^in \d+ minutes?$/).waitFor();
    // While a probe is sent, the time that was planned for it stays, and `due` is in the future.
    await service.db.raw(
      `update webhook_breakers set next_probe = now() - interval '2 minutes', due = now() + interval '1 hour'
        where webhook_id = ?`,
      [String(webhookId)],
    );
    await page.reload();
    await notice.getByText("A probe is under way or about to be sent; if it succeeds").waitFor();
    await section.getByText("under way or about to be sent").waitFor();
    expect(await page.getByText("2 minutes ago").count()).toBe(0);
  });
});

test("a circuit breaker can be chosen for a new webhook, with its default thresholds", () =>
  web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("checkbox", { name: "DocumentCreated" }).check();
    await dialog.getByRole("textbox", { name: "URL" }).fill("https://breaker.example/hooks");
    await dialog.getByLabel("Use a circuit breaker").check({ force: true });
    await expectAccessible(page);
    await dialog.getByRole("button", { name: "Register webhook" }).click();
    await page.getByRole("heading", { name: "breaker.example/hooks" }).waitFor();
    const section = page.getByRole("region", { name: "Circuit breaker" });
    await section.getByText("after 10 failed attempts over 30 minutes").waitFor();
  }));

test("a delivery that waits says for what: its circuit breaker with the next probe, or that the webhook is paused", async () => {
  const { service } = web;
  const webhookId = await service.register("https://waiting.example/hooks");
  await service.webhooks.updateWebhook({
    webhookId,
    circuitBreaker: { enabled: true, failures: 4, probeSeconds: 300 },
  });
  await open(webhookId);
  const [retrying = "", pending = ""] = await storeDeliveries(service.db, [
    {
      webhookId,
      state: "retrying",
      tried: [{ durationMs: 5_000, error: "connection timed out (ETIMEDOUT)" }],
      retryAt: new Date(Date.now() + 300_000),
    },
    { webhookId, state: "pending" },
  ]);
  const inSummary = (page: Page) => page.getByRole("region", { name: "Summary", exact: true });
  const next = (page: Page) =>
    page.getByRole("region", { name: "Attempts", exact: true }).getByRole("listitem").first();
  await web.visit({ path: `/deliveries/${retrying}` }, async (page) => {
    const waits = /Waits for the circuit breaker; next probe in [0-5]:\d\d\./;
    await inSummary(page).getByText(waits).waitFor();
    expect(await next(page).textContent()).toMatch(waits);
    await expectAccessible(page);
    await page.goto(`/deliveries/${pending}`);
    await inSummary(page).getByText(waits).waitFor();
    await service.webhooks.pauseWebhook({ webhookId });
    await page.reload();
    await inSummary(page).getByText("Waits until the webhook is resumed.").waitFor();
    expect(await next(page).textContent()).toContain("Waits until the webhook is resumed.");
  });
});
