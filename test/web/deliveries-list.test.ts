import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { changeDelivery, idAt, idBeside, storeDeliveries } from "../support/stored-deliveries.ts";
import { OTHER_HOST, SCREENS, WINDOW } from "./browser.ts";
import { tabTo } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const LONG_URL = `https://integrations.shop-with-a-long-name.example/tenants/${"4d1f".repeat(16)}/hooks/stock-levels?source=warehouse`;
const STATES = ["delivered", "delivered", "failed", "delivered", "retrying", "pending", "cancelled"] as const;
const HOUR = 3_600_000;
/** How often the page reads again. */
const REFRESH_MS = 4_000;
/** More than two pages of the list, half an hour apart. */
const COUNT = 120;

let web: Web;
let shop: bigint;
let stock: bigint;
/** Newest first. */
let ids: string[];
const eventIds: string[] = [];

function delivery(n: number, moment: number) {
  const state = STATES[n % STATES.length] as (typeof STATES)[number];
  const id = idAt(new Date(moment));
  return {
    id,
    eventId: idBeside(id),
    webhookId: n % 3 === 0 ? stock : shop,
    state,
    attempts: state === "failed" ? 4 : state === "pending" ? 0 : 1,
    finished: new Date(moment + 3_000),
    retryAt: new Date(Date.now() + HOUR),
    reason: state === "cancelled" ? "webhook deleted" : null,
  };
}

beforeAll(async () => {
  // Nothing is dispatched: what the lists show is what was stored.
  web = await startWeb({ DISPATCH_INTERVAL: "24h" });
  const { service } = web;
  shop = await service.register("https://shop.example/hooks");
  stock = await service.register(LONG_URL, { process: 3 });
  const now = Date.now();
  const stored = Array.from({ length: COUNT }, (_, n) => delivery(n, now - (n + 1) * 0.5 * HOUR));
  await storeDeliveries(service.db, stored);
  ids = stored.map(({ id }) => id);
  eventIds.push(...stored.map(({ eventId }) => eventId));
});
afterAll(() => web?.stop());

const links = (page: Page) => page.getByRole("table").locator("a[href^='/deliveries/']");
const shownIds = async (page: Page) => (await links(page).allTextContents()).map((text) => text.trim());
const PATIENCE = { timeout: 20_000 };
const untilShown = (page: Page, expected: string[]) =>
  expect.poll(() => shownIds(page), PATIENCE).toEqual(expected);
const indexesOf = (test: (n: number) => boolean) => ids.filter((_, n) => test(n));

test("deliveries are listed newest first, and paged to the older and back", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    await untilShown(page, ids.slice(0, 50));
    await page.getByRole("button", { name: "Older" }).click();
    await untilShown(page, ids.slice(50, 100));
    const address = page.url();
    await page.getByRole("button", { name: "Older" }).click();
    await untilShown(page, ids.slice(100));
    expect(await page.getByRole("button", { name: "Older" }).isDisabled()).toBe(true);
    await page.getByRole("button", { name: "Newer" }).click();
    await untilShown(page, ids.slice(50, 100));
    await page.goto(address);
    await untilShown(page, ids.slice(50, 100));
    await page.getByRole("button", { name: "Newer" }).click();
    await untilShown(page, ids.slice(0, 50));
    await expect.poll(() => new URL(page.url()).search, PATIENCE).toBe("");
  }));

test("the focus stays on the button that led to the last page or the first", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    const button = (name: string) => page.getByRole("button", { name, exact: true });
    await untilShown(page, ids.slice(0, 50));
    await button("Older").focus();
    for (const shown of [ids.slice(50, 100), ids.slice(100)]) {
      await page.keyboard.press("Enter");
      await untilShown(page, shown);
    }
    await expect.poll(() => button("Older").isDisabled(), PATIENCE).toBe(true);
    expect(await button("Older").and(page.locator(":focus")).count()).toBe(1);
    await page.keyboard.press("Enter");
    await expectAccessible(page);
    await tabTo(page, button("Newest"), { back: true });
    await page.keyboard.press("Enter");
    await untilShown(page, ids.slice(0, 50));
    await expect.poll(() => button("Newest").isDisabled(), PATIENCE).toBe(true);
    expect(await button("Newest").and(page.locator(":focus")).count()).toBe(1);
  }));

test("a filter is in the address, so that it can be shared, and Back undoes it", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    await page.getByRole("combobox", { name: "State" }).click();
    await page.getByRole("option", { name: "Failed" }).click();
    await untilShown(
      page,
      indexesOf((n) => n % 7 === 2),
    );
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: "Webhook" }).fill("stock-levels");
    await page.getByRole("option", { name: LONG_URL }).click();
    const both = indexesOf((n) => n % 7 === 2 && n % 3 === 0);
    await untilShown(page, both);
    expect(new URL(page.url()).search).toBe(`?state=failed&webhook=${stock}`);
    await page.reload();
    await untilShown(page, both);
    await page.goBack();
    await untilShown(
      page,
      indexesOf((n) => n % 7 === 2),
    );
    await page.getByRole("combobox", { name: "Event type" }).click();
    await page.getByRole("option", { name: "DocumentCreated" }).click();
    await page.getByText("No delivery matches").waitFor();
    await page.getByRole("button", { name: "Clear the filters" }).click();
    await untilShown(page, ids.slice(0, 50));
  }));

test("deliveries are found by when they were created, in the viewer's zone", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    await page.getByRole("combobox", { name: "Created" }).click();
    await page.getByRole("option", { name: "The last 24 hours" }).click();
    await untilShown(page, ids.slice(0, 47));
    await page.getByRole("combobox", { name: "Created" }).click();
    await page.getByRole("option", { name: "From … to …" }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get("last"), PATIENCE).toBe(null);
    const midnight = new Date(new URL(page.url()).searchParams.get("from") as string);
    expect(midnight.toLocaleTimeString("en-GB", { timeZone: "Europe/Berlin" })).toBe("00:00:00");
    await page.getByRole("button", { name: "From", exact: true }).waitFor();
    await takeScreenshots(page, "deliveries-between");
  }));

test("deliveries are found by their own id, their event's, a host and an order number, and the address can be shared", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    const search = page.getByRole("searchbox", { name: "Search" });
    await search.fill(ids[7] as string);
    await untilShown(page, [ids[7] as string]);
    await search.fill(` ${(eventIds[90] as string).toUpperCase()}`);
    await untilShown(page, [ids[90] as string]);
    await search.fill("shop.example");
    const ofShop = indexesOf((n) => n % 3 !== 0);
    await untilShown(page, ofShop.slice(0, 50));
    await search.fill("SO-2026-77");
    await page.getByText("A search compares whole values").waitFor();
    await takeScreenshots(page, "deliveries-not-found");
    const { eventId } = await web.service.publish(77n, "SO-2026-77");
    await page.goto(`${new URL(page.url()).origin}/deliveries?id=so-2026-77`);
    await expect.poll(() => new URL(page.url()).search, PATIENCE).toBe("?search=so-2026-77");
    const published = await web.service.db("queue").where({ event_id: eventId }).pluck("id");
    await untilShown(page, published);
    await web.service.db("queue").where({ event_id: eventId }).delete();
  }));

test("the button that copies an id says so where the browser does not allow it: over plain HTTP from another machine", async () => {
  const { port } = new URL(web.service.url);
  const context = await web.browser.newContext({ ...WINDOW, baseURL: `http://${OTHER_HOST}:${port}` });
  try {
    const page = await context.newPage();
    await page.goto("/deliveries");
    await page.getByLabel("API key", { exact: true }).fill(web.service.adminKey);
    await page.getByRole("button", { name: "Sign in" }).click();
    await untilShown(page, ids.slice(0, 50));
    await page.getByRole("button", { name: "Copy the delivery’s id" }).first().click();
    await page.getByText("Your browser does not allow it: select the text instead").first().waitFor();
  } finally {
    await context.close();
  }
});

test("a search keeps the space after which the user pauses and goes on typing", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    const search = page.getByRole("searchbox", { name: "Search" });
    const searched = () => new URL(page.url()).searchParams.get("search");
    await search.pressSequentially("JD0146 ");
    await expect.poll(searched, PATIENCE).toBe("JD0146");
    await search.pressSequentially("000");
    await expect.poll(searched, PATIENCE).toMatch(/000$/);
    expect(searched()).toBe("JD0146 000");
    expect(await search.inputValue()).toBe("JD0146 000");
  }));

test("what comes while one reads is told, moves nothing, and is shown when asked for", () =>
  web.visit({ path: "/deliveries", clock: true }, async (page) => {
    await untilShown(page, ids.slice(0, 50));
    const events = [await web.service.publish(), await web.service.publish()];
    const show = page.getByRole("button", { name: "Show 2 new deliveries" });
    await page.clock.fastForward(REFRESH_MS);
    await show.waitFor(PATIENCE);
    expect(await shownIds(page)).toEqual(ids.slice(0, 50));
    await changeDelivery(web.service.db, ids[4] as string, { state: "failed", attempts: 4 });
    await page.clock.fastForward(REFRESH_MS);
    await expect
      .poll(
        () =>
          page
            .getByRole("row")
            .filter({ hasText: ids[4] as string })
            .textContent(),
        PATIENCE,
      )
      .toContain("Failed");
    const retryAt = new Date(Date.now() + HOUR);
    await changeDelivery(web.service.db, ids[4] as string, { state: "retrying", attempts: 1, retryAt });
    await show.click();
    await expect.poll(async () => (await shownIds(page)).slice(2, 4), PATIENCE).toEqual(ids.slice(0, 2));
    await web.service
      .db("queue")
      .whereIn(
        "event_id",
        events.map(({ eventId }) => eventId),
      )
      .delete();
  }));

test("ticked deliveries are sent again, after a question that names them, by keyboard alone", () =>
  web.visit({ path: "/deliveries?state=failed" }, async (page) => {
    const [first, second] = indexesOf((n) => n % 7 === 2) as [string, string];
    await page.getByRole("checkbox", { name: `Select delivery ${first}` }).focus();
    await page.keyboard.press("Space");
    // Past what unfolds the delivery, its link, its copy button and the event's link to the next row's box.
    for (let stop = 0; stop < 5; stop += 1) await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.getByRole("button", { name: "Send again…" }).focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Send 2 deliveries again?" });
    await dialog.waitFor();
    expect(await dialog.textContent()).toContain(first);
    await expectAccessible(page);
    await takeScreenshots(page, "deliveries-selected");
    await page.getByRole("button", { name: "Send 2 deliveries again" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("2 deliveries will be sent with the next dispatch").waitFor();
    await dialog.waitFor({ state: "hidden" });
    // What opened the dialog is gone: the focus is on the page.
    await expect.poll(() => page.evaluate("document.activeElement.id")).toBe("content");
    const states = await web.service.db("all_deliveries").whereIn("id", [first, second]).pluck("state");
    expect(states).toEqual(["pending", "pending"]);
    await expect.poll(() => shownIds(page), PATIENCE).not.toContain(first);
  }));

test("all that a filter finds is sent again, after a question that says how many and which", () =>
  web.visit({ path: `/deliveries?state=cancelled,pending&webhook=${stock}` }, async (page) => {
    await page.getByRole("button", { name: "Send all of these again…" }).click();
    const cancelled = indexesOf((n) => n % 7 === 6 && n % 3 === 0);
    const dialog = page.getByRole("dialog", { name: `Send ${cancelled.length} deliveries again?` });
    await dialog.waitFor();
    // The webhook's address is asked for when the page opens, and may be on its way.
    for (const part of ["Cancelled", `#${stock}`, LONG_URL])
      await expect.poll(() => dialog.textContent()).toContain(part);
    expect(await dialog.textContent()).not.toContain("Pending");
    await takeScreenshots(page, "deliveries-send-filtered");
    await dialog.getByRole("button", { name: "Send again" }).click();
    await page.getByText("The replay has started").waitFor();
    const replay = page.getByRole("listitem", { name: "Cancelled deliveries" });
    await replay.getByText(`${cancelled.length} deliveries queued`).waitFor();
    const states = await web.service
      .db("all_deliveries")
      .whereIn("id", cancelled)
      .distinct("state")
      .pluck("state");
    expect(states).toEqual(["pending"]);
  }));

test("a replay of every webhook's deliveries says so, and takes a typed word", () =>
  web.visit({ path: "/deliveries?state=cancelled&last=24h" }, async (page) => {
    await page.getByRole("button", { name: "Send all of these again…" }).click();
    const dialog = page.getByRole("dialog", { name: /^Send .* again\?$/ });
    await dialog.getByText("This covers every webhook and every user").waitFor();
    const send = dialog.getByRole("button", { name: "Send again" });
    expect(await send.isDisabled()).toBe(true);
    await takeScreenshots(page, "deliveries-send-everyone");
    await expectAccessible(page);
    await dialog.getByRole("textbox", { name: "Type “replay” to confirm" }).fill("replay");
    expect(await send.isEnabled()).toBe(true);
    await dialog.getByRole("button", { name: "Cancel" }).click();
  }));

test("who may only read sees no way to send again", async () => {
  const { secret } = await web.service.keys.createApiKey({
    name: "reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  await web.visit({ path: "/deliveries?state=failed", key: secret }, async (page) => {
    await links(page).first().waitFor();
    expect(await page.getByRole("checkbox").count()).toBe(0);
    expect(await page.getByRole("button", { name: /again/ }).count()).toBe(0);
  });
});

test("deliveries unfold to their attempts in place, by keyboard, and follow them", async () => {
  const { service } = web;
  const webhookId = await service.register("https://unfolded.example/hooks");
  const now = Date.now();
  const [retried, failed] = (await storeDeliveries(service.db, [
    {
      webhookId,
      state: "retrying",
      created: new Date(now - HOUR),
      tried: [{ status: 503, durationMs: 820 }],
      retryAt: new Date(now + HOUR),
    },
    {
      webhookId,
      state: "failed",
      created: new Date(now - 2 * HOUR),
      tried: [
        { status: 502, durationMs: 40 },
        { error: "no response within 15 s", durationMs: 15_000 },
      ],
    },
  ])) as [string, string];
  const button = (page: Page, id: string) => page.getByRole("button", { name: `Attempts of delivery ${id}` });
  const attempts = (page: Page, id: string) =>
    page.getByRole("list", { name: `Attempts of delivery ${id}, newest first` }).getByRole("listitem");
  await web.visit({ path: `/deliveries?webhook=${webhookId}`, clock: true }, async (page) => {
    const row = page.getByRole("row").filter({ has: button(page, failed) });
    await row.waitFor();
    expect(await button(page, failed).getAttribute("aria-expanded")).toBe("false");
    const height = (await row.boundingBox())?.height;
    await tabTo(page, button(page, failed));
    await page.keyboard.press("Enter");
    await expect.poll(() => attempts(page, failed).count(), PATIENCE).toBe(2);
    const [second, first] = await attempts(page, failed).allTextContents();
    for (const part of ["Attempt 2", "No response within 15 s", "took 15 s"]) expect(second).toContain(part);
    for (const part of ["Attempt 1", "502 Bad Gateway", "took 40 ms"]) expect(first).toContain(part);
    expect(await button(page, failed).getAttribute("aria-expanded")).toBe("true");
    expect(await row.locator(`a[href="/deliveries/${failed}"]`).count()).toBe(1);
    // The last row has no border, and now it is no longer the last.
    expect(Math.abs(((await row.boundingBox())?.height ?? 0) - (height ?? 0))).toBeLessThan(1);

    await button(page, retried).click();
    await expect.poll(() => attempts(page, retried).allTextContents(), PATIENCE).toHaveLength(1);
    expect(await attempts(page, failed).count()).toBe(2);
    await expectAccessible(page);
    await takeScreenshots(page, "deliveries-unfolded");
    await changeDelivery(service.db, retried, {
      state: "delivered",
      attempts: 2,
      tried: [{ status: 200, durationMs: 12 }],
    });
    await expect
      .poll(async () => {
        await page.clock.fastForward(REFRESH_MS);
        return attempts(page, retried).first().textContent();
      }, PATIENCE)
      .toMatch(/Attempt 2.*200 OK.*took 12 ms/);

    await expectFitsPhone(page);
    await page.setViewportSize(SCREENS.narrow);
    await page.getByRole("list", { name: "Deliveries" }).waitFor();
    expect(await attempts(page, failed).count()).toBe(2);
    await expectAccessible(page);
    await button(page, failed).focus();
    await page.keyboard.press("Enter");
    await expect.poll(() => attempts(page, failed).count()).toBe(0);
    expect(await button(page, failed).and(page.locator(":focus")).getAttribute("aria-expanded")).toBe(
      "false",
    );
  });
  await service.webhooks.deleteWebhook({ webhookId });
});

/** What is seen and copied of the address in an element with this title. Run in the page. */
const cutAddress = (url: string, end: string) => `(() => {
  const element = document.querySelector('tbody [title$="${url}"]');
  const start = element.querySelector(".address-start");
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  const copied = getSelection().toString();
  getSelection().removeAllRanges();
  range.setStartAfter(start);
  const isWhole = range.getBoundingClientRect().right <= element.getBoundingClientRect().right + 1;
  return { isCut: start.scrollWidth > start.clientWidth, endSeen: isWhole && range.toString().endsWith("${end}"), copied };
})()`;

test("long addresses that differ in their ends are cut in the middle, and copied in full", async () => {
  const { service } = web;
  const twin = LONG_URL.replace("warehouse", "returns");
  const webhookId = await service.register(twin, { process: 3 });
  await storeDeliveries(service.db, [{ webhookId, state: "pending" }]);
  for (const path of ["/deliveries", "/webhooks"]) {
    await web.visit({ path }, async (page) => {
      for (const [url, end] of [
        [LONG_URL, "=warehouse"],
        [twin, "=returns"],
      ] as const) {
        await page.locator(`tbody [title$="${url}"]`).first().waitFor();
        expect(await page.evaluate(cutAddress(url, end)), path).toEqual({
          isCut: true,
          endSeen: true,
          copied: url.slice("https://".length),
        });
      }
      await takeScreenshots(page, `addresses-cut-${path.slice(1)}`);
    });
  }
  await web.visit({ path: "/webhooks" }, async (page) => {
    await page.getByRole("link", { name: twin.slice("https://".length), exact: true }).waitFor();
  });
  await service
    .db("queue")
    .where({ webhook_id: String(webhookId) })
    .delete();
  await service.webhooks.deleteWebhook({ webhookId });
});

test("the list can be used by everyone and on a phone", () =>
  web.visit({ path: "/deliveries?last=24h&type=StockLevelChanged" }, async (page) => {
    await links(page).first().waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "deliveries");
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole("list", { name: "Deliveries" }).waitFor();
    await page.getByRole("button", { name: "Filters" }).click();
    await page.getByRole("combobox", { name: "Created" }).waitFor();
    await expectAccessible(page);
  }));
