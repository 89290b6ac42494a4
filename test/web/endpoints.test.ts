import { type Client, createClient } from "@connectrpc/connect";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Endpoint, EndpointService } from "../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { keyedTransport } from "../support/test-service.ts";
import { tabTo } from "./keyboard.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots, untilRead } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
let endpoints: Client<typeof EndpointService>;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
  endpoints = createClient(EndpointService, web.service.transport);
});
afterAll(() => web?.stop());

async function created(url: string, processes: WebhookProcess[]): Promise<Endpoint> {
  const { endpoint } = await endpoints.createEndpoint({ processes, url });
  return endpoint as Endpoint;
}

const idsOf = ({ webhooks }: Endpoint) => webhooks.map(({ id }) => id) as [bigint, bigint];
const section = (page: Page) => page.getByRole("region", { name: "Event types" });
const typeList = (page: Page) => page.getByRole("list", { name: "Event types of this endpoint" });
const types = (page: Page) =>
  typeList(page).getByRole("listitem").locator(":scope > :first-child").allTextContents();

/** Chooses event types in an open dialog, or takes chosen ones away. */
async function choose(page: Page, ...names: string[]): Promise<void> {
  for (const name of names) await page.getByRole("dialog").getByRole("checkbox", { name }).click();
}

test("a URL is registered for several event types by keyboard alone, and each has a page that leads to the others", () =>
  web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog", { name: "New webhook" });
    await tabTo(page, dialog.getByRole("checkbox", { name: "StockLevelChanged" }));
    await page.keyboard.press("Space");
    await tabTo(page, dialog.getByRole("checkbox", { name: "DocumentCreated" }), { back: true });
    await page.keyboard.press("Space");
    await dialog.getByRole("button", { name: "StockLevelChanged", exact: true }).click();
    const sample = page.getByRole("region", { name: "Sample of StockLevelChanged" });
    expect(JSON.parse((await sample.textContent()) ?? "")).toHaveProperty("ProductId");
    await expectAccessible(page);
    await takeScreenshots(page, "endpoint-new");
    await dialog.getByRole("textbox", { name: "URL" }).focus();
    await page.keyboard.type("https://shop.example/several");
    await page.keyboard.press("Enter");
    await page.getByText("Endpoint registered").waitFor();
    await page.getByRole("heading", { name: "shop.example/several", level: 1 }).waitFor();
    // The page of the type that was chosen first.
    expect(await typeList(page).locator("[aria-current=page]").allTextContents()).toEqual([
      "StockLevelChanged",
    ]);
    expect(await types(page)).toEqual(["DocumentCreated", "StockLevelChanged"]);
    await untilRead(page);
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "endpoint");
    await typeList(page).getByRole("link", { name: "DocumentCreated" }).click();
    await expect
      .poll(() => typeList(page).locator("[aria-current=page]").allTextContents())
      .toEqual(["DocumentCreated"]);
  }));

test("several event types are refused where a webhook has one of them, which the error names", async () => {
  const webhookId = await web.service.register("https://taken.example/hooks");
  await web.visit({ path: "/webhooks?new=1" }, async (page) => {
    await choose(page, "OrderDispatched", "DocumentCreated");
    await page.getByRole("textbox", { name: "URL" }).fill("https://taken.example/hooks");
    await page.getByRole("button", { name: "Register webhook" }).click();
    await page.getByText(`OrderDispatched (webhook ${webhookId})`).waitFor();
    await expectAccessible(page);
  });
});

test("all events are chosen with one button, which leaves notices as they are, and a search keeps chosen ones in sight", () =>
  web.visit({ path: "/webhooks?new=1" }, async (page) => {
    const dialog = page.getByRole("dialog");
    const checked = () =>
      dialog.getByRole("checkbox", { checked: true }).evaluateAll((all) => all.map((each) => each.id).length);
    await choose(page, "WebhookDisabled", "DocumentCreated");
    await dialog.getByRole("button", { name: "Choose all events" }).click();
    expect(await checked()).toBe(4);
    await dialog.getByRole("searchbox", { name: "Search event types" }).fill("recovered");
    await expect.poll(() => dialog.getByRole("checkbox").count()).toBe(5);
    await dialog.getByRole("button", { name: "Choose no events" }).click();
    await expect.poll(() => dialog.getByRole("checkbox").count()).toBe(2);
    expect(await dialog.getByRole("checkbox", { name: "WebhookDisabled" }).isChecked()).toBe(true);
    await expectAccessible(page);
  }));

test("event types are added to a webhook of one, with its secret, and taken away again", async () => {
  const webhookId = await web.service.register("https://grows.example/hooks");
  const secretOf = async (id: bigint) =>
    (await web.service.webhooks.getWebhookSecret({ webhookId: id })).secret;
  await web.visit({ path: `/webhooks/${webhookId}` }, async (page) => {
    await section(page).getByText("This endpoint gets one event type.").waitFor();
    await section(page).getByRole("button", { name: "Add event types" }).click();
    await choose(page, "DocumentCreated", "StockLevelChanged");
    await takeScreenshots(page, "endpoint-add");
    await page.getByRole("button", { name: "Save event types" }).click();
    await page.getByText("Event types changed").waitFor();
    await expect.poll(() => types(page)).toEqual(["OrderDispatched", "DocumentCreated", "StockLevelChanged"]);
    const { webhook } = await web.service.webhooks.getWebhook({ webhookId });
    const { endpoint } = await endpoints.getEndpoint({ endpointId: webhook?.endpointId as string });
    const secrets = await Promise.all((endpoint as Endpoint).webhooks.map(({ id }) => secretOf(id)));
    expect(new Set(secrets).size).toBe(1);

    // Its own type, too: the page of another one takes its place.
    await section(page).getByRole("button", { name: "Change event types" }).click();
    await choose(page, "OrderDispatched", "StockLevelChanged");
    const dialog = page.getByRole("dialog", { name: "Event types" });
    await dialog.getByText("OrderDispatched is removed").waitFor();
    await dialog.getByText("Nothing waits to be delivered at the moment.").first().waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "endpoint-change");
    await page.getByRole("button", { name: "Save event types" }).click();
    await page.waitForURL(`**/webhooks/${endpoint?.webhooks[1]?.id}`);
    await expect.poll(() => types(page)).toEqual(["DocumentCreated"]);
    await section(page).getByRole("button", { name: "Add event types" }).click();
    await choose(page, "DocumentCreated");
    await page.getByRole("button", { name: "Save event types" }).click();
    await page.getByText("Choose at least one event type. To remove all, delete the endpoint.").waitFor();
  });
});

test("what changes for all event types of an endpoint names all of them", async () => {
  const endpoint = await created("https://shared.example/hooks", [1, 2]);
  const [first, second] = idsOf(endpoint);
  await web.visit({ path: `/webhooks/${first}` }, async (page) => {
    await typeList(page).getByRole("link", { name: "DocumentCreated" }).waitFor();
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await page
      .getByRole("dialog")
      .getByText("Applies to all 2 event types of this endpoint: OrderDispatched, DocumentCreated.")
      .waitFor();
    await expectAccessible(page);
    await page.getByRole("textbox", { name: "Name" }).fill("Shop");
    await page.getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { name: "Shop", level: 1 }).waitFor();
    await page.getByRole("button", { name: "Rotate", exact: true }).click();
    const dialog = page.getByRole("dialog", { name: "Rotate the signing secret?" });
    await dialog.getByText("OrderDispatched, DocumentCreated", { exact: true }).waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Pause", exact: true }).click();
    await page.getByText("Events of OrderDispatched, DocumentCreated queue until you resume it.").waitFor();
    await expect.poll(() => typeList(page).getByText("Paused").count()).toBe(2);
    const { webhook } = await web.service.webhooks.getWebhook({ webhookId: second });
    expect([webhook?.name, webhook?.paused !== undefined]).toEqual(["Shop", true]);
  });
});

test("one event type is deleted, or the endpoint with all of them", async () => {
  const endpoint = await created("https://ends.example/hooks", [1, 2, 3]);
  const [first, second] = idsOf(endpoint);
  await web.visit({ path: "/webhooks?search=ends.example" }, async (page) => {
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    await page.route("**/GetEndpoint", async (route) => {
      await held;
      await route.continue();
    });
    await page.locator(`a[href='/webhooks/${first}']`).first().click();
    // Before the other event types are known, nothing is said of one alone.
    await page.getByRole("button", { name: "Rotate", exact: true }).click();
    const rotation = page.getByRole("dialog", { name: "Rotate the signing secret?" });
    await rotation.getByText("https://ends.example/hooks").waitFor();
    expect(await rotation.getByText("OrderDispatched").count()).toBe(0);
    expect(await rotation.getByRole("button", { name: "Rotate secret" }).isDisabled()).toBe(true);
    await rotation.getByRole("button", { name: "Cancel" }).click();
    await rotation.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    const unknown = page.getByRole("dialog", { name: "Delete", exact: true });
    expect(await unknown.getByRole("button", { name: "Delete" }).isDisabled()).toBe(true);
    release();
    const dialog = page.getByRole("dialog", { name: "Delete this event type or the endpoint?" });
    await dialog.getByRole("radio", { name: "OrderDispatched only" }).waitFor();
    await expectAccessible(page);
    await takeScreenshots(page, "endpoint-delete");
    await dialog.getByRole("button", { name: "Delete event type" }).click();
    await page.waitForURL(`**/webhooks/${second}`);
    await expect.poll(() => types(page)).toEqual(["DocumentCreated", "StockLevelChanged"]);
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await dialog.getByRole("radio", { name: "The endpoint with all 2 event types" }).check();
    await dialog.getByRole("button", { name: "Delete endpoint" }).click();
    await page.getByRole("heading", { name: "Webhooks", exact: true }).waitFor();
    const listed = (await web.service.webhooks.listWebhooks({})).webhooks;
    expect(listed.filter(({ endpointId }) => endpointId === endpoint.id)).toEqual([]);
  });
});

test("the list names the other event types and apps also of webhooks that a health filter leaves out", async () => {
  const { service } = web;
  const { installedApp } = await service.keys.createInstalledApp({ name: "Scanner" });
  const { secret } = await service.keys.createApiKey({
    name: "Scanner 1",
    permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
    installedApplicationId: installedApp?.id as string,
  });
  await createClient(WebhookService, keyedTransport(service.grpcPort, secret)).createWebhook({
    process: 1,
    url: "https://healthy.example/hooks",
  });
  const [first] = idsOf(await created("https://fails.example/hooks", [1, 2, 3]));
  await service.db("webhook_health").insert({
    webhook_id: String(first),
    health: "failing",
    since: new Date(),
    first_failure: new Date(),
    last_failure: new Date(),
  });
  await web.visit({ path: "/webhooks?health=failing" }, async (page) => {
    const rows = page.locator("tbody tr");
    await rows.filter({ hasText: "fails.example/hooks" }).waitFor();
    expect(await rows.count()).toBe(1);
    await rows.getByRole("link", { name: "2 event types of the same endpoint: " }).waitFor();
    await page.getByRole("combobox", { name: "Installed app" }).click();
    await page.getByRole("option", { name: "Scanner" }).waitFor();
  });
});

test("the list shows that webhooks belong together, and leads to them; the audit log shows what was done", async () => {
  const endpoint = await created("https://together.example/hooks", [1, 2, 3]);
  await web.service.register("https://alone.example/hooks");
  const { secret } = await web.service.keys.createApiKey({
    name: "Reader",
    permissions: [Permission.READ_ADMINISTRATIVE_DATA, Permission.MANAGE_API_KEYS],
  });
  await web.visit({ path: "/webhooks?search=example/hooks", key: secret }, async (page) => {
    const rows = page.locator("tbody tr");
    const of = (text: string) => rows.filter({ hasText: text });
    await of("alone.example/hooks").waitFor();
    expect(await of("alone.example/hooks").getByRole("link", { name: "event type" }).count()).toBe(0);
    await takeScreenshots(page, "endpoint-list");
    await of("together.example/hooks")
      .first()
      .getByRole("link", { name: "2 event types of the same endpoint: " })
      .click();
    await expect.poll(() => rows.count()).toBe(3);
    await expectAccessible(page);
    await expectFitsPhone(page);
    // Who may only read is offered no change.
    await page.goto(`/webhooks/${endpoint.webhooks[0]?.id}`);
    await typeList(page).getByRole("link", { name: "StockLevelChanged" }).waitFor();
    expect(await section(page).getByRole("button").count()).toBe(0);
    await page.goto(`/audit?target=${endpoint.id}`);
    await page.getByText("Endpoint created").first().waitFor();
    await page.getByText("OrderDispatched, DocumentCreated, StockLevelChanged").waitFor();
    await expectAccessible(page);
  });
});
