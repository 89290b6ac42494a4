import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { WebhookHealth } from "../../gen/webhook/v1/webhook_pb.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { announced, expectAccessible, expectFitsPhone, expectTablesFit, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const MINUTE_MS = 60_000;
const OVERDUE = 12;
const REFUSED = "connection refused (ECONNREFUSED)";

let web: Web;
let silent: bigint;
let waiting: string;
beforeAll(async () => {
  // Nothing is dispatched: the retries stay overdue.
  web = await startWeb({ DISPATCH_INTERVAL: "24h" });
  const { service } = web;
  silent = await service.register("https://shop.example/hooks/orders");
  const refusing = await service.register("https://warehouse.example/api/v2/webhooks/orders");
  const flaky = await service.register("https://books.example/inbound");
  const well = await service.register("https://well.example/hooks");
  const now = Date.now();
  const failed = (webhookId: bigint, error: string | null, status: number | null, retryAt: Date) =>
    ({ webhookId, state: "retrying", tried: [{ error, status }], retryAt }) as const;
  const delivered = (webhookId: bigint) =>
    ({ webhookId, state: "delivered", tried: [{ status: 200 }] }) as const;
  const ids = await storeDeliveries(service.db, [
    ...Array.from({ length: OVERDUE }, (_, n) =>
      failed(silent, REFUSED, null, new Date(now - (16 - n) * MINUTE_MS - 5_000)),
    ),
    failed(refusing, null, 503, new Date(now + MINUTE_MS)),
    delivered(flaky),
    failed(flaky, "no answer in time", null, new Date(now + MINUTE_MS)),
    ...Array.from({ length: 40 }, () => delivered(well)),
  ]);
  waiting = ids[0] as string;
  const healthOf = async () => (await service.webhooks.listWebhooks({})).webhooks.map(({ health }) => health);
  const { FAILING, DEGRADED, HEALTHY } = WebhookHealth;
  await vi.waitFor(
    async () => expect(await healthOf()).toEqual([FAILING, FAILING, DEGRADED, HEALTHY]),
    20_000,
  );
});
afterAll(() => web?.stop());

const rows = (page: Page) => page.locator("tbody tr");

test("the overview begins with the webhooks that are failing, and leads to them", () =>
  web.visit({ path: "/" }, async (page) => {
    const notice = page.getByRole("note").filter({ hasText: "2 webhooks are failing" });
    await notice.getByText("Connection refused (ECONNREFUSED) · began").waitFor();
    await notice.getByText("HTTP status 503 · began").waitFor();
    await notice.getByRole("link", { name: "1 webhook is degraded" }).waitFor();
    await page.getByRole("link", { name: "Failing webhooks 2 now" }).waitFor();
    await page.getByRole("link", { name: /^Failed attempts 14 last 24 hours/ }).waitFor();
    await page
      .getByRole("img", { name: "In the last 24 hours 41 attempts succeeded and 14 failed." })
      .waitFor();
    expect(await page.getByText(/None failed|No attempt failed/).count()).toBe(0);
    await takeScreenshots(page, "overview-failing");
    await expectAccessible(page);
    await expectFitsPhone(page);
    await notice.getByRole("link", { name: "2 webhooks are failing" }).click();
    await page.waitForURL("**/webhooks?health=failing");
    await expect.poll(() => rows(page).count()).toBe(2);
  }));

test("the list says each webhook's health in a word, with the last error, and is filtered and sorted by it", () =>
  web.visit({ path: "/webhooks?sort=health" }, async (page) => {
    await expect.poll(() => rows(page).count()).toBe(4);
    const words = async () =>
      (await rows(page).allTextContents()).map((text) => /Failing|Degraded|Healthy/.exec(text)?.[0]);
    expect(await words()).toEqual(["Failing", "Failing", "Degraded", "Healthy"]);
    await rows(page)
      .filter({ hasText: "shop.example" })
      .getByText(/refused.*began/)
      .waitFor();
    await rows(page).filter({ hasText: "shop.example" }).getByText("12 of 12 attempts failed").waitFor();
    await rows(page).filter({ hasText: "books.example" }).getByTitle("50% of 2 attempts succeeded").waitFor();
    await takeScreenshots(page, "webhooks-health");
    await expectAccessible(page);
    await expectFitsPhone(page);
    await expectTablesFit(page);
    await page.getByRole("combobox", { name: "Health" }).click();
    await page.getByRole("option", { name: "Degraded" }).click();
    await expect.poll(words).toEqual(["Degraded"]);
    expect(new URL(page.url()).searchParams.get("health")).toBe("degraded");
    await page.goBack();
    await expect.poll(() => rows(page).count()).toBe(4);
    await page.getByRole("searchbox", { name: "Search" }).fill("nothing like it");
    await page.getByRole("button", { name: "Clear the filters" }).click();
    await expect.poll(() => rows(page).count()).toBe(4);
  }));

test("a paused webhook is shown as paused, with its health", async () => {
  await web.service.webhooks.pauseWebhook({ webhookId: silent });
  await web.visit({ path: "/webhooks?state=paused" }, async (page) => {
    await rows(page).getByText("Paused", { exact: true }).waitFor();
    await rows(page).getByText("Failing", { exact: true }).waitFor();
    await expectTablesFit(page);
  });
  await web.service.webhooks.resumeWebhook({ webhookId: silent });
});

test("a failing webhook's page tells the last error, since when, and how many retries are overdue and why", () =>
  web.visit({ path: `/webhooks/${silent}` }, async (page) => {
    const notice = page.getByRole("note").filter({ hasText: "Failing" });
    await notice.getByText("Last error: Connection refused (ECONNREFUSED)").waitFor();
    await notice.getByText(/No attempt has succeeded since the first failure/).waitFor();
    await notice
      .getByText(/Waiting for shop\.example, which does not answer; 12 retries overdue, oldest 1\d min\./)
      .waitFor();
    await takeScreenshots(page, "webhook-failing");
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));

test("notices of failing webhooks, whose times and counts change by themselves, are not announced each time", () =>
  web.visit({ path: "/" }, async (page) => {
    await page.getByText("2 webhooks are failing").waitFor();
    expect(await announced(page).filter({ hasText: "webhooks are failing" }).count()).toBe(0);
    await page.goto(`/webhooks/${silent}`);
    await page.getByText(/12 retries overdue/).waitFor();
    expect(await announced(page).filter({ hasText: "retries overdue" }).count()).toBe(0);
  }));

test("a delivery whose retry is overdue says so, and what it waits for", () =>
  web.visit({ path: `/deliveries/${waiting}` }, async (page) => {
    await page
      .getByText(
        /The retry is overdue by 1\d min: waiting for shop\.example, which does not answer; 12 retries overdue, oldest 1\d min\./,
      )
      .waitFor();
    await page.getByText(/^Overdue by 1\d min$/).waitFor();
    expect(await page.getByText("any moment now").count()).toBe(0);
    await takeScreenshots(page, "delivery-overdue");
    await expectAccessible(page);
    await expectFitsPhone(page);
    await page.goto(`/deliveries?id=${waiting}`);
    await page.getByText(/retry overdue by 1\d min/).waitFor();
  }));
