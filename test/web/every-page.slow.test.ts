import { randomUUID } from "node:crypto";
import path from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { judgedWebhooks } from "../incidents/failing.ts";
import { aWebhook } from "../support/builders.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { SCREENS } from "./browser.ts";
import { fillInstance } from "./busy-instance.ts";
import { expectEveryFocusSeen } from "./keyboard.ts";
import {
  expectAccessible,
  expectFitsPhone,
  expectTablesFit,
  expectTypographic,
  takeScreenshots,
  untilRead,
} from "./looks.ts";
import { sharedWeb, startWeb } from "./web.ts";

/** `npm run screenshots` takes the README's pictures. */
const TAKES_PICTURES = process.env.MODE === "screenshots";

// Nothing is dispatched: what is shown is what was made up.
const web = await startWeb({ DISPATCH_INTERVAL: "24h", TEMPORAL_UI_URL: "http://127.0.0.1:8233" });
// Before any page is opened: what each webhook did is counted once a quarter of a minute.
const there = await fillInstance(web.service);

/** A picture for the README, of what a screen of that height shows. */
interface Picture {
  name: string;
  height: number;
  colorScheme?: "light" | "dark";
}

/** The dialogs that a page opens, by their buttons. */
const PAGES: { path: string; opens?: string[]; picture?: Picture }[] = [
  { path: "/", picture: { name: "overview", height: 1_205 } },
  { path: "/incidents" },
  { path: `/incidents/${there.incidentId}` },
  { path: "/webhooks", picture: { name: "webhooks", height: 820 } },
  { path: "/webhooks/new" },
  { path: `/webhooks/new?webhook=${there.webhookId}` },
  { path: `/webhooks/${there.webhookId}`, opens: ["Replay failed…", "Send missed events…"] },
  { path: `/webhooks/${there.webhookId}?tab=settings`, opens: ["Edit"] },
  { path: `/webhooks/${there.webhookId}?tab=verify` },
  { path: "/deliveries?state=failed", opens: ["Export…", "Send all of these again…"] },
  {
    path: `/deliveries/${there.deliveryId}`,
    picture: { name: "delivery", height: 1_045, colorScheme: "dark" },
  },
  { path: `/deliveries?open=${there.deliveryId}&state=failed,delivered` },
  { path: "/replays" },
  { path: "/keys", opens: ["New key", "Revoke Accounting"] },
  { path: "/apps", opens: ["Remove Returns portal"] },
  { path: "/audit" },
  { path: "/customers" },
  { path: "/customers/details?id=tenant-7", opens: ["Edit", "Change", "Erase"] },
];

async function take(page: Page, { name, height, colorScheme = "light" }: Picture): Promise<void> {
  await page.setViewportSize({ width: 1280, height });
  await page.emulateMedia({ colorScheme });
  await page.screenshot({ path: path.join("docs", "images", `${name}.png`) });
  await page.emulateMedia({ colorScheme: "light" });
}

const nameOf = (at: string) => at.replace(/\W+/g, "-").slice(0, 24);

test.each(PAGES)(
  "$path and its dialogs have room for a day of a busy instance, on a phone and on a tablet too, and can be used by everyone",
  ({ path: at, opens = [], picture }) =>
    web.visit({ path: at }, async (page) => {
      await page.getByRole("heading", { level: 1 }).waitFor();
      await untilRead(page);
      expect(await page.getByRole("alert").count()).toBe(0);
      await expectFitsPhone(page);
      await expectTablesFit(page);
      await expectTypographic(page);
      if (TAKES_PICTURES && picture) await take(page, picture);
      await takeScreenshots(page, `busy-${nameOf(at)}`);
      await expectAccessible(page);
      for (const name of opens) {
        await page.getByRole("button", { name, exact: true }).click();
        await page.getByRole("dialog").waitFor();
        await expectAccessible(page, { within: "[role=dialog]" });
        await takeScreenshots(page, `dialog-${nameOf(name)}`);
        await page.keyboard.press("Escape");
        await page.getByRole("dialog").waitFor({ state: "detached" });
      }
    }),
);

test("a filter that was switched off is shown on a phone and in the dark, too", async () => {
  const { db } = web.service;
  const id = await aWebhook().in(db);
  await db.raw(
    `update webhooks set filter = 'event.order_number == "1"', filter_slow = now(), filter_stopped = now() where id = ?`,
    [String(id)],
  );
  await web.visit({ path: `/webhooks/${id}?tab=settings` }, async (page) => {
    const alert = page.getByRole("alert");
    expect(await alert.textContent()).toMatch(/switched off: all events are sent.*Change the filter/);
    await expectFitsPhone(page);
    await expectTypographic(page);
    await takeScreenshots(page, "filter-stopped");
    await expectAccessible(page);
  });
  await db.raw("delete from webhooks where id = ?", [String(id)]);
});

/** A test request that was answered, with all that the service tells of it. */
const TRIED = {
  accepted: false,
  status: 404,
  responseStart: '{"error": "no such path"}',
  durationMs: 212,
  cause: { code: "http_404", summary: "the receiver answers 404 Not Found", remedy: "check the path" },
  timing: { dnsMs: 14, connectMs: 31, tlsMs: 58, firstByteMs: 97, bodyMs: 3 },
  addresses: ["192.0.2.17", "2001:db8::17"],
  certificates: [
    {
      subject: "CN=shop.example",
      issuer: "CN=R11, O=Let’s Encrypt",
      notBefore: "2026-09-06T00:00:00Z",
      notAfter: "2026-12-05T00:00:00Z",
    },
    {
      subject: "CN=R11, O=Let’s Encrypt",
      issuer: "CN=ISRG Root X1",
      notBefore: "2024-03-13T00:00:00Z",
      notAfter: "2027-03-12T00:00:00Z",
    },
  ],
};

test("the way from a failing webhook to a replay is there on a phone and in the dark, too, and can be used by everyone", async () => {
  const { db } = web.service;
  const id = await aWebhook().at("https://shop.example/hooks/orders").in(db);
  await db("webhook_health").insert({
    webhook_id: String(id),
    health: "failing",
    last_failure: new Date(),
    last_error: "HTTP status 404",
  });
  await judgedWebhooks(db, [id], "HTTP status 404");
  await storeDeliveries(db, [
    { webhookId: id, state: "failed", finished: new Date(), tried: [{ status: 404 }] },
  ]);
  await web.visit({ path: `/webhooks/${id}` }, async (page) => {
    await page.route("**/TryWebhookRequest", (route) => route.fulfill({ json: TRIED }));
    await page.getByRole("button", { name: "Replay 1 failed" }).waitFor();
    await page.getByRole("button", { name: "Test now" }).click();
    await page.getByText("The endpoint answered 404 after 212 ms").waitFor();
    await page.getByRole("textbox", { name: "URL" }).fill("https://shop.example/hooks");
    await untilRead(page);
    await takeScreenshots(page, "failing");
    await expectFitsPhone(page);
    await expectTypographic(page);
    await expectAccessible(page);
  });
  await db.raw("delete from webhooks where id = ?", [String(id)]);
});

test.each([
  "/",
  `/incidents/${there.incidentId}`,
  "/webhooks?search=returns",
  `/webhooks/${there.webhookId}`,
  `/deliveries/${there.deliveryId}`,
])("whatever the Tab key reaches at %s shows that it has the focus", (at) =>
  web.visit({ path: at }, async (page) => {
    // The first press of Tab then begins at the page's top.
    await page.reload();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await untilRead(page);
    await expectEveryFocusSeen(page);
  }),
);

test.each([
  {
    what: "twenty deliveries, below filters that stay on one line",
    path: "/deliveries?state=pending,retrying,delivered,failed,cancelled",
    screen: { width: 1280, height: 800 },
    least: 20,
  },
  { what: "fourteen webhooks", path: "/webhooks", screen: { width: 1280, height: 720 }, least: 14 },
])("a laptop's screen shows $what", ({ path: at, screen, least }) =>
  web.visit({ path: at }, async (page) => {
    await page.setViewportSize(screen);
    await page.getByRole("row").nth(least).waitFor();
    await untilRead(page);
    const rows = await page.locator("tbody tr").all();
    const boxes = await Promise.all(rows.map((row) => row.boundingBox()));
    const seen = boxes.filter((box) => box && box.y + box.height <= screen.height).length;
    expect(seen).toBeGreaterThanOrEqual(least);
    await page.setViewportSize(SCREENS.wide);
  }),
);

test("Back returns to where a list was left, and another page of it is shown from its top", () =>
  web.visit({ path: "/deliveries?last=24h" }, async (page) => {
    const scrolled = () => page.evaluate<number>("Math.round(window.scrollY)");
    const links = page.locator("tbody a[href*='open=']");
    await links.first().waitFor();
    await links.nth(45).scrollIntoViewIfNeeded();
    const left = await scrolled();
    expect(left).toBeGreaterThan(100);
    await links.nth(45).click();
    const open = page.getByRole("region", { name: "Open delivery" });
    await open.getByRole("heading", { name: "Summary" }).waitFor();
    expect(Math.abs((await scrolled()) - left)).toBeLessThan(50);
    await page.goBack();
    await open.waitFor({ state: "detached" });
    await expect.poll(scrolled).toBe(left);
    await page.locator("tbody a[href^='/events/']").nth(45).click();
    await page.getByRole("heading", { level: 1 }).waitFor();
    await expect.poll(scrolled).toBe(0);
    await page.goBack();
    await links.nth(45).waitFor();
    await expect.poll(scrolled).toBe(left);
    await page.getByRole("button", { name: "Older" }).click();
    await expect.poll(scrolled).toBe(0);
  }));

/** What is seen and copied of the address in an element with this title. Run in the page. */
const cutAddress = (url: string, end: string) => `(() => {
  const element = document.querySelector('tbody [title$="${url}"]');
  const start = element.querySelector(".address-start");
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  const copied = getSelection().toString();
  range.setStartAfter(start);
  const isWhole = range.getBoundingClientRect().right <= element.getBoundingClientRect().right + 1;
  return { isCut: start.scrollWidth > start.clientWidth, endSeen: isWhole && range.toString().endsWith("${end}"), copied };
})()`;

const empty = await sharedWeb();

test.each([
  { path: "/", says: "Nothing is registered here yet." },
  { path: "/incidents", says: "No webhook fails" },
  { path: "/webhooks", says: "No webhooks yet" },
  { path: "/deliveries?state=failed", says: "No delivery matches" },
  { path: `/deliveries/${randomUUID()}`, says: "There is no such delivery" },
  { path: "/nowhere", says: "No page has this address" },
])("$path of an empty instance says so, and can be used by everyone, on a phone too", ({ path: at, says }) =>
  empty.visit({ path: at }, async (page) => {
    await page.getByRole("main").getByText(says, { exact: true }).waitFor();
    await untilRead(page);
    await takeScreenshots(page, `empty-${nameOf(at)}`);
    await expectTypographic(page);
    await expectAccessible(page, { schemes: ["light"] });
    await expectFitsPhone(page);
  }),
);

test("the sign-in page can be used by everyone and on a phone", () =>
  empty.visit({ path: "/sign-in", key: null }, async (page) => {
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "sign-in");
  }));

test("long addresses that differ in their ends are cut in the middle, and copied in full", async () => {
  const start = `https://shop-with-a-long-name.example/tenants/${"4d1f".repeat(16)}/hooks/stock-levels?source=`;
  for (const end of ["warehouse", "returns"])
    await aWebhook()
      .at(start + end)
      .in(empty.api.context.db);
  await empty.visit({ path: "/webhooks" }, async (page) => {
    for (const end of ["warehouse", "returns"]) {
      await page.locator(`tbody [title$="${start}${end}"]`).first().waitFor();
      expect(await page.evaluate(cutAddress(start + end, end))).toEqual({
        isCut: true,
        endSeen: true,
        copied: (start + end).slice("https://".length),
      });
    }
  });
});
