import type { Page, Request } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { changeDelivery, idAt, storeDeliveries } from "../support/stored-deliveries.ts";
import { startWeb, type Web } from "./web.ts";

/** How often the list is read again. */
const REFRESH_MS = 4_000;
const HOUR = 3_600_000;
/** The size of the page by which the dialog counts. */
const COUNTED = 1_000;

let web: Web;
let shop: bigint;
/** Deliveries of the deleted webhook. */
let gone: bigint;

beforeAll(async () => {
  web = await startWeb({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
  shop = await web.service.register("https://shop.example/hooks");
  gone = await web.service.register("https://gone.example/hooks");
  await web.service.webhooks.deleteWebhook({ webhookId: gone });
});
afterAll(() => web?.stop());

/** Stores failed deliveries of these webhooks, the first one the newest, before all others. */
async function storeFailed(hoursAgo: number, ...webhookIds: bigint[]): Promise<string[]> {
  const stored = webhookIds.map((webhookId, n) => {
    const created = new Date(Date.now() - hoursAgo * HOUR - n * 60_000);
    return { id: idAt(created), webhookId, state: "failed" as const, finished: created, attempts: 4 };
  });
  return storeDeliveries(web.service.db, stored);
}

/** Ticks deliveries and opens the question. */
async function ask(page: Page, ...ids: string[]): Promise<void> {
  for (const id of ids) await page.getByRole("checkbox", { name: `Select delivery ${id}` }).check();
  await page.getByRole("button", { name: "Send again…" }).click();
}

/** The ids of the deliveries that the page asks to be sent again, in order. */
function callsOf(page: Page): string[] {
  const calls: string[] = [];
  page.on("request", (request: Request) => {
    if (request.url().endsWith("/SendAgain")) calls.push(request.postDataJSON().deliveryId);
  });
  return calls;
}

test("a refused delivery holds up none of the other ticked ones, and is named", async () => {
  const [first = "", refused = "", last = ""] = await storeFailed(1, shop, gone, shop);
  await web.visit({ path: "/deliveries" }, async (page) => {
    const calls = callsOf(page);
    await ask(page, first, refused, last);
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Send 3 deliveries again" }).click();
    const failure = dialog.getByRole("alert");
    await failure.getByText("2 deliveries will be sent with the next dispatch.").waitFor();
    expect(await failure.textContent()).toContain(`Webhook ${gone} of delivery ${refused}`);
    expect(calls).toEqual([first, refused, last]);
    const states = await web.service.db("all_deliveries").whereIn("id", [first, last]).pluck("state");
    expect(states).toEqual(["pending", "pending"]);
    // The question stays the same once the list shows the sent ones as pending, and trying again sends nothing twice.
    await page.getByRole("row").filter({ hasText: last }).getByText("Pending").waitFor();
    await dialog.getByRole("button", { name: "Send 3 deliveries again" }).click();
    await expect.poll(() => calls.slice(3)).toEqual([refused]);
  });
});

test("a delivery that was sent again before a refusal can be sent again when it has failed once more", async () => {
  const [again = "", refused = ""] = await storeFailed(3, shop, gone);
  await web.visit({ path: "/deliveries", clock: true }, async (page) => {
    const calls = callsOf(page);
    await ask(page, again, refused);
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Send 2 deliveries again" }).click();
    await dialog.getByRole("alert").waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await dialog.waitFor({ state: "hidden" });
    const row = page.getByRole("row").filter({ hasText: again });
    const untilState = (state: string) =>
      expect
        .poll(async () => {
          await page.clock.fastForward(REFRESH_MS);
          return row.textContent();
        })
        .toContain(state);
    await untilState("Pending");
    await changeDelivery(web.service.db, again, { state: "failed", attempts: 8 });
    await untilState("Failed");
    await page.getByRole("checkbox", { name: `Select delivery ${refused}` }).uncheck();
    await ask(page, again);
    await dialog.getByRole("button", { name: "Send 1 delivery again" }).click();
    await page.getByText("1 delivery will be sent with the next dispatch").waitFor();
    expect(calls).toEqual([again, refused, again]);
  });
});

test("deliveries of paused webhooks are said to wait for them, not to be sent with the next dispatch", async () => {
  const paused = await web.service.register("https://paused.example/hooks");
  await web.service.webhooks.pauseWebhook({ webhookId: paused });
  const ids = await storeFailed(4, shop, paused, paused);
  await web.visit({ path: "/deliveries" }, async (page) => {
    await ask(page, ...ids);
    await page.getByRole("button", { name: "Send 3 deliveries again" }).click();
    await page
      .getByText(
        "1 delivery will be sent with the next dispatch. 2 deliveries wait until the webhook is resumed.",
      )
      .waitFor();
  });
});

/** Has the count find this many deliveries and end early, as over many rows that the filter leaves out. */
async function endCountEarly(page: Page, count: number): Promise<void> {
  const json = {
    deliveries: Array.from({ length: count }, () => ({})),
    nextPageToken: "older",
    searchedBackTo: "2026-01-02T03:04:05Z",
  };
  await page.route("**/ListDeliveries", (route) =>
    route.request().postDataJSON().pageSize === COUNTED ? route.fulfill({ json }) : route.continue(),
  );
}

test.each([
  { count: 3, title: "Send at least 3 deliveries again?", words: /^Counted back to 2 Jan 2026/ },
  { count: 0, title: "Send them again?", words: /^No delivery found back to 2 Jan 2026/ },
])(
  "a count that ends early after $count deliveries says so, and does not hold up the replay",
  async ({ count, title, words }) => {
    await storeFailed(5, shop);
    await web.visit({ path: `/deliveries?webhook=${shop}` }, async (page) => {
      await endCountEarly(page, count);
      await page.getByRole("button", { name: "Send failed ones again…" }).click();
      const dialog = page.getByRole("dialog", { name: title });
      await dialog.getByText(words).waitFor();
      expect(await dialog.getByText("No delivery matches").count()).toBe(0);
      await dialog.getByText("Deliveries of paused webhooks wait").waitFor();
      await dialog.getByRole("button", { name: "Send again" }).click();
      await page.getByText("The replay has started").waitFor();
    });
  },
);
