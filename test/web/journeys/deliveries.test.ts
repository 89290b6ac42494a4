import { readFile } from "node:fs/promises";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { ReplayService, ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { aWebhook } from "../../support/builders.ts";
import { idAt, idBeside, storeDeliveries } from "../../support/stored-deliveries.ts";
import { tabTo } from "../keyboard.ts";
import { expectCalls, sharedWeb } from "../web.ts";

const STATES = ["delivered", "delivered", "failed", "delivered", "retrying", "pending", "cancelled"] as const;
const HOUR = 3_600_000;
/** More than a page of the list, half an hour apart. */
const COUNT = 60;

const web = await sharedWeb();
const { api } = web;
const { db } = api.context;
const shop = await aWebhook().at("https://shop.example/hooks").in(db);
const stock = await aWebhook().at("https://stock.example/hooks").for(3).in(db);
const stored = Array.from({ length: COUNT }, (_, n) => {
  const created = new Date(Date.now() - (n + 1) * 0.5 * HOUR);
  const id = idAt(created);
  const state = STATES[n % STATES.length] as (typeof STATES)[number];
  const retryAt = new Date(Date.now() + HOUR);
  const tried = state === "failed" ? [{ status: 503 }] : [];
  return {
    id,
    eventId: idBeside(id),
    webhookId: n % 3 === 0 ? stock : shop,
    state,
    finished: created,
    retryAt,
    tried,
  };
});
await storeDeliveries(db, stored);
/** Newest first. */
const ids = stored.map(({ id }) => id);
const idsOf = (test: (n: number) => boolean) => ids.filter((_, n) => test(n));

const publish = (orderId: bigint) =>
  api.client(EventService).publishEvent({
    idempotencyKey: `order-${orderId}`,
    userId: "tenant-1",
    data: {
      case: "orderDispatched",
      value: { orderId, orderNumber: `SO-${orderId}`, dispatchedAt: { seconds: 1n } },
    },
  });
const dialog = (page: Page) => page.getByRole("dialog");
/** The ids that the list shows. Run in the page: finding them by their roles takes long. */
const SHOWN = `[...document.querySelectorAll("tbody a[href*='open=']")].map((link) => link.textContent.trim())`;
const untilShown = (page: Page, expected: string[]) =>
  expect.poll(() => page.evaluate<string[]>(SHOWN)).toEqual(expected);
const statesOf = (some: string[]) =>
  db("all_deliveries").whereIn("id", some).distinct("state").pluck("state");

test("deliveries are listed newest first, paged to the older and back, and filtered; Back undoes a filter", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    await untilShown(page, ids.slice(0, 50));
    await page.getByRole("button", { name: "Older" }).click();
    await untilShown(page, ids.slice(50));
    await page.reload();
    await untilShown(page, ids.slice(50));
    await page.getByRole("button", { name: "Newer" }).click();
    await untilShown(page, ids.slice(0, 50));
    await expect.poll(() => new URL(page.url()).search).toBe("");

    const failed = idsOf((n) => n % 7 === 2);
    await page.getByRole("combobox", { name: "State" }).click();
    await page.getByRole("option", { name: "Failed" }).click();
    await untilShown(page, failed);
    await page.getByRole("group", { name: "Failures by reason" }).getByText("HTTP 503").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("combobox", { name: "Webhook" }).fill("stock");
    await page.getByRole("option", { name: "stock.example" }).click();
    const ofStock = idsOf((n) => n % 21 === 9);
    await untilShown(page, ofStock);
    expect(new URL(page.url()).search).toBe(`?state=failed&webhook=${stock}`);
    await page.goBack();
    await untilShown(page, failed);
    await page.getByRole("combobox", { name: "Created" }).click();
    await page.getByRole("option", { name: "The last 24 hours" }).click();
    const ofDay = failed.filter((id) => ids.indexOf(id) < 47);
    await untilShown(page, ofDay);
  }));

test("deliveries are found by their own id, their event's, a host and an order number", async () => {
  const { eventId } = await publish(77n);
  const [published = ""] = await db("queue")
    .where({ event_id: eventId, webhook_id: String(shop) })
    .pluck("id");
  await web.visit({ path: "/deliveries?id=so-77" }, async (page) => {
    await untilShown(page, [published]);
    for (const [search, found] of [
      [ids[7], [ids[7]]],
      [` ${stored[50]?.eventId.toUpperCase()}`, [ids[50]]],
      ["stock.example", idsOf((n) => n % 3 === 0)],
    ] as [string, string[]][]) {
      await page.getByRole("searchbox", { name: "Search" }).fill(search);
      await untilShown(page, found);
    }
  });
  await db("queue").where({ id: published }).delete();
});

test("ticked deliveries are sent again, after a question that names them, by keyboard alone", () =>
  web.visit({ path: "/deliveries?state=failed" }, async (page) => {
    const [first = "", second = ""] = idsOf((n) => n % 7 === 2);
    for (const id of [first, second]) {
      await tabTo(page, page.getByRole("checkbox", { name: `Select delivery ${id}` }));
      await page.keyboard.press("Space");
    }
    await page.getByRole("button", { name: "Send again…" }).focus();
    await page.keyboard.press("Enter");
    await dialog(page).getByText(first).waitFor();
    await page.getByRole("button", { name: "Send 2 deliveries again" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("2 deliveries will be sent with the next dispatch").waitFor();
    // What opened the dialog is gone: the focus is on the page.
    await expect.poll(() => page.evaluate("document.activeElement.id")).toBe("content");
    expect(await statesOf([first, second])).toEqual(["pending"]);
    await page.getByRole("link", { name: first }).waitFor({ state: "detached" });
  }));

test("all that a filter finds is sent again, after a question that says how many and which", () =>
  web.visit({ path: `/deliveries?state=cancelled,pending&webhook=${stock}` }, async (page) => {
    const cancelled = idsOf((n) => n % 21 === 6);
    await page.getByRole("button", { name: "Send all of these again…" }).click();
    const question = page.getByRole("dialog", { name: `Send ${cancelled.length} deliveries again?` });
    for (const part of ["Cancelled", `#${stock}`]) await question.getByText(part).waitFor();
    await question.getByRole("button", { name: "Send again" }).click();
    await page.getByText("The replay has started").waitFor();
    await page.getByRole("listitem", { name: "Cancelled deliveries" }).waitFor();
    const { replays } = await api.client(ReplayService).listReplays({ webhookId: stock });
    expect(replays.map(({ what }) => what.case)).toEqual(["resend"]);
  }));

test("a webhook gets the events that it missed by a replay, which is paused, resumed and cancelled on its page", () =>
  web.visit({ path: `/webhooks/${shop}` }, async (page) => {
    await page.getByRole("button", { name: "Send missed events…" }).click();
    await dialog(page).getByRole("radio", { name: "The last hour" }).check();
    await dialog(page).getByRole("button", { name: "Send missed events" }).click();
    await page.getByText("The replay has started").waitFor();
    const card = page.getByRole("listitem", { name: "Missed events" });
    await card.getByRole("button", { name: "Pause" }).click();
    await card.getByText("Paused").waitFor();
    await card.getByRole("button", { name: "Resume" }).click();
    await card.getByText("Running").waitFor();
    await card.getByRole("button", { name: "Cancel replay" }).click();
    await card.getByText("Cancelled").waitFor();
    const { replays } = await api.client(ReplayService).listReplays({ webhookId: shop });
    expect(replays.map(({ what, state }) => [what.case, state])).toEqual([
      ["backfill", ReplayState.CANCELLED],
    ]);
  }));

test("what a filter finds is saved as a file with payloads, and text in payloads is found", async () => {
  const published: string[] = [];
  for (const orderId of [1n, 2n, 3n]) published.push((await publish(orderId)).eventId);
  await web.visit({ path: "/deliveries?state=pending&last=1h" }, async (page) => {
    await page.getByRole("button", { name: "Export…" }).click();
    await dialog(page).getByText("JSON lines file").click();
    await dialog(page).getByRole("checkbox", { name: "With payloads" }).check();
    const downloading = page.waitForEvent("download");
    await dialog(page).getByRole("button", { name: "Export" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toMatch(/^deliveries-.*\.jsonl$/);
    const lines = (await readFile(await download.path(), "utf8")).trimEnd().split("\n");
    const exported = lines.map(
      (line) => JSON.parse(line) as { eventId: string; payload: { OrderId: number } },
    );
    expect(exported.map(({ eventId, payload }) => [eventId, payload.OrderId])).toEqual(
      published.map((eventId, n) => [eventId, n + 1]).reverse(),
    );
    await dialog(page).getByRole("textbox", { name: "Text in the payload" }).fill('{"OrderId":2,');
    await dialog(page).getByText("Show here").click();
    await dialog(page).getByRole("button", { name: "Search" }).click();
    await dialog(page).getByText("1 delivery found; 3 examined.").waitFor();
    expect(await dialog(page).locator("a[href^='/deliveries/']").count()).toBe(1);
  });
});

expectCalls("deliveries", web);
