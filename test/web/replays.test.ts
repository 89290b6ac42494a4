import { randomUUID } from "node:crypto";
import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { ReplayService, ReplayState } from "../../gen/webhook/v1/replay_pb.ts";
import { ensurePartitions } from "../../src/db/partitions.ts";
import { idAt } from "../support/stored-deliveries.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

/** The time for which an ended replay is shown, in milliseconds. */
const ENDED_SHOWN_MS = 120_000;

let web: Web;
let replays: Client<typeof ReplayService>;
let webhookId: bigint;

beforeAll(async () => {
  // Nothing is dispatched: what a replay has queued waits, and so does the replay.
  web = await startWeb({ DISPATCH_INTERVAL: "24h" });
  replays = createClient(ReplayService, web.service.transport);
  await storeOrders(60, new Date(Date.now() - 60_000));
  webhookId = await web.service.register("https://shop.example/hooks");
});
afterAll(() => web?.stop());

/** Stores orders of a moment that is past: events of the last ten seconds wait. */
async function storeOrders(count: number, occurred: Date): Promise<void> {
  const ids = Array.from({ length: count }, (_, n) => idAt(occurred, n));
  await ensurePartitions(web.service.db, 30, [occurred]);
  const order = { api_key_id: randomUUID(), process: 1, user_id: "tenant-1", occurred, payload: "{}" };
  await web.service.db("events").insert(ids.map((id) => ({ ...order, id, idempotency_key: id })));
}

test("a webhook gets the events that it missed, and the page shows how far that is, pauses, resumes and cancels it", () =>
  web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await page.getByRole("button", { name: "Send missed events…" }).click();
    const dialog = page.getByRole("dialog", { name: "Send missed events?" });
    await dialog.getByText("Each OrderDispatched event since then").waitFor();
    // The day before the webhook was registered is proposed; another span takes one click.
    await dialog.getByRole("button", { name: /^Since/ }).waitFor();
    await dialog.getByRole("radio", { name: "The last hour" }).check();
    expect(await dialog.getByRole("button", { name: /^Since/ }).count()).toBe(0);
    await expectAccessible(page);
    await takeScreenshots(page, "send-missed");
    await dialog.getByRole("button", { name: "Send missed events" }).click();
    await page.getByText("The replay has started").waitFor();
    const card = page.getByRole("listitem", { name: "Missed events" });
    await card.getByText(/^20 deliveries queued · \d+ % examined$/).waitFor();
    await takeScreenshots(page, "replay-running");
    await card.getByRole("button", { name: "Pause" }).click();
    await card.getByText("Paused").waitFor();
    await expectAccessible(page);
    await card.getByRole("button", { name: "Resume" }).click();
    await card.getByText("Running").waitFor();
    await card.getByRole("button", { name: "Cancel replay" }).click();
    await card.getByText("Cancelled").waitFor();
    expect(await card.getByRole("button").count()).toBe(0);
    const { replays: all } = await replays.listReplays({ webhookId });
    expect(all.map(({ state, queued }) => [state, queued])).toEqual([[ReplayState.CANCELLED, 20n]]);
    const what = all[0]?.what;
    const from = what?.case === "backfill" && what.value.from ? timestampDate(what.value.from) : new Date(0);
    const age = Date.now() - from.getTime();
    expect(age).toBeGreaterThanOrEqual(3_600_000);
    expect(age).toBeLessThan(4_500_000);
  }));

test("the page of replays lists them, newest first, and says which webhook is paused", async () => {
  await web.service.webhooks.pauseWebhook({ webhookId });
  const from = timestampFromDate(new Date(Date.now() - 3_600_000));
  const { replay } = await replays.startReplay({ what: { case: "backfill", value: { webhookId, from } } });
  await web.visit({ path: "/deliveries" }, async (page) => {
    await page.getByRole("link", { name: "Replays", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Replays" }).waitFor();
    const cards = page.getByRole("listitem", { name: "Missed events" });
    await expect.poll(() => cards.count()).toBe(2);
    await cards.first().getByText("the webhook is paused: the rest waits until it is resumed").waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "replays");
  });
  await replays.cancelReplay({ replayId: replay?.id as string });
  await web.service.webhooks.resumeWebhook({ webhookId });
});

test("a replay of one event names it, and leads to it", async () => {
  const eventId = idAt(new Date(Date.now() - 60_000), 7);
  await replays.startReplay({
    what: { case: "resend", value: { eventId, states: [DeliveryState.CANCELLED] } },
  });
  await web.visit({ path: "/replays" }, async (page) => {
    const card = page.getByRole("listitem", { name: "Cancelled deliveries" });
    await card.getByText(/All webhooks, event [0-9a-f-]{36}/).waitFor();
    expect(await card.getByRole("link", { name: eventId }).getAttribute("href")).toBe(`/events/${eventId}`);
  });
});

test("who may only read sees replays, and no way to change or start one", async () => {
  const { secret } = await web.service.keys.createApiKey({
    name: "reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  const { replay } = await replays.startReplay({ what: { case: "resend", value: { webhookId } } });
  await web.visit({ path: "/replays", key: secret }, async (page) => {
    const card = page.getByRole("listitem", { name: "Failed deliveries" });
    await card.waitFor();
    expect(await page.getByRole("button", { name: /Pause|Cancel replay/ }).count()).toBe(0);
    await page.goto(`${web.service.url}/webhooks/${webhookId}`);
    await page.getByRole("heading", { name: "Last deliveries" }).waitFor();
    expect(await page.getByRole("button", { name: "Send missed events…" }).count()).toBe(0);
  });
  await replays.cancelReplay({ replayId: replay?.id as string }).catch(() => {});
});

test("a replay that ended two minutes ago disappears from the open list of deliveries", async () => {
  const { replay } = await replays.startReplay({ what: { case: "resend", value: { webhookId } } });
  await replays.cancelReplay({ replayId: replay?.id as string }).catch(() => {});
  await web.visit({ path: "/deliveries" }, async (page) => {
    await page.clock.install();
    await page.reload();
    const group = page.getByRole("group", { name: "Replays" });
    await group.waitFor();
    await page.clock.fastForward(ENDED_SHOWN_MS);
    await group.waitFor({ state: "detached" });
  });
});

test("a replay whose start got no answer starts once in its dialog, and again after the dialog was closed", async () => {
  const id = await web.service.register("https://shop.example/unanswered");
  const started = async () => (await replays.listReplays({ webhookId: id })).replays;
  await web.visit({ path: `/webhooks/${id}` }, async (page) => {
    let lost = 0;
    await page.route("**/StartReplay", async (route) => {
      if (lost === 2) return route.continue();
      await route.fetch();
      lost++;
      await route.abort();
    });
    await page.getByRole("button", { name: "Send missed events…" }).click();
    const dialog = page.getByRole("dialog", { name: "Send missed events?" });
    for (const count of [1, 2]) {
      await dialog.getByRole("button", { name: "Send missed events" }).click();
      await expect.poll(() => lost).toBe(count);
      await dialog.getByRole("alert").getByText("The service does not answer").waitFor();
    }
    const [first, ...others] = await started();
    expect(others).toEqual([]);
    await replays.cancelReplay({ replayId: first?.id as string });
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await dialog.waitFor({ state: "hidden" });
    await page.getByRole("button", { name: "Send missed events…" }).click();
    await dialog.getByRole("button", { name: "Send missed events" }).click();
    await page.getByText("The replay has started").waitFor();
    const { CANCELLED, RUNNING } = ReplayState;
    expect((await started()).map(({ state }) => state)).toEqual([RUNNING, CANCELLED]);
  });
});
