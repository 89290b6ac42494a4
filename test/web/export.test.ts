import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { idAt, storeDeliveries } from "../support/stored-deliveries.ts";
import { expectAccessible, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const HOUR = 3_600_000;

let web: Web;
let webhookId: bigint;
let eventIds: string[];

beforeAll(async () => {
  // Nothing is dispatched, so that what is exported stays as it is.
  web = await startWeb({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
  webhookId = await web.service.register("https://shop.example/hooks");
  const published = await Promise.all([1n, 2n, 3n].map((orderId) => web.service.publish(orderId)));
  eventIds = published.map(({ eventId }) => eventId);
});
afterAll(() => web?.stop());

test("what a filter finds is saved as a file, with payloads if asked for", () =>
  web.visit({ path: "/deliveries?search=https%3A%2F%2Fshop.example" }, async (page) => {
    await page.getByRole("button", { name: "Export…" }).click();
    const dialog = page.getByRole("dialog", { name: "Export, or search payloads" });
    await dialog.getByText("JSON lines file").click();
    await dialog.getByRole("checkbox", { name: "With payloads" }).check();
    const downloading = page.waitForEvent("download");
    await dialog.getByRole("button", { name: "Export" }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toMatch(/^deliveries-.*\.jsonl$/);
    const text = await readFile(await download.path(), "utf8");
    const lines = text
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { eventId: string; payload: { OrderId: number } });
    expect(lines.map(({ eventId }) => eventId).sort()).toEqual(eventIds.toSorted());
    expect(lines.map(({ payload }) => payload.OrderId).sort()).toEqual([1, 2, 3]);
    await dialog.getByText(/^3 deliveries\. Saved as deliveries-/).waitFor();
    // What the fields hold by now does not change what was exported.
    await dialog.getByRole("textbox", { name: "Text in the payload" }).fill("SO-1");
    await dialog.getByRole("combobox", { name: "Created" }).waitFor();
    await dialog.getByText(/^3 deliveries\. Saved as deliveries-/).waitFor();
  }));

test("text in payloads is found within a period, and the dialog says how much was examined", () =>
  web.visit({ path: "/deliveries" }, async (page) => {
    await page.getByRole("button", { name: "Export…" }).click();
    const dialog = page.getByRole("dialog", { name: "Export, or search payloads" });
    const text = dialog.getByRole("textbox", { name: "Text in the payload" });
    await text.fill('"');
    // A search shows what it finds, unless a file is chosen.
    expect(await dialog.getByRole("radio", { name: "Show here" }).isChecked()).toBe(true);
    await dialog.getByRole("button", { name: "Search" }).click();
    await dialog.getByText("Enter at least 3 characters.").waitFor();
    await text.fill('{"OrderId":2,');
    await dialog.getByRole("button", { name: "Search" }).click();
    await dialog.getByText("1 delivery found; 3 examined.").waitFor();
    expect(await dialog.locator("a[href^='/deliveries/']").count()).toBe(1);
    await dialog.getByText("CSV file").click();
    await text.fill('{"OrderId":3,');
    await dialog.getByRole("button", { name: "Export", exact: true }).waitFor();
    await dialog.getByText("Show here").click();
    await takeScreenshots(page, "payload-search");
    await expectAccessible(page);
  }));

test("a search in payloads without a beginning goes back from the end of the filter", async () => {
  const { db } = web.service;
  const created = new Date(Date.now() - 72 * HOUR);
  const eventId = idAt(created);
  await storeDeliveries(db, [{ webhookId, eventId, created, finished: created, state: "delivered" }]);
  await db("events").insert({
    id: eventId,
    api_key_id: randomUUID(),
    idempotency_key: "three-days-ago",
    process: 1,
    user_id: "tenant-1",
    occurred: created,
    recipients: 1,
    payload: '{"OrderId":72}',
  });
  const to = new Date(created.getTime() + HOUR).toISOString();
  await web.visit({ path: `/deliveries?to=${to}` }, async (page) => {
    await page.getByRole("button", { name: "Export…" }).click();
    const dialog = page.getByRole("dialog", { name: "Export, or search payloads" });
    await dialog.getByRole("textbox", { name: "Text in the payload" }).fill('"OrderId":72');
    await dialog.getByRole("button", { name: "Search" }).click();
    await dialog.getByText("1 delivery found; 1 examined.").waitFor();
    const period = dialog.getByRole("combobox", { name: "Created" });
    expect(await period.inputValue()).toBe("The 24 hours before “To”");
  });
});
