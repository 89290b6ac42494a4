import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { aWebhook } from "../../support/builders.ts";
import { OTHER_HOST, SCREENS, WINDOW } from "../browser.ts";
import { tabTo } from "../keyboard.ts";
import { act, expectCalls, sharedWeb } from "../web.ts";

const web = await sharedWeb();
const { api } = web;
const { db } = api.context;
const webhookId = await aWebhook().in(db);

const dialog = (page: Page) => page.getByRole("dialog");
const press = (page: Page, name: string) => page.getByRole("button", { name, exact: true }).click();
const form = (page: Page) => page.getByRole("heading", { name: "Sign in" });
const heading = (page: Page, name: string) => page.getByRole("heading", { name, level: 1 });
const signedInAs = (page: Page, name: string) =>
  page.getByRole("button", { name: `Signed in: ${name}` }).waitFor();
const manager = (name: string) => api.key({ name, permissions: [Permission.MANAGE_API_KEYS] });

async function enter(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key", { exact: true }).fill(key);
  await press(page, "Sign in");
}

test("§5.3: who opens a page signs in and is on that page then, again after the session has ended; signing out ends the session", () =>
  web.visit({ path: "/deliveries?state=failed", key: null }, async (page, context) => {
    await enter(page, api.adminKey);
    await page.getByText("Kept up to date").waitFor();
    await db.raw("update sessions set expires = now() - interval '1 second'");
    await page.getByText("Your session has ended").waitFor();
    await enter(page, api.adminKey);
    await page.getByText("Kept up to date").waitFor();
    expect(new URL(page.url()).search).toBe("?state=failed");
    const cookies = await context.cookies();
    await page.getByRole("button", { name: /^Signed in: / }).click();
    await press(page, "Sign out");
    await form(page).waitFor();
    expect(await page.getByText("Your session has ended").count()).toBe(0);
    expect(await context.cookies()).toEqual([]);
    // Its cookie opens nothing more.
    await context.addCookies(cookies);
    await page.goto("/keys");
    await form(page).waitFor();
  }));

test("a session that another tab ends, and begins with another key, is this tab's too", async () => {
  const { secret } = await manager("Other");
  await web.visit({ path: "/keys", key: null }, async (page, context) => {
    await enter(page, api.adminKey);
    await signedInAs(page, "admin");
    await press(page, "New key");
    const tab = await context.newPage();
    await tab.goto("/keys");
    await tab.getByRole("button", { name: /^Signed in: / }).click();
    await press(tab, "Sign out");
    await form(page).waitFor();
    await enter(tab, secret);
    await signedInAs(page, "Other");
    expect(new URL(page.url()).pathname).toBe("/keys");
    // The form that was open went with the session of the key before.
    expect(await dialog(page).count()).toBe(0);
  });
});

test("signing in again with the same key in another tab keeps this tab's forms and secrets usable", async () => {
  const { secret } = await manager("Shared");
  await web.visit({ path: "/keys", key: secret }, async (page, context) => {
    await press(page, "New key");
    await dialog(page).getByLabel("Name").fill("Half filled");
    await dialog(page)
      .getByRole("checkbox", { name: /^Read / })
      .check();
    const tab = await context.newPage();
    await tab.goto("/keys");
    await press(tab, "Rotate the secret of Shared");
    const held = Promise.withResolvers<void>();
    await tab.route("**/SignIn", (route) => held.promise.then(() => route.continue()));
    await Promise.all([
      tab.waitForRequest("**/SignIn"),
      dialog(tab).getByRole("button", { name: "Rotate secret" }).click(),
    ]);
    // The rotation has ended the session, and the other tab is not signed in again yet.
    const [refused] = await Promise.all([
      page.waitForResponse("**/CreateApiKey"),
      dialog(page).getByRole("button", { name: "Create key" }).click(),
    ]);
    expect(refused.status()).toBe(401);
    held.resolve();
    await tab.getByText("It is shown only once").waitFor();
    await page.getByText("The key “Half filled” is created").waitFor();
    await press(page, "I have copied it");
    // The secret that the other tab shows once outlasts this tab's sign-in.
    await press(page, "Rotate the secret of Shared");
    await Promise.all([
      tab.waitForResponse("**/GetSession"),
      dialog(page).getByRole("button", { name: "Rotate secret" }).click(),
    ]);
    await page.getByText("It is shown only once").waitFor();
    await press(tab, "I have copied it");
  });
});

test("over plain HTTP from another machine, the page warns, allows sign-in, and says that it cannot copy", async () => {
  const baseURL = `http://${OTHER_HOST}:${api.httpPort}`;
  const context = await web.browser.newContext({ ...WINDOW, baseURL });
  try {
    const page = await context.newPage();
    await page.goto(`/webhooks/${webhookId}?tab=settings`);
    await page.getByRole("note").filter({ hasText: "This connection is not encrypted" }).waitFor();
    await enter(page, api.adminKey);
    await page
      .getByRole("button", { name: /^Copy / })
      .first()
      .click();
    await page.getByText("Your browser does not allow it: select the text instead").first().waitFor();
    const [cookie] = await context.cookies();
    expect(cookie).toMatchObject({ name: "webhook_session", secure: false, httpOnly: true });
  } finally {
    await context.close();
  }
});

test("a change that is confirmed offline fails at once, and is not made when the network returns", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page, context) => {
    await act(page, "Delete…");
    await context.setOffline(true);
    await press(page, "Delete webhook");
    await dialog(page).getByRole("alert").getByText("The service does not answer").waitFor();
    await context.setOffline(false);
    await page.route("**/DeleteWebhook", (route) =>
      route.fulfill({ status: 502, contentType: "text/html", body: "<h1>502 Bad Gateway</h1>" }),
    );
    await press(page, "Delete webhook");
    await dialog(page).getByText("A proxy answered HTTP 502 in place of the service.").waitFor();
    await press(page, "Cancel");
    await page.getByRole("link", { name: "All webhooks" }).click();
    await page.locator(`a[href="/webhooks/${webhookId}"]`).first().waitFor();
  }));

/** What has the focus, and whether it is on the screen. Run in the page. */
const FOCUSED = `(() => {
  const { left, right, top, bottom } = document.activeElement.getBoundingClientRect();
  const isSeen = right > 0 && left < innerWidth && bottom > 0 && top < innerHeight;
  return (isSeen ? "" : "off screen: ") + document.activeElement.outerHTML.slice(0, 120);
})()`;

test("on a phone, the pages are walked by the navigation, and the Tab key passes it by while it is closed", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await page.setViewportSize(SCREENS.narrow);
    await heading(page, "API keys").waitFor();
    const reached: string[] = [];
    for (let tabs = 0; tabs < 12; tabs += 1) {
      await page.keyboard.press("Tab");
      reached.push(await page.evaluate<string>(FOCUSED));
    }
    expect(reached.filter((each) => each.startsWith("off screen"))).toEqual([]);
    for (const name of ["Webhooks", "Overview"]) {
      await press(page, "Open the navigation");
      await tabTo(page, page.getByRole("link", { name, exact: true }));
      await page.keyboard.press("Enter");
      await heading(page, name).waitFor();
      expect(await page.title()).toBe(`${name} · Webhook service`);
    }
    await page.setViewportSize(SCREENS.wide);
  }));

test("colours and the zone of times are kept as chosen, from the first moment on and after a reload", () =>
  web.visit({ path: `/webhooks/${webhookId}?tab=settings` }, async (page) => {
    const scheme = () => page.locator("html").getAttribute("data-mantine-color-scheme");
    const created = page.locator("time").filter({ hasText: /\d{4}/ }).first();
    await created.filter({ hasText: /CET|CEST|GMT\+[12]/ }).waitFor();
    await page.getByRole("button", { name: /Show times in UTC/ }).click();
    const utc = (await created.getAttribute("datetime")) ?? "";
    await created.filter({ hasText: `${utc.slice(11, 19)} UTC` }).waitFor();
    expect(await scheme()).toBe("light");
    await press(page, "Colours: as the system");
    await page.getByRole("menuitem", { name: "Dark" }).click();
    expect(await scheme()).toBe("dark");
    await page.reload({ waitUntil: "commit" });
    await expect.poll(scheme).toBe("dark");
    await created.filter({ hasText: "UTC" }).waitFor();
  }));

/** How often a list is read again. */
const REFRESH_MS = 4_000;

test("a list says offline that it is not kept current, and is read again when the network returns", () =>
  web.visit({}, async (page, context) => {
    await page.clock.install();
    await page.goto("/deliveries");
    const failure = page.getByRole("alert").getByText("The service does not answer");
    await page.getByText("Kept up to date").waitFor();
    await context.setOffline(true);
    await expect
      .poll(async () => {
        await page.clock.fastForward(REFRESH_MS);
        return failure.count();
      })
      .toBe(1);
    expect(await page.getByText("Kept up to date").count()).toBe(0);
    await context.setOffline(false);
    await page.getByText("Kept up to date").waitFor();
    expect(await failure.count()).toBe(0);
  }));

test("a page whose files cannot be loaded says so while the service is away, and is opened once it is back or updated", () =>
  web.visit({}, async (page, context) => {
    await page.goto("/webhooks");
    await heading(page, "Webhooks").waitFor();
    await page.route("**/assets/**", (route) => route.abort());
    page.on("request", (request) => {
      if (request.isNavigationRequest()) void page.unroute("**/assets/**");
    });
    // An update of the service has removed the files of this page.
    await page.getByRole("link", { name: "API keys" }).click();
    await page.getByRole("row", { name: /admin/ }).waitFor();
    await page.route("**/assets/**", (route) => route.abort());
    await context.setOffline(true);
    await page.getByRole("link", { name: "Audit log" }).click();
    await page.getByRole("alert").getByText("This page was not loaded").waitFor();
    await context.setOffline(false);
    await press(page, "Reload the page");
    await heading(page, "Audit log").waitFor();
  }));

expectCalls("sessions", web);
