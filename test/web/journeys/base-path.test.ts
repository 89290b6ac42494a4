import { afterAll, expect, test } from "vitest";
import { part } from "../../support/parts.ts";
import { PATIENCE_MS } from "../../support/patience.ts";
import { startTestApi, useApi } from "../../support/test-api.ts";
import { theBrowser, WINDOW } from "../browser.ts";
import { watch } from "../watched-page.ts";
import { act } from "../web.ts";

const shared = await useApi();
const { folder } = await part("page");
const api = await startTestApi({ databaseUrl: shared.databaseUrl, page: folder, basePath: "/webhooks" });
afterAll(() => api.stop());

test("with BASE_PATH, the page is below it, however it is opened: sign-in, links, calls, documentation and reloads", async () => {
  const browser = await theBrowser();
  const context = await browser.newContext({ ...WINDOW, baseURL: api.url });
  context.setDefaultTimeout(PATIENCE_MS);
  afterAll(() => context.close());
  const page = await context.newPage();
  const watched = await watch(page, api.url, new Set());
  const at = (path: string) => page.waitForURL(`${api.url}/webhooks${path}`);
  const id = await api.register();

  // As whoever opens the service without its proxy.
  await page.goto("/deliveries?state=failed");
  await at("/sign-in");
  await page.getByLabel("API key", { exact: true }).fill(api.adminKey);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await at("/deliveries?state=failed");
  expect(await context.cookies()).toMatchObject([{ name: "webhook_session", path: "/webhooks" }]);

  await page.getByRole("link", { name: "Overview" }).click();
  await at("/");
  await page.getByText(`${api.url}/webhooks/webhook.v1.EventService/PublishEvent`).waitFor();
  await page.goto("/webhooks");
  await at("/");
  await page.getByRole("link", { name: "Webhooks", exact: true }).click();
  await page.locator(`a[href="/webhooks/webhooks/${id}"]`).first().click();
  await at(`/webhooks/${id}`);
  await page.reload();
  await act(page, "Delete…");
  await page.getByRole("button", { name: "Delete webhook", exact: true }).click();
  await at("/webhooks");
  expect((await api.webhooks.listWebhooks({})).webhooks).toEqual([]);

  const [docs] = await Promise.all([
    context.waitForEvent("page"),
    page.getByRole("link", { name: "API documentation" }).click(),
  ]);
  await docs.waitForURL(`${api.url}/webhooks/docs`);
  await docs.getByText("/api/webhook/list", { exact: true }).first().waitFor();
  await docs.close();
  await page.getByRole("button", { name: "Signed in: admin" }).click();
  await page.getByRole("button", { name: "Sign out" }).click();
  await at("/sign-in");
  expect(await context.cookies()).toEqual([]);
  watched.expectNothing();
});

test("where its script is not found, as at another prefix than BASE_PATH, the page says what to set", async () => {
  const browser = await theBrowser();
  const context = await browser.newContext({ ...WINDOW, baseURL: api.url });
  afterAll(() => context.close());
  const page = await context.newPage();
  // A proxy that does not pass on this prefix.
  await page.route(`${api.url}/webhooks/**`, (route) => route.fulfill({ status: 404, body: "Not found" }));
  await page.goto("/keys");
  await page.getByText(/opened at \/keys, .* set BASE_PATH .* it is now \/webhooks,/).waitFor();
});
