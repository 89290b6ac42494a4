import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { changeDelivery, type Stored } from "../support/stored-deliveries.ts";
import { SCREENS } from "./browser.ts";
import { enterOn, tabTo } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
let reader: string;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
  const { secret } = await web.service.keys.createApiKey({
    name: "Reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA],
  });
  reader = secret;
});
afterAll(() => web?.stop());

/** What finds event types in a dialog. */
const search = (page: Page) =>
  page.getByRole("dialog").getByRole("searchbox", { name: "Search event types" });
/** The addresses that the list shows, from the top. */
const addresses = (page: Page) => page.locator("tbody td:first-child a").allTextContents();
/** Holds what the list shows against what it should, once it does or a busy machine has had its time. */
const listed = (page: Page) => expect.poll(() => addresses(page));

test("an empty list says what to do next, and offers it to nobody who may not", async () => {
  await web.visit({ path: "/webhooks", key: reader }, async (page) => {
    await page.getByRole("heading", { name: "No webhooks yet" }).waitFor();
    expect(await page.getByRole("button", { name: "New webhook" }).count()).toBe(0);
    await expectAccessible(page);
  });
});

test("a webhook is registered by keyboard alone, from the sample of its event type to its own page", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    const button = page.getByRole("button", { name: "New webhook" });
    await button.focus();
    await page.keyboard.press("Enter");
    await expect.poll(() => search(page).and(page.locator(":focus")).count()).toBe(1);
    // Found by what it says of itself.
    await page.keyboard.type("stock");
    await expect.poll(() => page.getByRole("dialog").getByRole("checkbox").count()).toBe(1);
    // Enter does not send the form.
    await page.keyboard.press("Enter");
    await tabTo(page, page.getByRole("checkbox", { name: "StockLevelChanged" }));
    await page.keyboard.press("Space");
    const sample = page.getByRole("region", { name: "Sample of StockLevelChanged" });
    expect(JSON.parse((await sample.textContent()) ?? "")).toHaveProperty("ProductId");
    expect(await page.getByText("Enter the URL of the endpoint.").count()).toBe(0);
    // The next field.
    await page.keyboard.press("Tab");
    const address = page.getByRole("textbox", { name: "URL" });
    await expect.poll(() => address.and(page.locator(":focus")).count()).toBe(1);
    await page.keyboard.type("https://shop.example/stock");
    await page.keyboard.press("Enter");
    // The notice comes before the page, and goes after seconds, however long the page takes.
    await page.getByText("Webhook registered").waitFor();
    await page.getByRole("heading", { name: "shop.example/stock" }).waitFor();
    // The dialog is not in the way of going back.
    await page.goBack();
    await page.getByRole("heading", { name: "Webhooks", exact: true }).waitFor();
    await listed(page).toEqual(["shop.example/stock"]);
    expect(await page.getByRole("dialog").count()).toBe(0);
  }));

test("a form closes by Escape and by no click beside it, and the focus is back where it was", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    const focused = () => page.evaluate("document.activeElement.id || document.activeElement.textContent");
    const dialog = page.getByRole("dialog", { name: "New webhook" });
    await page.getByRole("button", { name: "New webhook" }).focus();
    await page.keyboard.press("Enter");
    await search(page).waitFor();
    await page.mouse.click(5, SCREENS.wide.height - 5);
    await expect.poll(() => dialog.count()).toBe(1);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await expect.poll(focused).toBe("New webhook");
    // What opened it on another page is gone: the focus is on this page then.
    await page.goto("/webhooks?new=1");
    await search(page).waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await expect.poll(focused).toBe("content");
    expect(new URL(page.url()).search).toBe("");
  }));

test("notices have a group of their own among the event types, and are found by what they say", () =>
  web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog");
    const notices = dialog.getByRole("group", { name: "Notices about webhooks" });
    await notices.getByRole("checkbox", { name: "WebhookDisabled" }).waitFor();
    expect(await notices.getByRole("checkbox", { name: "OrderDispatched" }).count()).toBe(0);
    await expectAccessible(page);
    await takeScreenshots(page, "webhook-new-empty");
    await search(page).fill("no such thing");
    await dialog.getByText("No such event type").waitFor();
    await search(page).fill("disabled");
    await expect.poll(() => dialog.getByRole("checkbox").count()).toBe(1);
    await notices.getByRole("checkbox", { name: "WebhookDisabled" }).check();
    const sample = page.getByRole("region", { name: "Sample of WebhookDisabled" });
    expect(JSON.parse((await sample.textContent()) ?? "")).toHaveProperty("Reason");
    await takeScreenshots(page, "webhook-new-notice");
    await page.getByRole("textbox", { name: "URL" }).fill("https://ops.example/notices");
    await page.getByRole("button", { name: "Register webhook" }).click();
    await page.getByRole("heading", { name: "ops.example/notices" }).waitFor();
    await page.getByText("WebhookDisabled").first().waitFor();
  }));

test("an address is refused at its field, in the service's words, and can be put right there", () =>
  web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("checkbox", { name: "DocumentCreated" }).check();
    const address = page.getByRole("textbox", { name: "URL" });
    for (const [given, words] of [
      ["http://shop.example/hooks", "Begins with http://; only https:// is allowed."],
      [
        "https://user:secret@shop.example/",
        "Contains a user name or password, which is not allowed; remove it.",
      ],
      ["https://10.0.0.7/hooks", /10\.0\.0\.7/],
    ] as const) {
      await address.fill(given);
      await page.getByRole("button", { name: "Register webhook" }).click();
      await page.getByText(words).waitFor();
    }
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "webhook-new");
    await address.fill("https://shop.example/documents");
    await page.getByRole("button", { name: "Register webhook" }).click();
    await page.getByRole("heading", { name: "shop.example/documents" }).waitFor();
  }));

test("registering what is registered already is told, and leads to that webhook", async () => {
  const id = await web.service.register("https://again.example/hooks");
  await web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("checkbox", { name: "OrderDispatched" }).check();
    // Another spelling of the same address.
    await page.getByRole("textbox", { name: "URL" }).fill("https://AGAIN.example:443/hooks");
    await page.getByRole("button", { name: "Register webhook" }).click();
    await page.getByText("Already registered").waitFor();
    await page.waitForURL(`**/webhooks/${id}`);
  });
});

test("the list is narrowed by state, event type, application and words, all of it in the address", async () => {
  const { installedApp } = await web.service.keys.createInstalledApp({ name: "Warehouse link" });
  const { secret } = await web.service.keys.createApiKey({
    name: "Warehouse",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA],
    installedApplicationId: installedApp?.id as string,
  });
  const webhookId = await web.service.register("https://warehouse.example/in", { process: 3, key: secret });
  await web.service.register("https://warehouse.example/out", { process: 3, key: secret });
  await web.service.register("https://warehouse.example/counted", { process: 3 });
  await web.service.register("https://warehouse.example/orders", { process: 1 });
  await web.service.webhooks.pauseWebhook({ webhookId });
  await web.visit(
    { path: "/webhooks?process=StockLevelChanged&search=warehouse", key: reader },
    async (page) => {
      await listed(page).toEqual([
        "warehouse.example/counted",
        "warehouse.example/out",
        "warehouse.example/in",
      ]);
      await page.getByRole("combobox", { name: "Installed app" }).click();
      await page.getByRole("option", { name: "Warehouse link" }).click();
      await listed(page).toEqual(["warehouse.example/out", "warehouse.example/in"]);
      await page.getByRole("combobox", { name: "State" }).click();
      await page.getByRole("option", { name: "Paused" }).click();
      await listed(page).toEqual(["warehouse.example/in"]);
      await page.goBack();
      await listed(page).toHaveLength(2);
      await page.getByRole("searchbox", { name: "Search" }).fill("warehouse OUT");
      await listed(page).toEqual(["warehouse.example/out"]);
      const shared = page.url();
      await page.getByRole("searchbox", { name: "Search" }).fill("nothing like it");
      await page.getByRole("button", { name: "Clear the filters" }).click();
      await listed(page).toContain("warehouse.example/orders");
      await takeScreenshots(page, "webhooks-apps");
      await page.goto(shared);
      await listed(page).toEqual(["warehouse.example/out"]);
    },
  );
});

test("unknown filters in the address are shown, and cleared by keyboard", async () => {
  await web.service.register("https://cleared.example/in", { process: 1 });
  await web.visit(
    { path: "/webhooks?process=NoSuchType&state=gone&search=cleared", key: reader },
    async (page) => {
      await page.getByRole("heading", { name: "No webhook matches" }).waitFor();
      const type = page.getByRole("combobox", { name: "Event type" });
      await expect.poll(() => type.inputValue()).toBe("NoSuchType");
      await expect.poll(() => page.getByRole("combobox", { name: "State" }).inputValue()).toBe("gone");
      await enterOn(page, page.getByRole("button", { name: "Any event type" }));
      await expect.poll(() => type.and(page.locator(":focus")).count()).toBe(1);
      await enterOn(page, page.getByRole("button", { name: "Any state" }));
      await listed(page).toEqual(["cleared.example/in"]);
    },
  );
});

test("a filter changed before the page shows the change before it undoes neither", async () => {
  await web.service.register("https://quick.example/in", { process: 1 });
  await web.visit(
    { path: "/webhooks?process=NoSuchType&state=gone&search=quick", key: reader },
    async (page) => {
      const buttons = page.getByRole("button", { name: /^Any (event type|state)$/ });
      await expect.poll(() => buttons.count()).toBe(2);
      await buttons.evaluateAll(async (each: { click(): void }[]) => {
        for (const button of each) {
          button.click();
          // The router takes over the change, but nothing is rendered.
          for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
        }
      });
      await listed(page).toEqual(["quick.example/in"]);
      expect(new URL(page.url()).search).toBe("?search=quick");
    },
  );
});

test("a test event says why it ended, also without an attempt, and counts one attempt as one", async () => {
  const webhookId = await web.service.register("https://ended.example/hooks");
  const endings: [Partial<Stored>, string][] = [
    [{ state: "failed", reason: "queue full" }, "Never sent: more deliveries waited for the webhook"],
    [{ state: "failed", reason: "its event cannot be read" }, "It failed: its event cannot be read."],
    [{ state: "cancelled", reason: "payload erased" }, "The payload was erased first."],
    [
      { state: "failed", attempts: 1, tried: [{ status: 410 }] },
      "It failed after 1 attempt. The last: the endpoint answered 410.",
    ],
  ];
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    const section = page.getByRole("region", { name: "Test event" });
    for (const [ending, said] of endings) {
      await page.getByRole("button", { name: /^Send (test event|another)$/ }).click();
      await section.getByText("It waits for the next dispatch.").waitFor();
      const link = section.getByRole("link", { name: "The delivery, with every attempt" });
      const id = (await link.getAttribute("href"))?.split("/").at(-1) ?? "";
      await changeDelivery(web.service.db, id, ending);
      await section.getByText(said).waitFor();
    }
  });
});

test("ten thousand webhooks are searched and paged through at once", async () => {
  await web.service.db.raw(`
    insert into webhooks (process, url, target_url, api_key_id, secret, created)
    select 1 + n % 3, url, url, api_key_id, secret, now() - n * interval '7 minutes'
    from (select api_key_id, secret from webhooks order by id limit 1) one,
      generate_series(1, 10000) n,
      lateral (select 'https://customer-' || n || '.example/integrations/' || repeat('orders/', n % 12) || 'hooks' as url) u`);
  await web.visit({ path: "/webhooks?page=3", key: reader }, async (page) => {
    await page.getByText(/^101–150 of 10,0\d\d webhooks$/).waitFor();
    expect(await addresses(page)).toHaveLength(50);
    await page.getByRole("searchbox", { name: "Search" }).fill("customer-7777.");
    await listed(page).toHaveLength(1);
    expect(new URL(page.url()).searchParams.has("page")).toBe(false);
    await page.goto("/webhooks");
    await page.getByRole("button", { name: "Page 2", exact: true }).click();
    await page.getByText(/^51–100 of/).waitFor();
  });
});

test("the focus stays on the button that led to the last page of the list", () =>
  web.visit({ path: "/webhooks?search=customer-12", key: reader }, async (page) => {
    await page.getByText(/^1–50 of 111 webhooks$/).waitFor();
    const next = page.getByRole("button", { name: "Go to the next page" });
    await next.focus();
    for (const shown of ["51–100 of 111 webhooks", "101–111 of 111 webhooks"]) {
      await page.keyboard.press("Enter");
      await page.getByText(shown).waitFor();
    }
    await expect.poll(() => next.isDisabled()).toBe(true);
    expect(await next.and(page.locator(":focus")).count()).toBe(1);
    await page.keyboard.press("Enter");
    await expectAccessible(page);
    await page.getByText("101–111 of 111 webhooks").waitFor();
  }));
