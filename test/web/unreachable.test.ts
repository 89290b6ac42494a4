import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { SCREENS } from "./browser.ts";
import { startWeb, type Web } from "./web.ts";

/** The deadline of the page's calls. */
const TIMEOUT_MS = 60_000;
/** How often a list is read again. */
const REFRESH_MS = 4_000;
/** The delay before the session is read again. */
const RETRY_MS = 5_000;
/** The least space between a field and the alert below it, in pixels. */
const MIN_GAP = 8;

let web: Web;
let webhookId: bigint;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
  webhookId = await web.service.register("https://shop.example/hooks");
});
afterAll(() => web?.stop());

test("a change that is confirmed offline fails at once, and is not made when the network returns", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page, context) => {
    await page.getByRole("button", { name: "Delete" }).click();
    const dialog = page.getByRole("dialog", { name: "Delete this webhook?" });
    await dialog.waitFor();
    await context.setOffline(true);
    await dialog.getByRole("button", { name: "Delete webhook" }).click();
    await dialog.getByRole("alert").getByText("The service does not answer").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await dialog.waitFor({ state: "hidden" });
    await context.setOffline(false);
    await page.getByRole("link", { name: "All webhooks" }).click();
    await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
    const { webhook } = await web.service.webhooks.getWebhook({ webhookId });
    expect(webhook?.id).toBe(webhookId);
  }));

test("a list says offline, apart from the filters, that it is not kept current, and is read again when the network returns", () =>
  web.visit({ path: "/deliveries", clock: true }, async (page, context) => {
    const failure = page.getByRole("alert").getByText("The service does not answer");
    await page.getByText("Kept up to date").waitFor();
    await context.setOffline(true);
    // The next refresh, and each time that it is tried again.
    await expect
      .poll(async () => {
        await page.clock.fastForward(REFRESH_MS);
        return failure.count();
      })
      .toBe(1);
    expect(await page.getByText("Kept up to date").count()).toBe(0);
    await page.setViewportSize(SCREENS.narrow);
    const filters = await page.getByRole("button", { name: "Filters" }).boundingBox();
    const alert = await page.getByRole("alert").boundingBox();
    expect((alert?.y ?? 0) - (filters?.y ?? 0) - (filters?.height ?? 0)).toBeGreaterThanOrEqual(MIN_GAP);
    await context.setOffline(false);
    await page.getByText("Kept up to date").waitFor();
    expect(await failure.count()).toBe(0);
  }));

test.each([
  { by: "its button", role: "button", name: "Reload the page" },
  { by: "the same link", role: "link", name: "Audit log" },
] as const)(
  "a page that was not opened before says while the service is away that it was not loaded, and is opened by $by when the service is back",
  ({ role, name }) =>
    web.visit({ path: "/webhooks" }, async (page, context) => {
      await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
      await context.setOffline(true);
      await page.getByRole("link", { name: "Audit log" }).click();
      await page.getByRole("alert").getByText("This page was not loaded").waitFor();
      await context.setOffline(false);
      await page.getByRole(role, { name }).click();
      await page.getByRole("heading", { name: "Audit log" }).waitFor();
    }),
);

test("a page that is opened while the service is away says so, and is shown by itself when the service is back", () =>
  web.visit({ path: "/webhooks", clock: true }, async (page) => {
    let reads = 0;
    await page.route("**/GetSession", (route) => {
      reads += 1;
      return route.abort();
    });
    await page.goto("/webhooks");
    await page.getByRole("alert").getByText("The service does not answer").waitFor();
    await expect
      .poll(async () => {
        await page.clock.fastForward(RETRY_MS);
        return reads;
      })
      .toBeGreaterThan(2);
    await page.getByRole("alert").getByText("The service does not answer").waitFor();
    await page.unroute("**/GetSession");
    await page.clock.fastForward(RETRY_MS);
    await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
  }));

test("a link leads to its page after an update of the service that removed the page's files", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
    await page.route("**/assets/**", (route) => route.abort());
    page.on("request", (request) => {
      if (request.isNavigationRequest()) void page.unroute("**/assets/**");
    });
    await page.getByRole("link", { name: "API keys" }).click();
    await page.getByRole("row", { name: /Administrator/ }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/keys");
  }));

test("an answer of a proxy in place of the service is told as one", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const body = "<h1>502 Bad Gateway</h1>";
    await page.route("**/DeleteWebhook", (route) =>
      route.fulfill({ status: 502, contentType: "text/html", body }),
    );
    await page.getByRole("button", { name: "Delete" }).click();
    const dialog = page.getByRole("dialog", { name: "Delete this webhook?" });
    await dialog.getByRole("button", { name: "Delete webhook" }).click();
    await dialog.getByRole("alert").getByText("A proxy answered HTTP 502 in place of the service.").waitFor();
  }));

test("a call without an answer ends after a minute, and its dialog can be closed", () =>
  web.visit({ path: `/webhooks/${webhookId}`, clock: true }, async (page) => {
    await page.route("**/DeleteWebhook", () => {});
    await page.getByRole("button", { name: "Delete" }).click();
    const dialog = page.getByRole("dialog", { name: "Delete this webhook?" });
    const called = page.waitForRequest("**/DeleteWebhook");
    await dialog.getByRole("button", { name: "Delete webhook" }).click();
    await called;
    const cancel = dialog.getByRole("button", { name: "Cancel" });
    expect(await cancel.isDisabled()).toBe(true);
    await page.clock.fastForward(TIMEOUT_MS);
    await dialog.getByRole("alert").getByText("The service took too long").waitFor();
    await cancel.click();
    await dialog.waitFor({ state: "hidden" });
  }));

test("a session that may not see a page says so if it cannot be left for another key", async () => {
  const { secret } = await web.service.keys.createApiKey({
    name: "Manager of keys",
    permissions: [Permission.MANAGE_API_KEYS],
  });
  await web.visit({ path: "/webhooks", key: secret }, async (page, context) => {
    const leave = page.getByRole("button", { name: "Sign in with another key" });
    await leave.waitFor();
    await context.setOffline(true);
    await leave.click();
    await page.getByText("You are still signed in. The service does not answer").waitFor();
    await context.setOffline(false);
    await leave.click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
  });
});
