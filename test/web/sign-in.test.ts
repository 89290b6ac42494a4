import { afterAll, beforeAll, expect, test } from "vitest";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb();
});
afterAll(() => web?.stop());

test("who opens a page signs in with the first administrator's key, and is on that page then", () =>
  web.visit({ path: "/keys", key: null }, async (page) => {
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await takeScreenshots(page, "sign-in");
    await page.getByLabel("API key", { exact: true }).fill(web.service.adminKey);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.getByRole("heading", { name: "API keys" }).waitFor();
    expect(new URL(page.url()).pathname).toBe("/keys");
    await takeScreenshots(page, "shell");
  }));

test("the sign-in page can be used by everyone and on a phone", () =>
  web.visit({ path: "/sign-in", key: null }, async (page) => {
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));
