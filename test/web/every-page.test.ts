import path from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type BusyInstance, fillInstance } from "./busy-instance.ts";
import { expectEveryFocusSeen } from "./keyboard.ts";
import { expectFitsPhone, expectTablesFit, expectTypographic, takeScreenshots, untilRead } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

/** Each test looks at every page, and the machine may be busy. */
const BUSY_MS = 60_000;
/** `npm run screenshots` takes the README's pictures. */
const TAKES_PICTURES = process.env.MODE === "screenshots";

let web: Web;
let there: BusyInstance;
beforeAll(async () => {
  // Nothing is dispatched: what is shown is what was made up.
  web = await startWeb({ DISPATCH_INTERVAL: "24h", TEMPORAL_UI_URL: "http://127.0.0.1:8233" });
  // Before any page is opened: what each webhook did is counted once a quarter of a minute.
  there = await fillInstance(web.service);
});
afterAll(() => web?.stop());

/** A picture for the README, of what a screen of that height shows. */
interface Picture {
  name: string;
  height: number;
  colorScheme?: "light" | "dark";
}

interface Looked {
  path: string;
  heading: string | RegExp;
  picture?: Picture;
}

const pages = (): Looked[] => [
  { path: "/", heading: "Overview", picture: { name: "overview", height: 1_205 } },
  { path: "/webhooks", heading: "Webhooks", picture: { name: "webhooks", height: 820 } },
  { path: `/webhooks/${there.webhookId}`, heading: "returns.example/integrations/northwind/orders" },
  { path: "/deliveries?state=failed", heading: "Deliveries" },
  {
    path: `/deliveries/${there.deliveryId}`,
    heading: "Delivery",
    picture: { name: "delivery", height: 1_045, colorScheme: "dark" },
  },
  { path: "/replays", heading: "Replays" },
  { path: "/keys", heading: "API keys" },
  { path: "/apps", heading: "Installed apps" },
  { path: "/audit", heading: "Audit log" },
];

async function take(page: Page, { name, height, colorScheme = "light" }: Picture): Promise<void> {
  await page.setViewportSize({ width: 1280, height });
  await page.emulateMedia({ colorScheme });
  await page.screenshot({ path: path.join("docs", "images", `${name}.png`) });
  await page.emulateMedia({ colorScheme: "light" });
}

test(
  "every page has room for a day of a busy instance, on a phone and on a tablet too",
  () =>
    web.visit({}, async (page) => {
      for (const { path: at, heading, picture } of pages()) {
        await page.goto(at);
        await page.getByRole("heading", { name: heading, level: 1 }).waitFor();
        await untilRead(page);
        await expectFitsPhone(page);
        await expectTablesFit(page);
        await expectTypographic(page);
        if (TAKES_PICTURES && picture) await take(page, picture);
        await takeScreenshots(page, `busy-${at.replace(/\W+/g, "-").slice(0, 24)}`);
        expect(await page.getByRole("alert").count()).toBe(0);
      }
    }),
  BUSY_MS,
);

test(
  "whatever the Tab key reaches on a page shows that it has the focus",
  () =>
    web.visit({}, async (page) => {
      const few = [
        "/",
        "/webhooks?search=returns",
        `/webhooks/${there.webhookId}`,
        "/keys?search=parcel",
        "/apps",
      ];
      for (const at of [...few, `/deliveries?id=${there.deliveryId}`, `/deliveries/${there.deliveryId}`]) {
        await page.goto(at);
        await page.getByRole("heading", { level: 1 }).waitFor();
        await untilRead(page);
        await expectEveryFocusSeen(page);
      }
    }),
  BUSY_MS,
);

/** The size of a laptop's screen, and the least rows of a list on it. */
const LAPTOP = { width: 1440, height: 900 };
const MIN_ROWS = 20;

test("a laptop's screen shows twenty deliveries, below filters that stay on one line whatever is chosen", () =>
  web.visit({}, async (page) => {
    await page.setViewportSize(LAPTOP);
    for (const chosen of ["delivered", "failed,retrying", "pending,retrying,delivered,failed,cancelled"]) {
      await page.goto(`/deliveries?state=${chosen}`);
      await page.getByRole("table", { name: "Deliveries" }).waitFor();
      await untilRead(page);
      const rows = await page.getByRole("table", { name: "Deliveries" }).getByRole("row").all();
      const boxes = await Promise.all(rows.map((row) => row.boundingBox()));
      const seen = boxes.filter((box) => box && box.y + box.height <= LAPTOP.height).length;
      // The first row is the head.
      expect(seen - 1, chosen).toBeGreaterThanOrEqual(MIN_ROWS);
    }
    await page.getByText("5 states", { exact: true }).waitFor();
  }));

test.each(["/deliveries", "/deliveries?last=24h"])(
  "Back returns to where the list at %s was left, and another page of it is shown from its top",
  (path) =>
    web.visit({ path }, async (page) => {
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
    }),
);

/** The size of a small laptop's window, and the least webhooks on it. */
const SMALL = { width: 1280, height: 820 };
const MIN_WEBHOOKS = 14;

test("a small screen shows fourteen webhooks, the healthy ones in rows of one height, with whole addresses in titles", () =>
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
    const address = "ledger.brightbooks.example/inbound/webhook?tenant=northwind";
    const cut = page.getByRole("link", { name: address, exact: true });
    expect(await cut.getAttribute("title")).toBe(`https://${address}`);
  }));
