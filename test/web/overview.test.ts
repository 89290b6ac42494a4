import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { CHANGE } from "../../src/db/deliveries/rollup-deltas.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  // Nothing is dispatched but by the page's button and by this.
  web = await startWeb({
    DISPATCH_INTERVAL: "24h",
    RETRY_INITIAL_DELAY: "10ms",
    TEMPORAL_UI_URL: "https://temporal.example",
  });
});
afterAll(() => web?.stop());

test("shows how many deliveries stand where, which webhooks fail and are slow, and the last runs", async () => {
  const { service } = web;
  const [good, bad] = await Promise.all([service.receiver(), service.receiver(() => 500)]);
  await service.register(`${good.url}/hooks`);
  await service.register(`${bad.url}/a/very/long/path/that/no/table/has/room/for/in/one/line`);
  const published = await Promise.all([1n, 2n, 3n].map((order) => service.publish(order)));
  await createClient(StatsService, service.transport).dispatchNow({});
  for (const { eventId } of published) await service.untilFinal(eventId);
  await web.visit({ path: "/" }, async (page) => {
    await page.getByRole("link", { name: "Delivered 3 last 24 hours none the day before" }).waitFor();
    const failed = page.getByRole("link", { name: "Failed deliveries 3 last 24 hours none the day before" });
    expect(await failed.getAttribute("href")).toBe("/deliveries?state=failed&last=24h");
    await page
      .getByRole("img", { name: "In the last 24 hours 3 attempts succeeded and 12 failed." })
      .waitFor();
    await page.getByRole("link", { name: /^Failed attempts 12 last 24 hours/ }).waitFor();
    const failing = page.locator("section").filter({ hasText: "Most failed attempts" });
    await failing.getByText("12 of 12").waitFor();
    await expect.poll(() => failing.getByRole("row").count()).toBe(2);
    const slow = page.locator("section").filter({ hasText: "Slowest webhooks" });
    await expect.poll(() => slow.getByRole("row").count()).toBe(3);
    const runs = page.locator("section").filter({ hasText: "Last dispatch runs" });
    await runs.getByRole("button", { name: "Show" }).click();
    const link = runs.getByRole("link", { name: "Open in a new tab" }).first();
    expect(await link.getAttribute("href")).toMatch(
      /^https:\/\/temporal\.example\/namespaces\/default\/workflows\//,
    );
    await takeScreenshots(page, "overview");
    await expectAccessible(page);
    await expectFitsPhone(page);
  });
});

test("keeps its figures up to date without being loaded anew, and dispatches when told to", () =>
  web.visit({ path: "/" }, async (page) => {
    await page.getByRole("link", { name: "Pending 0" }).waitFor();
    const { eventId } = await web.service.publish(4n);
    await page.getByRole("link", { name: "Pending 2" }).waitFor();
    await page.getByRole("button", { name: "Dispatch now" }).click();
    await page.getByText("A dispatch has started").waitFor();
    await web.service.untilFinal(eventId);
    await page.getByRole("link", { name: "Pending 0" }).waitFor();
    await page.getByRole("link", { name: /^Delivered 4 last 24 hours/ }).waitFor();
  }));

test("figures of a day are compared with those of the day before", async () => {
  const { db } = web.service;
  const minute = new Date(Date.now() - 30 * 3_600_000);
  minute.setSeconds(0, 0);
  const { delivered, failed, retrying } = CHANGE;
  const store = (when: Date, change: number, count: number) =>
    db("rollup_deltas").insert(
      // A row holds some hundreds of changes.
      Array.from({ length: Math.ceil(count / 250) }, (_, row) => {
        const changes = Array(Math.min(250, count - row * 250)).fill(change);
        return {
          minute: when,
          webhook_ids: changes.map(() => "1"),
          changes,
          durations_ms: changes.map(() => 5),
        };
      }),
    );
  await store(minute, delivered, 1_001);
  await store(minute, failed, 8);
  await store(minute, retrying, 5_000);
  await store(new Date(minute.getTime() + 24 * 3_600_000), delivered, 1_000);
  await web.visit({ path: "/" }, async (page) => {
    await page
      .getByRole("link", { name: /^Delivered 1,004 .* less than 1% more than the day before/ })
      .waitFor();
    await page
      .getByRole("link", { name: /^Failed deliveries 4 .* 50% fewer than the day before \(8\)$/ })
      .waitFor();
    await page
      .getByRole("link", { name: /^Failed attempts \d+ .* more than 99% fewer than the day before/ })
      .waitFor();
  });
});

test("times are shown with their zone, and in UTC at the press of a button, which is kept", () =>
  web.visit({ path: "/webhooks/1" }, async (page) => {
    const created = page.locator("time").filter({ hasText: /\d{4}/ }).first();
    await created.filter({ hasText: /CET|CEST|GMT\+[12]/ }).waitFor();
    await page.getByRole("button", { name: /Show times in UTC/ }).click();
    await created.filter({ hasText: /UTC/ }).waitFor();
    const utc = (await created.getAttribute("datetime")) ?? "";
    expect(await created.textContent()).toContain(utc.slice(11, 19));
    await page.reload();
    await created.filter({ hasText: /UTC/ }).waitFor();
  }));

test("says that its figures are not live while the service cannot be reached, and goes on by itself", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await page.route("**/WatchOverview", (route) => route.abort());
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByText("The figures are not live at the moment").waitFor();
    await page.unroute("**/WatchOverview");
    await page.getByRole("link", { name: /^Pending \d+$/ }).waitFor();
    expect(await page.getByText("The figures are not live at the moment").count()).toBe(0);
  }));

test("says so too when nothing arrives for a minute, as over a connection that was lost, and opens another one", () =>
  web.visit({ path: "/", clock: true }, async (page) => {
    await page.getByRole("link", { name: /^Pending \d+$/ }).waitFor();
    await page.route("**/WatchOverview", (route) => route.abort());
    await page.clock.fastForward(61_000);
    await page.getByText("The figures are not live at the moment").waitFor();
    await page.unroute("**/WatchOverview");
    await page.clock.fastForward(61_000);
    await page.getByText("The figures are not live at the moment").waitFor({ state: "detached" });
  }));

test("offers a dispatch to nobody who may only read", async () => {
  const { secret } = await web.service.keys.createApiKey({
    name: "Reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  await web.visit({ path: "/", key: secret }, async (page) => {
    await page.getByRole("link", { name: /^Pending \d+$/ }).waitFor();
    expect(await page.getByRole("button", { name: "Dispatch now" }).count()).toBe(0);
  });
});
