import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { SCREENS } from "./browser.ts";
import { enterOn } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

/** The interval between reads of the webhooks to choose from. */
const MINUTE_MS = 60_000;

let web: Web;
beforeAll(async () => {
  web = await startWeb();
});
afterAll(() => web?.stop());

test("a filter is written, corrected, tried on the latest events, saved and removed", async () => {
  const receiver = await web.service.receiver();
  const webhookId = await web.service.register(`${receiver.url}/filtered`);
  for (const orderId of [1n, 2n, 3n]) await web.service.publish(orderId);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Filter" });
    await section.getByText("None: every event of this type is sent.").waitFor();
    await section.getByRole("button", { name: "Change…" }).click();
    const dialog = page.getByRole("dialog");
    const text = dialog.getByLabel("Events to send");
    await text.fill('event.Carrier == "DHL"');
    await dialog.getByRole("button", { name: "Try on the latest events" }).click();
    await dialog.getByText(/OrderDispatched has no field Carrier; its fields: order_id/).waitFor();
    await dialog.getByText("Fields of the event").click();
    await dialog.getByText("event.lines[0].sku").waitFor();
    await text.fill("event.order_id >= 2");
    await dialog.getByRole("button", { name: "Try on the latest events" }).click();
    await dialog.getByText("2 of the latest 3 events match.").waitFor();
    await dialog.getByRole("cell", { name: "SO-1" }).waitFor();
    expect(await dialog.getByRole("cell", { name: "Filtered" }).count()).toBe(1);
    await expectAccessible(page);
    await takeScreenshots(page, "filter");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("event.order_id >= 2").waitFor();
    await expectFitsPhone(page);

    const { eventId } = await web.service.publish(1n);
    await web.service.untilFinal(eventId);
    await page.goto(`/deliveries?state=filtered`);
    await page.getByText("Filtered").first().waitFor();
    await page.goto(`/audit?target=${webhookId}`);
    await page.getByText("event.order_id >= 2").first().waitFor();

    await page.goto(`/webhooks/${webhookId}`);
    await section.getByRole("button", { name: "Change…" }).click();
    await text.fill("");
    await dialog.getByRole("button", { name: "Save" }).click();
    await section.getByText("None: every event of this type is sent.").waitFor();
  });
});

/** Goes to another filter as a link of the page does, without loading the page again. */
const filterBy = (page: Page, webhookId: bigint | string) =>
  page.evaluate(`history.pushState(null, "", "/deliveries?webhook=${webhookId}");
    dispatchEvent(new PopStateEvent("popstate", { state: null }));`);

test("a webhook registered after the list was read is named, offered within a minute, and deleted only once it is", async () => {
  const first = await web.service.register("https://first.example/hooks");
  await web.visit({ path: "/deliveries", clock: true }, async (page) => {
    const select = page.getByRole("combobox", { name: "Webhook" });
    await select.click();
    await page.getByRole("option", { name: "https://first.example/hooks" }).waitFor();
    await page.keyboard.press("Escape");
    const second = await web.service.register("https://second.example/hooks");
    await filterBy(page, second);
    const label = `#${second} · OrderDispatched · https://second.example/hooks`;
    await expect.poll(() => select.inputValue()).toBe(label);

    await filterBy(page, first);
    await expect.poll(() => select.inputValue()).toContain("https://first.example/hooks");
    await page.clock.fastForward(MINUTE_MS);
    await select.click();
    await page.getByRole("option", { name: "https://second.example/hooks" }).click();
    await expect.poll(() => select.inputValue()).toBe(label);

    await web.service.webhooks.deleteWebhook({ webhookId: second });
    await page.clock.fastForward(MINUTE_MS);
    await expect.poll(() => select.inputValue()).toBe(`#${second} · deleted`);
    // A damaged address filters nothing, and shows no filter.
    await filterBy(page, `${first}x`);
    await expect.poll(() => select.inputValue()).toBe("");
  });
});

test("buttons that disappear or are disabled once they are pressed leave the focus where the keyboard continues", async () => {
  const webhookId = await web.service.register("https://focus.example/hooks");
  await web.visit(
    { path: "/deliveries?from=2026-01-01T00:00:00.000Z&to=2026-01-02T00:00:00.000Z" },
    async (page) => {
      const focused = page.locator(":focus");
      for (const moment of ["From", "To"]) {
        await enterOn(page, page.getByRole("button", { name: `Clear: ${moment}` }));
        await page.getByLabel(moment, { exact: true }).and(focused).waitFor();
      }
      // Both are empty and stay.
      expect(await page.getByRole("combobox", { name: "Created" }).inputValue()).toBe("From … to …");
      await page.keyboard.press("Enter");
      await page.getByRole("button", { name: "Next month" }).waitFor();
      await expectAccessible(page);
      await enterOn(page, page.getByRole("button", { name: "Take this time" }));
      await page.getByLabel("To", { exact: true }).and(focused).waitFor();

      await page.goto("/deliveries?search=nothing");
      await enterOn(page, page.getByRole("button", { name: "Clear the filters" }));
      await page.locator("#content").and(focused).waitFor();

      await page.goto("/webhooks?search=focus");
      await enterOn(page, page.getByRole("button", { name: "Clear the search" }));
      await page.getByRole("searchbox").and(focused).waitFor();

      await page.goto(`/webhooks/${webhookId}`);
      const { promise: held, resolve: release } = Promise.withResolvers<void>();
      await page.route("**/SendTestEvent", (route) => held.then(() => route.continue()));
      await enterOn(page, page.getByRole("button", { name: "Send test event" }));
      await page.locator("body:not(:has(:focus))").waitFor();
      release();
      await page.getByRole("button", { name: "Send another" }).and(focused).waitFor();
    },
  );
});

test("while failures of another filter are counted, those of the previous one are not shown", async () => {
  const [busy, missing] = await Promise.all(
    ["busy", "missing"].map((name) => web.service.register(`https://${name}.example/hooks`)),
  );
  await storeDeliveries(web.service.db, [
    { webhookId: busy as bigint, state: "failed", tried: [{ status: 503 }] },
    { webhookId: missing as bigint, state: "failed", tried: [{ status: 404 }] },
  ]);
  await web.visit({ path: `/deliveries?webhook=${busy}` }, async (page) => {
    const reasons = page.getByRole("group", { name: "Failures by reason" });
    await reasons.getByText("HTTP 503").waitFor();
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    await page.route("**/ListFailureReasons*", async (route) => {
      await held;
      await route.continue();
    });
    await filterBy(page, missing as bigint);
    await page.getByRole("table").getByText("missing.example").first().waitFor();
    await expect.poll(() => reasons.count()).toBe(0);
    release();
    await reasons.getByText("HTTP 404").waitFor();
    // On a phone they have a line, and the buttons another one.
    await page.setViewportSize(SCREENS.narrow);
    await expect.poll(async () => (await reasons.boundingBox())?.height).toBeLessThan(30);
  });
});
