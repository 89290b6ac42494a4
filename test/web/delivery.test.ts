import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { changeDelivery, storeDeliveries } from "../support/stored-deliveries.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

/** More than a double can hold. */
const ORDER_ID = 9_007_199_254_740_993n;
const PATIENCE = { timeout: 20_000 };

let web: Web;
let receiver: Receiver;
/** What the receiver answers. */
let answer = 503;
let webhookId: bigint;

beforeAll(async () => {
  web = await startWeb({ RETRY_INITIAL_DELAY: "50ms", TEMPORAL_UI_URL: "http://temporal.example:8233" });
  const { service } = web;
  receiver = await service.receiver((_request, response) => {
    response.writeHead(answer, { "content-type": "application/json" });
    response.end(
      answer === 503
        ? `{\n  "error": "maintenance",\n  "detail": "${"The warehouse is being counted. ".repeat(12)}"\n}`
        : '{"ok":true}',
    );
    return undefined;
  });
  webhookId = await service.register(`${receiver.url}/tenants/acme/hooks/orders?source=shop`);
});
afterAll(() => web?.stop());

/** Publishes an order and answers its delivery's id. */
async function publish(): Promise<string> {
  const events = createClient(EventService, web.service.transport);
  const { eventId } = await events.publishEvent({
    idempotencyKey: randomUUID(),
    userId: "tenant-1",
    data: {
      case: "orderDispatched",
      value: {
        orderId: ORDER_ID,
        orderNumber: "SO-2026-000001",
        dispatchedAt: { seconds: 1_790_000_000n },
        carrier: "Parcel Post International",
        lines: [1n, 2n].map((productId) => ({ productId, sku: `LAMP-0${productId}`, quantity: 3 })),
      },
    },
  });
  const { deliveries } = await web.service.deliveries.listDeliveries({ eventId });
  const id = deliveries[0]?.id as string;
  await expect
    .poll(async () => (await web.service.deliveries.getDelivery({ deliveryId: id })).delivery?.finished, {
      ...PATIENCE,
      interval: 50,
    })
    .toBeDefined();
  return id;
}

const section = (page: Page, name: string) => page.getByRole("region", { name, exact: true });
const attempts = (page: Page) => section(page, "Attempts").getByRole("listitem");

test("a delivery tells what it sends, every attempt with its answer, and how it is sent again, by keyboard alone", async () => {
  answer = 503;
  const id = await publish();
  await web.visit({ path: `/deliveries/${id}` }, async (page) => {
    await page.getByRole("heading", { name: "Delivery", exact: true }).waitFor();
    await expect.poll(() => attempts(page).count(), PATIENCE).toBe(4);
    const fourth = (await attempts(page).first().textContent()) ?? "";
    for (const part of ["Attempt 4", "503 Service Unavailable", "Round 1, 4 of 4", "maintenance"]) {
      expect(fourth).toContain(part);
    }
    await expect.poll(() => page.getByText("The first attempt and three retries failed.").count()).toBe(1);

    const sentIn = (attempt: number) =>
      receiver.received.filter(({ headers }) => headers["webhook-id"] === id)[attempt - 1];
    await page.getByText("Headers of attempt 4", { exact: true }).click();
    const signatureOf = (attempt: number) =>
      page.getByRole("region", { name: `the signature headers of attempt ${attempt}` }).textContent();
    const linesOf = (attempt: number) =>
      ["webhook-timestamp", "webhook-signature"]
        .map((name) => `${name}: ${sentIn(attempt)?.headers[name]}`)
        .join("\n");
    expect(await signatureOf(4)).toBe(linesOf(4));
    const received = page.getByRole("region", { name: "the response headers of attempt 4" });
    expect(await received.textContent()).toContain("content-type: application/json");
    const facts = (await section(page, "Summary").textContent()) ?? "";
    for (const part of ["Usertenant-1", "SubjectSO-2026-000001", "Published by"])
      expect(facts).toContain(part);

    const headers = (await page.getByRole("table", { name: "Headers" }).textContent()) ?? "";
    for (const part of [
      `X-Service-Webhook-Id${id}`,
      `webhook-id${id}`,
      "webhook-signature",
      "OrderDispatched",
    ]) {
      expect(headers).toContain(part);
    }
    const body = page.getByRole("region", { name: "the body as it is sent" });
    expect(await body.textContent()).toContain(`{\n  "OrderId": ${ORDER_ID},\n`);
    const run = page.getByRole("link", { name: "Open in the Temporal UI" });
    expect(await run.getAttribute("href")).toMatch(
      /^http:\/\/temporal\.example:8233\/namespaces\/default\/workflows\//,
    );
    // The activity of its retries, of all activities of the run.
    const activity = page.getByRole("link", { name: "Open its activity in the Temporal UI" });
    const address = (await activity.getAttribute("href")) ?? "";
    const [, workflowId = "", runId = "", eventId] =
      /\/workflows\/([^/]+)\/([^/]+)\/history\/events\/(\d+)$/.exec(address) ?? [];
    const history = await web.service.temporal.workflow
      .getHandle(decodeURIComponent(workflowId), runId)
      .fetchHistory();
    const event = history.events?.find((each) => String(each.eventId) === eventId);
    const scheduled = event?.activityTaskScheduledEventAttributes;
    expect(scheduled?.activityType?.name).toBe("retryDeliveries");
    expect(Buffer.from(scheduled?.input?.payloads?.[0]?.data ?? "").toString()).toContain(
      `webhook ${webhookId}, ${new URL(receiver.url).host}, 1 delivery`,
    );
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "delivery-failed");

    expect(await page.title()).toBe(`Delivery ${id.slice(-8)} · Webhook service`);

    answer = 200;
    await page.getByRole("button", { name: "Send again" }).focus();
    await page.keyboard.press("Enter");
    await page.getByText("It will be sent with the next dispatch").first().waitFor();
    await page.getByText("Up to 4 more attempts under the same id, numbered from 5.").waitFor();
    // The button is gone while the delivery is under way; the focus is on the page all the same.
    await expect.poll(() => page.evaluate("document.activeElement.closest('main') !== null")).toBe(true);
    await expect.poll(() => attempts(page).count(), PATIENCE).toBe(5);
    await section(page, "Summary").getByText("Delivered", { exact: true }).waitFor(PATIENCE);
    const fifth = (await attempts(page).first().textContent()) ?? "";
    for (const part of ["Attempt 5", "200 OK", "Round 2, 1 of 4"]) expect(fifth).toContain(part);
    // Not stored, and the same as it was.
    await page.getByText("Headers of attempt 5", { exact: true }).click();
    expect(await signatureOf(5)).toBe(linesOf(5));
    expect(await attempts(page).first().textContent()).toContain("recomputed with the current secret");
    await expectAccessible(page);
    await expect.poll(() => page.getByRole("button", { name: "Send again" }).count()).toBe(1);
    expect(await page.getByRole("button", { name: "Replay failed since this one…" }).count()).toBe(0);
    await takeScreenshots(page, "delivery-two-rounds");

    await web.service.webhooks.pauseWebhook({ webhookId });
    await page.getByRole("button", { name: "Send again" }).click();
    await page.getByText("It waits until the webhook is resumed").first().waitFor();
    await web.service.webhooks.resumeWebhook({ webhookId });
  });
});

test("what failed since a failed delivery is replayed from its page, that one included", async () => {
  const { service } = web;
  const ofOne = await service.register("https://outage.example/hooks");
  const [, id = ""] = await storeDeliveries(
    service.db,
    [3, 2, 1].map((hours) => ({
      webhookId: ofOne,
      state: "failed" as const,
      created: new Date(Date.now() - hours * 3_600_000),
    })),
  );
  await web.visit({ path: `/deliveries/${id}` }, async (page) => {
    await page.getByRole("button", { name: "Replay failed since this one…" }).click();
    const dialog = page.getByRole("dialog", { name: "Send 2 deliveries again?" });
    await dialog.getByText("https://outage.example/hooks").waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "delivery-replay-since");
    await dialog.getByRole("button", { name: "Send again" }).click();
    await page.getByText("The replay has started").waitFor();
  });
  const { replays } = await createClient(ReplayService, service.transport).listReplays({ webhookId: ofOne });
  expect(replays.map(({ what }) => what.case)).toEqual(["resend"]);
  await service.webhooks.deleteWebhook({ webhookId: ofOne });
});

test("an event tells who published it, its payload and what became of its recipients", async () => {
  answer = 200;
  const { service } = web;
  const failing = await service.receiver(() => 500);
  const second = await service.register(`${failing.url}/hooks`);
  const id = await publish();
  await web.visit({ path: `/deliveries/${id}` }, async (page) => {
    const eventId = (await service.deliveries.getDelivery({ deliveryId: id })).delivery?.eventId as string;
    await section(page, "Summary").getByRole("link", { name: eventId }).click();
    await page.getByRole("heading", { name: "OrderDispatched SO-2026-000001" }).waitFor();
    const facts = (await section(page, "Summary").textContent()) ?? "";
    for (const part of ["Usertenant-1", "Published by", "Idempotency key"]) expect(facts).toContain(part);
    await page.getByRole("group", { name: "Failures by reason" }).getByText("HTTP 500").waitFor();
    const recipients = section(page, "Recipients");
    await expect.poll(() => recipients.getByRole("row").count(), PATIENCE).toBe(3);
    for (const part of [receiver.url.slice(8), failing.url.slice(8)]) {
      expect(await recipients.textContent()).toContain(part);
    }
    expect(await page.getByRole("region", { name: "the payload" }).textContent()).toContain(
      `"OrderId": ${ORDER_ID}`,
    );
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "event");
    await recipients.getByRole("link", { name: "In the list of deliveries" }).click();
    await page.locator(`a[href="/deliveries/${id}"]`).waitFor();
  });
  await service.webhooks.deleteWebhook({ webhookId: second });
});

test("a delivery under way counts down to its next attempt, and is not sent again meanwhile", async () => {
  const { service } = web;
  const [made = ""] = await storeDeliveries(service.db, [
    {
      webhookId,
      state: "retrying",
      tried: [{ durationMs: 5_000, error: "connection timed out (ETIMEDOUT)" }],
      retryAt: new Date(Date.now() + 300_000),
    },
  ]);
  await web.visit({ path: `/deliveries/${made}` }, async (page) => {
    await expect.poll(() => attempts(page).first().textContent(), PATIENCE).toMatch(/Attempt 2in [0-5]:\d\d/);
    expect(await attempts(page).last().textContent()).toContain("Connection timed out (ETIMEDOUT)");
    expect(await page.getByRole("button", { name: "Send again" }).count()).toBe(0);
    await page.getByText("The event is not kept any more.").waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "delivery-retrying");
    // It is followed to its end.
    await changeDelivery(service.db, made, { state: "cancelled" });
    await section(page, "Summary").getByText("Cancelled", { exact: true }).waitFor(PATIENCE);
  });
});

test("a test event that is sent again waits for its paused webhook, and says so", async () => {
  const { service } = web;
  answer = 200;
  const paused = await service.register(`${receiver.url}/paused`);
  const { eventId, deliveryId } = await service.webhooks.sendTestEvent({ webhookId: paused });
  await service.untilFinal(eventId);
  await service.webhooks.pauseWebhook({ webhookId: paused });
  await service.deliveries.sendAgain({ deliveryId });
  await web.visit({ path: `/deliveries/${deliveryId}` }, async (page) => {
    await section(page, "Summary").getByText("Waits until the webhook is resumed.").waitFor();
  });
  await service.webhooks.deleteWebhook({ webhookId: paused });
});

test("a delivery whose webhook is gone, or that one may only read, has no way to be sent again", async () => {
  const { service } = web;
  answer = 200;
  const gone = await service.register(`${receiver.url}/gone`);
  const id = await publish();
  const { secret } = await service.keys.createApiKey({
    name: "reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  await web.visit({ path: `/deliveries/${id}`, key: secret }, async (page) => {
    await expect.poll(() => attempts(page).count(), PATIENCE).toBe(1);
    expect(await page.getByRole("button", { name: /again/ }).count()).toBe(0);
  });
  const [ofGone] = await storeDeliveries(service.db, [
    { webhookId: gone, state: "failed", reason: "interrupted" },
  ]);
  await service.webhooks.deleteWebhook({ webhookId: gone });
  await web.visit({ path: `/deliveries/${ofGone}` }, async (page) => {
    await page.getByText("The webhook was deleted, so this delivery cannot be sent again.").waitFor();
    await page.getByText("The worker crashed 10 times while sending this delivery.").waitFor();
    await page.getByText("No attempts were made.").waitFor();
  });
});

test("a delivery that was cancelled says whether its payload was erased or its webhook deleted", async () => {
  const { service } = web;
  const events = createClient(EventService, service.transport);
  const held = await service.register(`${receiver.url}/held`);
  await service.webhooks.pauseWebhook({ webhookId: held });
  const publishFor = async (userId: string) => {
    const { eventId } = await events.publishEvent({
      idempotencyKey: randomUUID(),
      userId,
      data: {
        case: "orderDispatched",
        value: { orderId: 1n, orderNumber: "SO-1", dispatchedAt: { seconds: 1n } },
      },
    });
    const { deliveries } = await service.deliveries.listDeliveries({ eventId, webhookId: held });
    return deliveries[0]?.id;
  };
  const [erased, deleted] = [await publishFor("erased"), await publishFor("kept")];
  await events.erasePayloads({ userId: "erased" });
  await web.visit({ path: `/deliveries/${erased}` }, async (page) => {
    await section(page, "Summary").getByText("The payload was erased first.").waitFor();
  });
  await service.webhooks.deleteWebhook({ webhookId: held });
  await web.visit({ path: `/deliveries/${deleted}` }, async (page) => {
    await section(page, "Summary").getByText("The webhook was deleted first.").waitFor();
  });
});

test("an address without an event says so", () =>
  web.visit({ path: `/events/${randomUUID()}` }, async (page) => {
    await page.getByText("There is no such event").waitFor();
  }));

test("an address without a delivery says so and leads to the list", () =>
  web.visit({ path: `/deliveries/${randomUUID()}` }, async (page) => {
    await page.getByText("There is no such delivery").waitFor();
    await page.getByRole("link", { name: "All deliveries" }).last().click();
    await page.getByRole("heading", { name: "Deliveries" }).waitFor();
  }));
