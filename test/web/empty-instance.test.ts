import { randomUUID } from "node:crypto";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { expectAccessible, expectFitsPhone, expectTypographic, takeScreenshots, untilRead } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ DISPATCH_INTERVAL: "1h" });
});
afterAll(() => web?.stop());

/** Where there is nothing yet, what is said there, and the one thing that is offered to do about it. */
const PAGES: [path: string, said: string, offered: string | undefined][] = [
  ["/", "Nothing is registered here yet.", "Dispatch now"],
  ["/webhooks", "No webhooks yet", "New webhook"],
  ["/webhooks/1", "There is no such webhook", undefined],
  ["/deliveries", "No deliveries yet", undefined],
  ["/deliveries?state=failed&type=OrderDispatched", "No delivery matches", "Clear the filters"],
  ["/deliveries?id=1001", "This is not an id", "Clear the filters"],
  [`/deliveries/${randomUUID()}`, "There is no such delivery", undefined],
  ["/keys", "Signed in with this key", "New key"],
  ["/keys?state=revoked", "No key matches", "Clear the filters"],
  ["/apps", "No installed apps yet", "New app"],
  ["/nowhere", "There is nothing at this address", undefined],
];

const main = (page: Page) => page.getByRole("main");

test("every page of an empty instance says what to do next, offers it once, and can be used by everyone", () =>
  web.visit({}, async (page) => {
    for (const [path, said, offered] of PAGES) {
      await page.goto(path);
      await main(page).getByText(said, { exact: true }).waitFor();
      await untilRead(page);
      if (offered) expect(await main(page).getByRole("button", { name: offered }).count(), path).toBe(1);
      await takeScreenshots(page, `empty${path.replace(/\W+/g, "-").slice(0, 24)}`);
      await expectTypographic(page);
      await expectAccessible(page);
      await expectFitsPhone(page);
    }
  }));
