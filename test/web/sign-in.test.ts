import { randomBytes } from "node:crypto";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { count } from "../../src/db/database.ts";
import { OTHER_HOST, SCREENS, WINDOW } from "./browser.ts";
import { tabTo } from "./keyboard.ts";
import { dialog, newKey } from "./keys-page.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startTlsProxy } from "./tls-proxy.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api", WRONG_KEYS_PER_MINUTE: "3", TRUST_PROXY: "127.0.0.0/8,::1/128" });
});
afterAll(() => web?.stop());

/** What has the focus, and whether it is on the screen. Run in the page. */
const FOCUSED = `(() => {
  const { left, right, top, bottom } = document.activeElement.getBoundingClientRect();
  const isSeen = right > 0 && left < innerWidth && bottom > 0 && top < innerHeight;
  return (isSeen ? "" : "off screen: ") + document.activeElement.outerHTML.slice(0, 120);
})()`;

const form = (page: Page) => page.getByRole("heading", { name: "Sign in" });
const pathOf = (page: Page) => new URL(page.url()).pathname;

async function enter(page: Page, key: string): Promise<void> {
  await page.getByLabel("API key", { exact: true }).fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
}

async function openMenu(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Signed in: Administrator" }).click();
}

/** A key that may do so much; its secret. */
async function keyWith(...permissions: Permission[]): Promise<string> {
  const { secret } = await web.service.keys.createApiKey({ name: "Somebody", permissions });
  return secret;
}

describe("signing in", () => {
  test("§5.3: who opens a page signs in with the first administrator's key, and is on that page then", () =>
    web.visit({ path: "/keys", key: null }, async (page) => {
      await form(page).waitFor();
      await takeScreenshots(page, "sign-in");
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      expect(pathOf(page)).toBe("/keys");
    }));

  test("the sign-in page says which keys it takes and where the first one is", () =>
    web.visit({ path: "/sign-in", key: null }, async (page) => {
      await form(page).waitFor();
      const said = await page.getByRole("main").textContent();
      for (const words of [
        "Manage_Api_Keys",
        "Read_Administrative_Data",
        ".data/admin-key",
        "npm run admin-key",
      ]) {
        expect(said).toContain(words);
      }
      const field = page.getByLabel("API key", { exact: true });
      expect([await field.getAttribute("type"), await field.getAttribute("autocomplete")]).toEqual([
        "password",
        "off",
      ]);
    }));

  test("the sign-in page can be used by everyone and on a phone", () =>
    web.visit({ path: "/sign-in", key: null }, async (page) => {
      await form(page).waitFor();
      await expectAccessible(page);
      await expectFitsPhone(page);
    }));

  test("a key that may neither manage keys nor read is told what it lacks", async () => {
    const publisher = await keyWith(Permission.PUBLISH_EVENTS);
    await web.visit({ path: "/sign-in", key: null }, async (page) => {
      await enter(page, publisher);
      expect(await page.getByRole("alert").textContent()).toContain(
        "sign in with a key that has Manage_Api_Keys or Read_Administrative_Data",
      );
    });
  });

  test("the field of a wrong key says that it is wrong; after many, the page says that a valid key was not checked", async () => {
    const unseen = await keyWith(Permission.MANAGE_API_KEYS);
    await web.visit({ path: "/sign-in", key: null }, async (page) => {
      // From an address of its own: new keys of a throttled one have to wait, and the other tests' come from this machine.
      await page.setExtraHTTPHeaders({ "X-Forwarded-For": "203.0.113.9" });
      await enter(page, "whk_wrong");
      await page.getByText("This key is unknown or revoked").waitFor();
      expect(await page.getByLabel("API key", { exact: true }).getAttribute("aria-invalid")).toBe("true");
      await takeScreenshots(page, "sign-in-wrong-key");
      for (let tries = 1; tries < 4; tries += 1) {
        await page.getByRole("button", { name: "Sign in" }).click();
        await page.getByRole("button", { name: "Sign in", disabled: false }).waitFor();
      }
      await Promise.all([page.waitForResponse("**/SignIn"), enter(page, unseen)]);
      const slowed = page.getByRole("alert").filter({ hasText: "Too many wrong API keys" });
      expect(await slowed.textContent()).toMatch(
        /so your key was not checked; verify it and retry in \d+ s\./,
      );
      expect(await page.getByText("unknown or revoked").count()).toBe(0);
      await expectAccessible(page);
      await takeScreenshots(page, "sign-in-slowed");
    });
  });

  test("a key that has used its requests of the minute is refused with this reason and the time to wait", async () => {
    const limited = await startWeb({ ROLE: "api", RATE_LIMIT_PER_MINUTE: "1" });
    try {
      await limited.service.webhooks.listWebhooks({});
      await limited.visit({ path: "/sign-in", key: null }, async (page) => {
        await form(page).waitFor();
        await page.clock.install();
        await enter(page, limited.service.adminKey);
        const alert = page.getByRole("alert");
        await alert
          .getByText(/The API key has used its 1 requests of this minute; retry in \d+ s\./)
          .waitFor();
        expect(await page.getByText("unknown or revoked").count()).toBe(0);
        await page.clock.fastForward(60_000);
        await alert.getByText("retry now.").waitFor();
      });
    } finally {
      await limited.stop();
    }
  });
});

describe("the connection of the sign-in page", () => {
  const warning = (page: Page) =>
    page.getByRole("note").filter({ hasText: "This connection is not encrypted" });

  test("is warned of over plain HTTP from another machine, where one can sign in all the same", async () => {
    const { port } = new URL(web.service.url);
    const context = await web.browser.newContext({ ...WINDOW, baseURL: `http://${OTHER_HOST}:${port}` });
    try {
      const page = await context.newPage();
      await page.goto("/keys");
      await warning(page).waitFor();
      await expectAccessible(page);
      await expectFitsPhone(page);
      await takeScreenshots(page, "sign-in-plain-http");
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      const [cookie] = await context.cookies();
      expect(cookie).toMatchObject({ name: "webhook_session", secure: false, httpOnly: true });
    } finally {
      await context.close();
    }
  });

  test("is not warned of on this machine", () =>
    web.visit({ path: "/sign-in", key: null }, async (page) => {
      await form(page).waitFor();
      expect(await warning(page).count()).toBe(0);
    }));

  test("is TLS by a trusted proxy's word: its cookie is for TLS and this host alone", async () => {
    const proxy = await startTlsProxy(web.service.url);
    const context = await web.browser.newContext({ ...WINDOW, baseURL: proxy.url, ignoreHTTPSErrors: true });
    try {
      const page = await context.newPage();
      await page.goto("/keys");
      await form(page).waitFor();
      expect(await warning(page).count()).toBe(0);
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      const [cookie] = await context.cookies();
      expect(cookie).toMatchObject({
        name: "__Host-webhook_session",
        secure: true,
        path: "/",
        domain: "localhost",
      });
      await page.reload();
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      await openMenu(page);
      await page.getByRole("button", { name: "Sign out" }).click();
      await form(page).waitFor();
      expect(await context.cookies()).toEqual([]);
    } finally {
      await context.close();
      await proxy.close();
    }
  });
});

describe("a session", () => {
  test("that has expired sends to sign in with a notice, and back to the page afterwards", () =>
    web.visit({ path: "/webhooks?process=1", key: null }, async (page) => {
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "Webhooks", level: 1 }).waitFor();
      await count(web.service.db, "update sessions set expires = now() - interval '1 second'", {});
      await page.reload();
      await page.getByText("Your session has ended").waitFor();
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "Webhooks", level: 1 }).waitFor();
      expect(new URL(page.url()).search).toBe("?process=1");
    }));

  test("that has ended does not keep its browser from signing in, after too many such calls from its address", () =>
    web.visit({ path: "/sign-in", key: null }, async (page, context) => {
      const forwarded = { "X-Forwarded-For": "203.0.113.10" };
      const token = () => randomBytes(32).toString("base64url");
      const statuses: number[] = [];
      for (let n = 0; n < 4; n += 1) {
        const { status } = await fetch(`${web.service.url}/webhook.v1.SessionService/GetSession`, {
          method: "POST",
          headers: {
            "Content-Type": "application/json",
            "X-Settings-Page": "1",
            "Sec-Fetch-Site": "same-origin",
            Cookie: `webhook_session=${token()}`,
            ...forwarded,
          },
          body: "{}",
        });
        statuses.push(status);
      }
      expect(statuses).toEqual([401, 401, 401, 429]);
      await page.setExtraHTTPHeaders(forwarded);
      await context.addCookies([{ name: "webhook_session", value: token(), url: page.url() }]);
      await page.goto("/keys");
      await form(page).waitFor();
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
    }));

  test("that ends in the middle of a visit is noticed by the next call, and leads back to where it was", () =>
    web.visit({ path: "/" }, async (page) => {
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
      await count(web.service.db, "update sessions set expires = now() - interval '1 second'", {});
      await page.getByText("Your session has ended").waitFor();
      await takeScreenshots(page, "sign-in-ended");
      await enter(page, web.service.adminKey);
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    }));

  test("that another tab ends, and begins with another key, is this tab's too", async () => {
    const { secret } = await web.service.keys.createApiKey({
      name: "Other",
      permissions: [Permission.MANAGE_API_KEYS],
    });
    await web.visit({ path: "/keys", key: null }, async (page, context) => {
      await enter(page, web.service.adminKey);
      await page.getByRole("button", { name: "Signed in: Administrator" }).waitFor();
      const tab = await context.newPage();
      await tab.goto("/keys");
      await openMenu(tab);
      await tab.getByRole("button", { name: "Sign out" }).click();
      await form(page).waitFor();
      await enter(tab, secret);
      await page.getByRole("button", { name: "Signed in: Other" }).waitFor();
      expect(pathOf(page)).toBe("/keys");
    });
  });

  test("that another tab begins anew with the same key keeps the forms and secrets of this tab, which stays usable", async () => {
    const key = await newKey(web.service, [Permission.MANAGE_API_KEYS]);
    await web.visit({ path: "/keys", key: key.secret }, async (page, context) => {
      await page.getByRole("button", { name: "New key" }).click();
      await dialog(page).getByLabel("Name").fill("Half filled");
      const tab = await context.newPage();
      await tab.goto("/keys");
      await tab.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
      const { promise: held, resolve: release } = Promise.withResolvers<void>();
      await tab.route("**/SignIn", async (route) => {
        await held;
        await route.continue();
      });
      await Promise.all([
        tab.waitForRequest("**/SignIn"),
        dialog(tab).getByRole("button", { name: "Rotate secret" }).click(),
      ]);
      // The rotation has ended the session, and the other tab is not signed in again yet.
      await dialog(page)
        .getByRole("checkbox", { name: /^Read / })
        .check();
      const [refused] = await Promise.all([
        page.waitForResponse("**/CreateApiKey"),
        dialog(page).getByRole("button", { name: "Create key" }).click(),
      ]);
      expect(refused.status()).toBe(401);
      release();
      await tab.getByText("It is shown only once").waitFor();
      await page.getByText("The key “Half filled” is created").waitFor();
      await page.getByRole("button", { name: "I have copied it" }).click();
      // The secret that the other tab shows once outlasts this tab's sign-in.
      await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
      await Promise.all([
        tab.waitForResponse("**/GetSession"),
        dialog(page).getByRole("button", { name: "Rotate secret" }).click(),
      ]);
      await page.getByText("It is shown only once").waitFor();
      await tab.getByRole("button", { name: "I have copied it" }).click();
    });
  });

  test("that another tab begins anew with another key is this tab's too, without what the tab showed before", async () => {
    const other = await newKey(web.service, [Permission.MANAGE_API_KEYS]);
    await web.visit({ path: "/keys", key: null }, async (page, context) => {
      await enter(page, web.service.adminKey);
      await page.getByRole("button", { name: "New key" }).click();
      await dialog(page).getByLabel("Name").fill("Half filled");
      const tab = await context.newPage();
      await count(web.service.db, "update sessions set expires = now() - interval '1 second'", {});
      await tab.goto("/keys");
      await enter(tab, other.secret);
      await page.getByRole("button", { name: `Signed in: ${other.name}` }).waitFor();
      expect(await dialog(page).count()).toBe(0);
    });
  });

  test("is ended in the service by signing out: its cookie opens nothing more", () =>
    web.visit({ path: "/keys" }, async (page, context) => {
      const cookies = await context.cookies();
      await openMenu(page);
      await takeScreenshots(page, "account-menu");
      await expectAccessible(page);
      await page.getByRole("button", { name: "Sign out" }).click();
      await form(page).waitFor();
      expect(await page.getByText("Your session has ended").count()).toBe(0);
      expect(await context.cookies()).toEqual([]);
      await context.addCookies(cookies);
      await page.goto("/keys");
      await form(page).waitFor();
    }));

  test("tells in the account menu when it ends as of now, not as of when the page was opened", () =>
    web.visit({ path: "/keys" }, async (page) => {
      const setExpiry = (hours: number) =>
        count(web.service.db, "update sessions set expires = now() + make_interval(hours => :hours::int)", {
          hours,
        });
      // The page is opened with another time than the menu is to show.
      await setExpiry(24);
      await page.reload();
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      await setExpiry(1);
      // A call, which extends the session.
      await page.getByRole("link", { name: "Installed apps" }).click();
      await page.getByText("No installed apps yet").waitFor();
      await openMenu(page);
      const ends = await page
        .getByText(/^Signed out/)
        .locator("time")
        .getAttribute("datetime");
      expect((Date.parse(ends ?? "") - Date.now()) / 3_600_000).toBeCloseTo(12, 1);
    }));

  test("that may only read sees no pages of keys, and is told what they would need", async () => {
    const reader = await keyWith(Permission.READ_ADMINISTRATIVE_DATA);
    await web.visit({ path: "/keys", key: reader }, async (page) => {
      await page.getByText("It needs the permission Manage_Api_Keys").waitFor();
      const pages = await page.getByRole("navigation", { name: "Pages" }).getByRole("link").allTextContents();
      expect(pages).toEqual(["Overview", "Webhooks", "Deliveries", "API documentation"]);
      await expectAccessible(page);
    });
  });

  test("that may only manage keys begins with them", async () => {
    const manager = await keyWith(Permission.MANAGE_API_KEYS);
    await web.visit({ path: "/", key: manager }, async (page) => {
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      expect(pathOf(page)).toBe("/keys");
    });
  });
});

describe("the page around the pages", () => {
  test("is walked by its navigation, on a phone too, and each page has its title in the tab", () =>
    web.visit({ path: "/" }, async (page) => {
      await page.setViewportSize({ width: 390, height: 844 });
      for (const name of ["Webhooks", "Deliveries", "API keys", "Installed apps", "Overview"]) {
        await page.getByRole("button", { name: "Open the navigation" }).click();
        await page.getByRole("link", { name, exact: true }).click();
        await page.getByRole("heading", { name, level: 1 }).waitFor();
        expect(await page.title()).toBe(`${name} · Webhook service`);
      }
    }));

  test("on a phone, the Tab key passes a closed navigation by: all that it reaches is on the screen", () =>
    web.visit({ path: "/keys" }, async (page) => {
      await page.setViewportSize(SCREENS.narrow);
      await page.reload();
      await page.getByRole("heading", { name: "API keys", level: 1 }).waitFor();
      const reached: string[] = [];
      for (let tabs = 0; tabs < 12; tabs += 1) {
        await page.keyboard.press("Tab");
        reached.push(await page.evaluate<string>(FOCUSED));
      }
      expect(reached.filter((each) => each.startsWith("off screen"))).toEqual([]);
      await page.getByRole("button", { name: "Open the navigation" }).click();
      await tabTo(page, page.getByRole("link", { name: "Webhooks", exact: true }));
    }));

  test("is light or dark as chosen, from the first moment on and after a reload", () =>
    web.visit({ path: "/keys" }, async (page) => {
      const scheme = () => page.locator("html").getAttribute("data-mantine-color-scheme");
      expect(await scheme()).toBe("light");
      await page.getByRole("button", { name: "Colours: as the system" }).click();
      await page.getByRole("menuitem", { name: "Dark" }).click();
      expect(await scheme()).toBe("dark");
      await page.reload({ waitUntil: "commit" });
      await expect.poll(scheme).toBe("dark");
      await page.getByRole("button", { name: "Colours: dark" }).waitFor();
    }));

  test("says so where there is no page, and leads on", () =>
    web.visit({ path: "/nowhere" }, async (page) => {
      await page.getByRole("heading", { name: "Page not found" }).waitFor();
      await expectAccessible(page);
      await page.getByRole("link", { name: "To the overview" }).click();
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    }));

  test("says that the service does not answer, and tries again when asked", () =>
    web.visit({ path: "/sign-in", key: null }, async (page) => {
      await form(page).waitFor();
      await page.route("**/GetSession", (route) => route.abort());
      await page.goto("/keys");
      expect(await page.getByRole("alert").textContent()).toContain("The service does not answer");
      await expectAccessible(page);
      await page.unroute("**/GetSession");
      await page.getByRole("button", { name: "Try again" }).click();
      await form(page).waitFor();
    }));
});
