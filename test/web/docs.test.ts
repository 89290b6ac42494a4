import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestApi, type TestApi } from "../support/test-api.ts";
import { startBrowser, WINDOW } from "./browser.ts";
import { takeScreenshots } from "./looks.ts";
import { watch } from "./watched-page.ts";

const URL_LISTED = "https://receiver.example/docs";
/** Beyond what a double can hold. */
const ID_LISTED = "9007199254740993";

let api: TestApi;
let browser: Browser;
beforeAll(async () => {
  browser = await startBrowser();
  api = await startTestApi();
  await api.context.db.raw(`alter table webhooks alter column id restart with ${ID_LISTED}`);
  await api.rest("POST", "/api/webhook", { json: { process: 1, url: URL_LISTED } });
});
afterAll(async () => {
  await browser?.close();
  await api?.stop();
});

/** Fails the test too when the page had an error on its console, violated its policy, or asked for anything elsewhere. */
async function visit(look: (page: Page) => Promise<void>): Promise<void> {
  const context = await browser.newContext({ ...WINDOW, baseURL: api.url });
  try {
    const page = await context.newPage();
    const watched = await watch(page, new URL(api.url).origin);
    await page.goto("/docs");
    await page.getByRole("heading", { name: "Webhook registration and delivery" }).waitFor();
    await look(page);
    watched.expectNothing();
  } finally {
    await context.close();
  }
}

/** The part of the page that one operation has. */
const operation = (page: Page, id: string) => page.locator(`[id$="-${id}"].opblock`);

test("/docs shows every operation, and what receivers are sent", () =>
  visit(async (page) => {
    const { paths, webhooks } = await (await page.request.get("/openapi.json")).json();
    const parts = [...Object.values<object>(paths), ...Object.values<object>(webhooks)];
    const operations = parts.flatMap((part) => Object.keys(part));
    await expect.poll(() => page.locator(".opblock").count()).toBe(operations.length);
    await takeScreenshots(page, "docs");
  }));

/** Opens an operation, sends what it proposes or what is typed in, and answers what it shows to have come back. */
async function tryOut(page: Page, id: string, parameters: Record<string, string> = {}): Promise<string> {
  const tried = operation(page, id);
  await tried.getByRole("button").first().click();
  await tried.getByRole("button", { name: "Try it out" }).click();
  for (const [name, value] of Object.entries(parameters)) {
    await tried.locator(`[data-param-name="${name}"] input`).fill(value);
  }
  await tried.getByRole("button", { name: "Execute" }).click();
  const answer = tried.locator(".live-responses-table tbody");
  await answer.waitFor();
  return (await answer.textContent()) ?? "";
}

test(
  "operations are tried on /docs with the key that was typed in, and every digit is shown and sent",
  () =>
    visit(async (page) => {
      await page.getByRole("button", { name: "Authorize" }).first().click();
      const dialog = page.locator(".modal-ux");
      await dialog.getByLabel("Value:").fill(api.adminKey);
      await dialog.getByRole("button", { name: "Apply credentials" }).click();
      await dialog.getByRole("button", { name: "Close" }).last().click();

      expect(await tryOut(page, "createWebhook")).toMatch(/^200.*"Success": true.*example\.com\/hooks/s);
      const listed = await tryOut(page, "listWebhooks");
      expect(listed).toMatch(/^200/);
      expect(listed).toContain(`"Id": ${ID_LISTED},`);
      expect(listed).toContain(URL_LISTED);
      const deleted = await tryOut(page, "deleteWebhook", { webhookId: ID_LISTED });
      expect(deleted).toMatch(new RegExp(`^200.*"Id": ${ID_LISTED},`, "s"));
      await takeScreenshots(page, "docs-tried");
    }),
  60_000,
);
