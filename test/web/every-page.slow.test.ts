import { randomUUID } from "node:crypto";
import path from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { aWebhook } from "../support/builders.ts";
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

const PAGES: { path: string; picture?: Picture }[] = [
  { path: "/", picture: { name: "overview", height: 1_205 } },
  { path: "/webhooks", picture: { name: "webhooks", height: 820 } },
  { path: `/webhooks/${there.webhookId}` },
  { path: "/deliveries?state=failed" },
  {
    path: `/deliveries/${there.deliveryId}`,
    picture: { name: "delivery", height: 1_045, colorScheme: "dark" },
  },
  { path: "/replays" },
  { path: "/keys" },
  { path: "/apps" },
  { path: "/audit" },
];

async function take(page: Page, { name, height, colorScheme = "light" }: Picture): Promise<void> {
  await page.setViewportSize({ width: 1280, height });
  await page.emulateMedia({ colorScheme });
  await page.screenshot({ path: path.join("docs", "images", `${name}.png`) });
  await page.emulateMedia({ colorScheme: "light" });
}

const nameOf = (at: string) => at.replace(/\W+/g, "-").slice(0, 24);

test.each(PAGES)(
  "$path has room for a day of a busy instance, on a phone and on a tablet too, and can be used by everyone",
  ({ path: at, picture }) =>
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
    }),
);

test.each([
  { path: "/webhooks", opens: ["New webhook"] },
  { path: `/webhooks/${there.webhookId}`, opens: ["Edit", "Send missed events…"] },
  { path: "/deliveries?state=failed", opens: ["Export…", "Send all of these again…"] },
  { path: "/keys", opens: ["New key", "Revoke Accounting"] },
  { path: "/apps", opens: ["Remove Returns portal"] },
])("the dialogs of $path can be used by everyone", ({ path: at, opens }) =>
  web.visit({ path: at }, async (page) => {
    for (const name of opens) {
      await page.getByRole("button", { name, exact: true }).click();
      await page.getByRole("dialog").waitFor();
      await expectAccessible(page, ["light"]);
      await takeScreenshots(page, `dialog-${nameOf(name)}`);
      await page.reload();
    }
  }),
);

test("whatever the Tab key reaches on a page shows that it has the focus", () =>
  web.visit({}, async (page) => {
    const few = ["/", "/webhooks?search=returns", `/webhooks/${there.webhookId}`, "/keys?search=parcel"];
    for (const at of [...few, `/deliveries?id=${there.deliveryId}`, `/deliveries/${there.deliveryId}`]) {
      await page.goto(at);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await untilRead(page);
      await expectEveryFocusSeen(page);
    }
  }));

/** The size of a laptop's screen, and the least rows of a list on it. */
const LAPTOP = { width: 1440, height: 900 };
const MIN_ROWS = 20;

test("a laptop's screen shows twenty deliveries, below filters that stay on one line whatever is chosen", () =>
  web.visit({}, async (page) => {
    await page.setViewportSize(LAPTOP);
    for (const chosen of ["delivered", "pending,retrying,delivered,failed,cancelled"]) {
      await page.goto(`/deliveries?state=${chosen}`);
      await page.getByRole("table", { name: "Deliveries" }).waitFor();
      await untilRead(page);
      const rows = await page.getByRole("table", { name: "Deliveries" }).getByRole("row").all();
      const boxes = await Promise.all(rows.map((row) => row.boundingBox()));
      const seen = boxes.filter((box) => box && box.y + box.height <= LAPTOP.height).length;
      // The first row is the head.
      expect(seen - 1, chosen).toBeGreaterThanOrEqual(MIN_ROWS);
    }
  }));

test("Back returns to where a list was left, and another page of it is shown from its top", () =>
  web.visit({ path: "/deliveries?last=24h" }, async (page) => {
    const scrolled = () => page.evaluate<number>("Math.round(window.scrollY)");
    const links = page.locator("tbody a[href^='/deliveries/']");
    await links.first().waitFor();
    await links.nth(45).scrollIntoViewIfNeeded();
    const left = await scrolled();
    expect(left).toBeGreaterThan(100);
    await links.nth(45).click();
    await page.getByRole("heading", { name: "Delivery", level: 1 }).waitFor();
    await expect.poll(scrolled).toBe(0);
    await page.goBack();
    await links.nth(45).waitFor();
    await expect.poll(scrolled).toBe(left);
    await page.getByRole("button", { name: "Older" }).click();
    await expect.poll(scrolled).toBe(0);
  }));

/** The size of a small laptop's window, and the least webhooks on it. */
const SMALL = { width: 1280, height: 820 };
const MIN_WEBHOOKS = 14;

test("a small screen shows fourteen webhooks, the healthy ones in rows of one height", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    await page.setViewportSize(SMALL);
    await page.getByRole("row").filter({ hasText: "Healthy" }).first().waitFor();
    await untilRead(page);
    const boxesOf = async (text: RegExp) => {
      const rows = await page.locator("tbody tr").filter({ hasText: text }).all();
      return Promise.all(rows.map((row) => row.boundingBox()));
    };
    const all = await boxesOf(/./);
    const seen = all.filter((box) => box && box.y + box.height <= SMALL.height).length;
    expect(seen).toBeGreaterThanOrEqual(MIN_WEBHOOKS);
    // Two marks, Paused and Healthy, are on two lines.
    const heights = (await boxesOf(/^(?!.*Paused).*Healthy/)).map((box) => box?.height ?? 0);
    expect(heights.length).toBeGreaterThan(MIN_WEBHOOKS / 2);
    // The layout rounds to fractions of a pixel.
    expect(Math.max(...heights) - Math.min(...heights)).toBeLessThan(1);
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
    await expectAccessible(page, ["light"]);
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
      expect(await page.evaluate(cutAddress(start + end, `=${end}`))).toEqual({
        isCut: true,
        endSeen: true,
        copied: (start + end).slice("https://".length),
      });
    }
  });
});
