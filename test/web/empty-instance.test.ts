import { randomUUID } from "node:crypto";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectAccessible, expectFitsPhone, expectTypographic, takeScreenshots, untilRead } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
});
afterAll(() => web?.stop());

/** A page on which there is nothing yet. */
interface EmptyPage {
  path: string;
  /** What it says of that. */
  says: string;
  /** The button that does something about it. */
  offers?: string;
}

const GROUPS: Record<string, EmptyPage[]> = {
  "the overview": [{ path: "/", says: "Nothing is registered here yet.", offers: "Dispatch now" }],
  "the pages of webhooks": [
    { path: "/webhooks", says: "No webhooks yet", offers: "New webhook" },
    { path: "/webhooks/1", says: "There is no such webhook" },
  ],
  "the pages of deliveries": [
    { path: "/deliveries", says: "No deliveries yet" },
    { path: "/deliveries?state=failed", says: "No delivery matches", offers: "Clear the filters" },
    { path: "/deliveries?id=SO-1001", says: "No delivery matches", offers: "Clear the filters" },
    { path: `/deliveries/${randomUUID()}`, says: "There is no such delivery" },
  ],
  "the pages of keys and apps": [
    { path: "/keys", says: "Signed in with this key", offers: "New key" },
    { path: "/keys?state=revoked", says: "No key matches", offers: "Clear the filters" },
    { path: "/apps", says: "No installed apps yet", offers: "New app" },
  ],
  "an address without a page": [{ path: "/nowhere", says: "No page has this address" }],
};

const main = (page: Page) => page.getByRole("main");

test.each(Object.entries(GROUPS))(
  "an empty instance says what to do next, offers it once, and can be used by everyone: %s",
  (_, pages) =>
    web.visit({ path: pages[0]?.path ?? "" }, async (page) => {
      for (const { path, says, offers } of pages) {
        await page.goto(path);
        await main(page).getByText(says, { exact: true }).waitFor();
        await untilRead(page);
        if (offers) await expect.poll(() => main(page).getByRole("button", { name: offers }).count()).toBe(1);
        await takeScreenshots(page, `empty${path.replace(/\W+/g, "-").slice(0, 24)}`);
        await expectTypographic(page);
        await expectAccessible(page);
        await expectFitsPhone(page);
      }
    }),
);

test.each([
  { path: "/webhooks", button: "New webhook", call: "ListWebhooks", says: "No webhooks yet" },
  { path: "/apps", button: "New app", call: "ListInstalledApps", says: "No installed apps yet" },
])(
  "what makes the first of a list is where it was, focus and all, once $path turns out empty",
  ({ path, button, call, says }) =>
    web.visit({ path: "/keys" }, async (page) => {
      const read = Promise.withResolvers<void>();
      await page.route(`**/*/${call}`, (route) => read.promise.then(() => route.continue()));
      await page.goto(path);
      await main(page).getByRole("button", { name: button }).focus();
      read.resolve();
      await main(page).getByText(says, { exact: true }).waitFor();
      await page.keyboard.press("Enter");
      await page.getByRole("dialog").waitFor();
    }),
);
