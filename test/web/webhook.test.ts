import { createClient } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { isAuthentic } from "../../docs/examples/verify-public-key.ts";
import { AuditAction, AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";
import { SCREENS } from "./browser.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const EVENTS = [1n, 2n, 3n];
/** How often the page counts what waits. */
const REFRESH_MS = 5_000;
/** Hides the window and shows it again, and loses the network and gets it back. Run in the page. */
const LEAVE_AND_RETURN = `for (const state of ["hidden", "visible"]) {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
}
for (const event of ["offline", "online"]) window.dispatchEvent(new Event(event));`;

let web: Web;
let good: Receiver;
let bad: Receiver;
let goodId: bigint;
let badId: bigint;
let reader: string;
beforeAll(async () => {
  web = await startWeb({ RETRY_INITIAL_DELAY: "50ms" });
  const { service } = web;
  [good, bad] = await Promise.all([service.receiver(), service.receiver(() => 503)]);
  goodId = await service.register(`${good.url}/good`);
  badId = await service.register(`${bad.url}/integrations/orders/${"a-long-way-down/".repeat(12)}hooks`);
  const { secret } = await service.keys.createApiKey({
    name: "Reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  reader = secret;
  // Before any page is opened: what each webhook did is counted once a quarter of a minute.
  await Promise.all(EVENTS.map((order) => service.publish(order)));
  await vi.waitFor(
    async () => {
      const { deliveries } = await service.deliveries.listDeliveries({});
      expect(deliveries.filter(({ finished }) => finished)).toHaveLength(2 * EVENTS.length);
    },
    { timeout: 45_000 },
  );
});
afterAll(() => web?.stop());

const host = ({ url }: Receiver) => new URL(url).host;

test("each webhook of the list shows how it did in the last day, with a way to its deliveries", () =>
  web.visit({ path: "/webhooks?sort=failures", key: reader }, async (page) => {
    const failing = page.getByRole("row").filter({ hasText: host(bad) });
    await failing.getByText("0 delivered, 3 failed").waitFor();
    expect(await page.locator("tbody td:first-child a").first().textContent()).toContain(host(bad));
    const fine = page.getByRole("row").filter({ hasText: host(good) });
    await fine.getByText("100%", { exact: true }).waitFor();
    await takeScreenshots(page, "webhooks");
    await expectAccessible(page);
    await fine.getByRole("link", { name: /^Deliveries of OrderDispatched/ }).click();
    await page.getByRole("heading", { name: "Deliveries", exact: true }).waitFor();
    expect(new URL(page.url()).search).toBe(`?webhook=${goodId}`);
    // Those of this webhook, and of no other.
    const shown = page.getByRole("table", { name: "Deliveries" }).locator("tbody").getByRole("row");
    await shown.first().waitFor();
    await expect.poll(() => shown.count()).toBe(EVENTS.length);
    await expect.poll(() => shown.filter({ hasText: host(good) }).count()).toBe(EVENTS.length);
    await page.setViewportSize(SCREENS.narrow);
    await page.goto("/webhooks");
    const card = page.getByRole("listitem").filter({ hasText: "0 delivered, 3 failed" });
    await card
      .getByRole("link", { name: /^Deliveries of OrderDispatched to .*: 0 delivered, 3 failed$/ })
      .waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));

test("a webhook's page tells what is registered, how it did, and what became of its last deliveries", () =>
  web.visit({ path: `/webhooks/${badId}`, key: reader }, async (page) => {
    const address = `${host(bad)}/integrations/orders/`;
    await page.getByRole("heading", { level: 1, name: address }).waitFor();
    expect(await page.title()).toContain(address);
    await page.getByRole("img", { name: "0% delivered" }).first().waitFor();
    await page.getByRole("region", { name: "Registration" }).getByText(`${bad.url}/integrations`).waitFor();
    const last = page.getByRole("region", { name: "Last deliveries" });
    await last.locator('a[href^="/deliveries/"]').first().waitFor();
    await expect.poll(() => last.getByText("Failed", { exact: true }).count()).toBe(3);
    // Who may only read is offered nothing else.
    const buttons = await page.getByRole("main").getByRole("button").allTextContents();
    expect(buttons.filter((text) => /Send|Pause|Delete|secret|Rotate|Edit|Replay/.test(text))).toEqual([]);
  }));

test("a test event is sent and followed to its arrival, and leads to its delivery", () =>
  web.visit({ path: `/webhooks/${goodId}` }, async (page) => {
    const before = good.received.length;
    await page.getByRole("button", { name: "Send test event" }).click();
    const section = page.getByRole("region", { name: "Test event" });
    await section.getByText(/^Delivered: the endpoint answered 200 after \d+ ms\.$/).waitFor();
    expect(good.received.length).toBe(before + 1);
    const id = good.received.at(-1)?.headers["x-service-webhook-id"];
    await page
      .getByRole("region", { name: "Last deliveries" })
      .locator(`a[href="/deliveries/${id}"]`)
      .waitFor();
    await section.getByRole("link", { name: "The delivery, with every attempt" }).click();
    await page.waitForURL(`**/deliveries/${id}`);
  }));

test("a test event has the payload and event type that were chosen, and one that is no JSON is not sent", () =>
  web.visit({ path: `/webhooks/${goodId}` }, async (page) => {
    const before = good.received.length;
    await page.getByRole("button", { name: "Edit payload" }).click();
    const section = page.getByRole("region", { name: "Test event" });
    const payload = section.getByRole("textbox", { name: "Payload" });
    expect(await payload.inputValue()).toContain('"OrderId"');
    await section.getByRole("combobox", { name: "Event type" }).click();
    await page.getByRole("option", { name: "StockLevelChanged" }).click();
    await expect.poll(() => payload.inputValue()).toContain('"Sku"');
    await payload.fill('{"Sku": "A-1", ');
    await page.getByRole("button", { name: "Send test event" }).click();
    await section.getByText(/Is not valid JSON/).waitFor();
    await takeScreenshots(page, "webhook-test-event");
    await expectAccessible(page);
    const body = '{"Sku": "A-1", "Id": 9007199254740993}';
    await payload.fill(body);
    await page.getByRole("button", { name: "Send test event" }).click();
    await section.getByText(/^Delivered: the endpoint/).waitFor();
    expect(good.received.slice(before).map((each) => each.body)).toEqual([body]);
    expect(good.received.at(-1)?.headers["x-service-webhook-process"]).toBe("StockLevelChanged");
  }));

test("a test event that fails says what the endpoint answered", () =>
  web.visit({ path: `/webhooks/${badId}` }, async (page) => {
    await page.getByRole("button", { name: "Send test event" }).click();
    const section = page.getByRole("region", { name: "Test event" });
    // Four attempts with their waits in between, on a machine that may be busy.
    await section
      .getByText("It failed after 4 attempts. The last: the endpoint answered 503.")
      .waitFor({ timeout: 25_000 });
    await takeScreenshots(page, "webhook");
    await expectAccessible(page);
    await expectFitsPhone(page);
  }));

test("a webhook is paused by keyboard, says what waits for it, and sends it when it is resumed", () =>
  web.visit({ path: `/webhooks/${goodId}`, clock: true }, async (page) => {
    await page.getByRole("button", { name: "Pause" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("The webhook is paused", { exact: true }).waitFor();
    await page.getByText("Events of OrderDispatched queue until you resume it.").waitFor();
    const { eventId } = await web.service.publish(4n);
    await expect
      .poll(async () => {
        await page.clock.fastForward(REFRESH_MS);
        return page.getByText("1 delivery waits.").count();
      })
      .toBe(1);
    // A test event reaches the receiver nevertheless, and what waits goes on waiting.
    const before = good.received.length;
    await page.getByRole("button", { name: "Send test event" }).click();
    await page.getByText(/^Delivered: the endpoint answered 200/).waitFor();
    expect(good.received.slice(before).map(({ headers }) => headers["x-service-webhook-test"])).toEqual([
      "true",
    ]);
    await page.getByText("1 delivery waits.").waitFor();
    await takeScreenshots(page, "webhook-paused");
    await expectAccessible(page);
    await page.getByRole("button", { name: "Resume" }).press("Enter");
    await page.getByText("The webhook is resumed").waitFor();
    const sent = await web.service.untilFinal(eventId);
    expect(sent.find(({ webhookId }) => webhookId === goodId)?.state).toBe(DeliveryState.DELIVERED);
    await page.getByRole("button", { name: "Pause" }).waitFor();
  }));

test("the signing secret is asked for only by its button, verifies deliveries, and stays beside a new one", () =>
  web.visit({ path: `/webhooks/${goodId}` }, async (page) => {
    const asked: string[] = [];
    page.on("request", (request) => asked.push(request.url()));
    await page.getByRole("button", { name: "Reveal secret" }).click();
    const field = page.getByRole("textbox", { name: "Signing secret" });
    const secret = await field.inputValue();
    // In clear: one click was enough.
    expect(await field.getAttribute("type")).not.toBe("password");
    const { body, headers } = good.received[0] as Receiver["received"][number];
    expect(new Webhook(secret).verify(body, headers as Record<string, string>)).toHaveProperty("OrderId");
    await page.getByRole("button", { name: "Rotate" }).click();
    await page.getByRole("dialog").getByText("Both secrets sign for 24 hours").waitFor();
    await page.getByRole("button", { name: "Rotate secret" }).click();
    await page.getByText("The new secret is active").waitFor();
    expect(await page.getByRole("textbox", { name: "Old secret" }).inputValue()).toBe(secret);
    const newest = await page.getByRole("textbox", { name: "Signing secret" }).inputValue();
    const told = await web.service.webhooks.getWebhookSecret({ webhookId: goodId });
    expect(newest).toBe(told.secret);
    await takeScreenshots(page, "webhook-secret");
    await expectAccessible(page);
    // Nowhere but in the fields.
    await page.getByRole("button", { name: "Hide", exact: true }).click();
    const kept = (await page.evaluate(
      "JSON.stringify([location.href, { ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML])",
    )) as string;
    for (const each of [secret, newest])
      expect(kept + asked.join()).not.toContain(each.slice("whsec_".length));
  }));

test("the audit log records a revealed secret once, however often the window is left and the webhook changed", async () => {
  const webhookId = await web.service.register("https://receiver.example/revealed");
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByRole("button", { name: "Reveal secret" }).click();
    const field = page.getByRole("textbox", { name: "Signing secret" });
    const secret = await field.inputValue();
    await page.evaluate(LEAVE_AND_RETURN);
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("The webhook is paused", { exact: true }).waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    await page.getByText("The webhook is resumed").waitFor();
    expect(await field.inputValue()).toBe(secret);
  });
  const { entries } = await createClient(AuditService, web.service.transport).listAuditEntries({
    targetId: String(webhookId),
    actions: [AuditAction.WEBHOOK_SECRET_READ],
  });
  expect(entries).toHaveLength(1);
  await web.service.webhooks.deleteWebhook({ webhookId });
});

test("a rotation that revokes the old secret leaves the new one alone", () =>
  web.visit({ path: `/webhooks/${goodId}` }, async (page) => {
    await page.getByRole("button", { name: "Rotate" }).click();
    await page.getByRole("dialog").getByLabel("Revoke immediately").check();
    await takeScreenshots(page, "webhook-rotate-revoke");
    await expectAccessible(page);
    await page.getByRole("button", { name: "Rotate secret" }).click();
    await page.getByText("until then the endpoint refuses deliveries").waitFor();
    const newest = await page.getByRole("textbox", { name: "Signing secret" }).inputValue();
    expect(await page.getByRole("textbox", { name: "Old secret" }).count()).toBe(0);
    const { secrets } = await web.service.webhooks.getWebhookSecret({ webhookId: goodId });
    expect(secrets.map(({ secret }) => secret)).toEqual([newest]);
    // The choice is made anew each time.
    await page.getByRole("button", { name: "Rotate" }).click();
    expect(await page.getByRole("dialog").getByLabel("For 24 hours").isChecked()).toBe(true);
  }));

test("public-key signatures are turned on, rotated and turned off, and the key shown verifies a test event", async () => {
  const receiver = await web.service.receiver();
  const webhookId = await web.service.register(`${receiver.url}/public-key`);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Public-key signature" });
    await section.getByText("Off: deliveries are signed with the signing secret only.").waitFor();
    await section.getByRole("button", { name: "Turn on" }).click();
    const key = section.getByRole("textbox", { name: "Public key", exact: true });
    const first = await key.inputValue();
    await page.getByRole("button", { name: "Send test event" }).click();
    await page.getByText(/^Delivered: the endpoint answered 200/).waitFor();
    const [request] = receiver.received;
    expect(isAuthentic(first, request?.headers ?? {}, request?.body ?? "")).toBe(true);
    await section.getByRole("button", { name: "Rotate key pair" }).click();
    await expectAccessible(page);
    await page.getByRole("dialog").getByRole("button", { name: "Rotate" }).click();
    const old = section.getByRole("textbox", { name: "Old public key" });
    expect(await old.inputValue()).toBe(first);
    expect(await key.inputValue()).not.toBe(first);
    await takeScreenshots(page, "webhook-public-key");
    await expectAccessible(page);
    await expectFitsPhone(page);
    await section.getByRole("button", { name: "Turn off" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Turn off" }).click();
    await section.getByText("Off: deliveries are signed with the signing secret only.").waitFor();
    // The page reads the webhook anew, so that an edit is not refused as if somebody else had changed the webhook.
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await page.getByRole("dialog").getByRole("textbox", { name: "Name" }).fill("Public key");
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { level: 1, name: "Public key" }).waitFor();
  });
});

test("a webhook is named, limited and moved to another address, which its waiting deliveries go to", async () => {
  const target = await web.service.receiver();
  const webhookId = await web.service.register("https://moving.example/orders");
  await web.service.webhooks.pauseWebhook({ webhookId });
  const { eventId } = await web.service.publish(6n);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByRole("heading", { level: 1, name: "moving.example/orders" }).waitFor();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    const dialog = page.getByRole("dialog", { name: "Edit webhook" });
    const name = dialog.getByRole("textbox", { name: "Name" });
    await expect.poll(() => page.evaluate("document.activeElement?.dataset.path")).toBe("name");
    await name.fill("Shop orders");
    const address = dialog.getByRole("textbox", { name: "URL" });
    await address.fill("http://elsewhere.example/");
    await dialog.getByRole("textbox", { name: "Deliveries a second" }).fill("20");
    await dialog.getByText("1 delivery not delivered yet goes to the new URL.").waitFor();
    await takeScreenshots(page, "webhook-edit");
    await expectAccessible(page);
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await dialog.getByText(/only https:\/\/ is allowed/).waitFor();
    await address.fill(`${target.url}/moved`);
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByText("Changes saved").waitFor();
    await page.getByRole("heading", { level: 1, name: "Shop orders" }).waitFor();
    expect(await page.title()).toContain("Shop orders");
    await page.getByText("20 deliveries a second").waitFor();
    await page.getByRole("button", { name: "Resume" }).click();
    const sent = await web.service.untilFinal(eventId);
    expect(sent.find((each) => each.webhookId === webhookId)?.state).toBe(DeliveryState.DELIVERED);
    expect(target.received.map(({ path }) => path)).toEqual(["/moved"]);
    // What was sent keeps its address in the log when the webhook moves on.
    await web.service.webhooks.updateWebhook({ webhookId, url: "https://next.example/orders" });
    const { deliveries } = await web.service.deliveries.listDeliveries({ webhookId });
    expect(deliveries.map(({ url }) => url)).toEqual([`${target.url}/moved`]);
    const shown = await web.service.deliveries.getDelivery({ deliveryId: deliveries[0]?.id ?? "" });
    expect(shown.delivery?.url).toBe(`${target.url}/moved`);
    // Somebody else's change in between is not written over.
    await page.reload();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await web.service.webhooks.updateWebhook({ webhookId, name: "", rateLimit: 0 });
    await name.fill("Mine");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await dialog.getByText("This webhook was changed meanwhile").waitFor();
    await dialog.getByRole("button", { name: "Load the current values" }).click();
    expect(await name.inputValue()).toBe("");
    await name.fill("Mine");
    await dialog.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { level: 1, name: "Mine" }).waitFor();
    const { webhook } = await web.service.webhooks.getWebhook({ webhookId });
    expect([webhook?.name, webhook?.rateLimit]).toEqual(["Mine", undefined]);
  });
  await web.service.webhooks.deleteWebhook({ webhookId });
});

test("the failed deliveries of a webhook are replayed from its page, all or those since a time, and no others", async () => {
  let status = 500;
  const moody = await web.service.receiver(() => status);
  const webhookId = await web.service.register(`${moody.url}/moody`);
  const { eventId } = await web.service.publish(7n);
  await web.service.untilFinal(eventId);
  await storeDeliveries(web.service.db, [
    { webhookId, state: "failed", created: new Date(Date.now() - 7_200_000) },
  ]);
  status = 200;
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByRole("button", { name: "Replay failed…" }).click();
    const all = page.getByRole("dialog", { name: "Send 2 deliveries again?" });
    await all.getByText("/moody").waitFor();
    await expectAccessible(page);
    await all.getByRole("radio", { name: "The last hour" }).check();
    const dialog = page.getByRole("dialog", { name: "Send 1 delivery again?" });
    await dialog.waitFor();
    await dialog.getByRole("radio", { name: "Since …" }).check();
    await all.getByRole("button", { name: /^Since/ }).waitFor();
    await takeScreenshots(page, "webhook-replay-failed");
    await expectAccessible(page);
    await all.getByRole("radio", { name: "The last hour" }).check();
    // It is of one webhook: nothing is to be typed.
    await dialog.getByRole("button", { name: "Send again" }).click();
    await page.getByText("The replay has started").waitFor();
    await page.getByRole("listitem", { name: "Failed deliveries" }).getByText("1 delivery queued").waitFor();
  });
  await vi.waitFor(async () => {
    const { deliveries } = await web.service.deliveries.listDeliveries({ webhookId });
    expect(deliveries.map(({ state }) => state)).toEqual([DeliveryState.DELIVERED, DeliveryState.FAILED]);
  }, 20_000);
  expect(moody.received).toHaveLength(5);
  await web.service.webhooks.deleteWebhook({ webhookId });
});

test("a webhook is deleted once it is confirmed by address and event type, and what waits is cancelled", async () => {
  const webhookId = await web.service.register("https://gone.example/hooks");
  await web.service.webhooks.pauseWebhook({ webhookId });
  const { eventId } = await web.service.publish(5n);
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByRole("button", { name: "Delete" }).click();
    const dialog = page.getByRole("dialog", { name: "Delete this webhook?" });
    await dialog.getByText("https://gone.example/hooks").waitFor();
    await dialog.getByText("OrderDispatched").waitFor();
    await dialog.getByText("1 delivery not delivered yet is cancelled.").waitFor();
    await takeScreenshots(page, "webhook-delete");
    await dialog.getByRole("button", { name: "Delete webhook" }).click();
    await page.getByRole("heading", { name: "Webhooks", exact: true }).waitFor();
    const log = await web.service.untilFinal(eventId);
    expect(log.find((each) => each.webhookId === webhookId)?.state).toBe(DeliveryState.CANCELLED);
    await page.getByRole("link", { name: `${host(good)}/good`, exact: true }).waitFor();
    expect(await page.getByRole("link", { name: "gone.example/hooks", exact: true }).count()).toBe(0);
    await page.goto(`/webhooks/${webhookId}`);
    await page.getByRole("heading", { name: "There is no such webhook" }).waitFor();
    await page.getByRole("link", { name: "Its deliveries" }).waitFor();
  });
});
