import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { EndpointService } from "../../../gen/webhook/v1/endpoint_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { findApiKeys } from "../../../src/keys/api-keys.ts";
import { aWebhook } from "../../support/builders.ts";
import { tabTo } from "../keyboard.ts";
import { act, expectCalls, sharedWeb } from "../web.ts";

const READ_AND_WRITE = [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA];

const web = await sharedWeb();
const { api } = web;
const webhooks = api.client(WebhookService);

const dialog = (page: Page) => page.getByRole("dialog");
/** The row of the list with this name. */
const row = (page: Page, name: string) =>
  page.getByRole("row").filter({ has: page.getByText(name, { exact: true }) });

/** The secret that the page shows once; puts it away. */
async function copySecret(page: Page): Promise<string> {
  await page.getByText("It is shown only once").waitFor();
  const secret = await page.getByLabel("Secret", { exact: true }).inputValue();
  await page.getByRole("button", { name: "I have copied it" }).click();
  return secret;
}

// Before the page has read its lists.
const rotated = "Rotated and revoked";
const { id, secret: first } = await api.key({ name: rotated, permissions: READ_AND_WRITE });
const webhookId = await aWebhook().ownedBy(id).in(api.context.db);
await api.client(ApiKeyService).createInstalledApp({ name: "Rival" });
await webhooks.createWebhook({ process: 1, url: "https://again.example/hooks" });

test("the command among the first steps of an empty instance publishes an event, once a key is put in", () =>
  web.visit({}, async (page) => {
    const block = page.getByRole("region", { name: "Command that publishes an event" });
    const command = (await block.textContent()) ?? "";
    expect(command.split("YOUR_API_KEY")).toHaveLength(2);
    const script = command.replace("YOUR_API_KEY", api.adminKey);
    const { stdout } = await promisify(execFile)("sh", ["-eu", "-c", script]);
    const [event] = await api.context.db("events").where("id", JSON.parse(stdout).eventId);
    expect(event).toMatchObject({ process: 1, user_id: "tenant-42" });
  }));

test("§5.3: a key is made with chosen permissions, its secret is shown once and works; apps without keys are removed", async () => {
  await web.visit({ path: "/apps" }, async (page) => {
    await page.getByRole("button", { name: "New app" }).click();
    await dialog(page).getByLabel("Name").fill("Stock planner");
    await page.keyboard.press("Enter");
    const app = page.getByRole("row", { name: /Stock planner/ });
    await app.getByRole("link", { name: "No keys yet" }).click();
    await page.getByRole("button", { name: "New key for the app" }).click();
    await dialog(page).getByLabel("Name").fill("Warehouse, production");
    for (const permission of [/^Read /, /^Write /])
      await dialog(page).getByRole("checkbox", { name: permission }).check();
    await dialog(page).getByRole("combobox", { name: "Event types" }).click();
    await page.getByRole("option", { name: "StockLevelChanged" }).click();
    // Several can be chosen: the choices stay until the focus goes.
    await page.keyboard.press("Tab");
    await dialog(page).getByLabel("Events per second").fill("50");
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    const secret = await copySecret(page);
    expect(secret).toMatch(/^whk_[\w-]{43}$/);
    const [installed] = await api.context.db("installed_apps").where({ name: "Stock planner" });
    expect((await findApiKeys(api.context.db, [secret]))[0]).toMatchObject({
      name: "Warehouse, production",
      permissions: READ_AND_WRITE,
      allowedProcesses: [3],
      installedAppId: installed?.id,
    });
    const shown = await row(page, "Warehouse, production").textContent();
    for (const part of [secret.slice(0, 12), "Read", "Write", "StockLevelChanged", "Stock planner", "Never"])
      expect(shown).toContain(part);
    const kept = await page.evaluate(
      "document.documentElement.outerHTML + location + JSON.stringify(localStorage)",
    );
    expect(kept).not.toContain(secret);
    await page.getByRole("link", { name: "Installed apps" }).click();
    await page.getByRole("row", { name: /Stock planner.*1 key/ }).waitFor();
    await page.getByRole("button", { name: "Remove Stock planner" }).click();
    await dialog(page).getByRole("button", { name: "Remove app" }).click();
    await dialog(page).getByText("revoke and remove its keys").waitFor();
    await dialog(page).getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Remove Rival" }).click();
    await dialog(page).getByRole("button", { name: "Remove app" }).click();
    await page.getByText("The app “Rival” is removed").waitFor();
    await page.getByRole("row", { name: /Rival/ }).waitFor({ state: "detached" });
  });
});

test("a key gets another secret and keeps its id, gets quotas, and is revoked with its webhooks and removed", async () => {
  const name = rotated;
  const found = async (secret: string) => (await findApiKeys(api.context.db, [secret]))[0]?.id;
  await web.visit({ path: "/keys" }, async (page) => {
    const rotate = async (grace: string) => {
      await page.getByRole("button", { name: `Rotate the secret of ${name}` }).click();
      await dialog(page).getByLabel(grace).check();
      await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
      return copySecret(page);
    };
    const second = await rotate("For a day");
    await row(page, name).getByText("An old secret works until").waitFor();
    expect([await found(first), await found(second)]).toEqual([id, id]);
    const third = await rotate("Revoke immediately");
    await row(page, name).getByText(third.slice(0, 12)).waitFor();
    expect([await found(first), await found(second), await found(third)]).toEqual([undefined, undefined, id]);
    expect((await webhooks.getWebhook({ webhookId })).webhook?.apiKeyId).toBe(id);

    await page.getByRole("button", { name: `Change the quotas of ${name}` }).click();
    await dialog(page).getByLabel("Webhooks").fill("20");
    await dialog(page).getByLabel("Events per second").fill("1000");
    await dialog(page).getByRole("button", { name: "Save quotas" }).click();
    await row(page, name).getByText("At most 20 webhooks, 1,000 events/s").waitFor();

    for (const [from, to] of [
      [name, "Warehouse 2"],
      ["Warehouse 2", name],
    ] as const) {
      await page.getByRole("button", { name: `Rename ${from}` }).click();
      await dialog(page).getByLabel("Name").fill(to);
      await dialog(page).getByRole("button", { name: "Rename" }).click();
      await row(page, to).waitFor();
    }

    await page.getByRole("button", { name: `Revoke ${name}` }).click();
    await dialog(page).getByText("The key has 1 webhook:").waitFor();
    await dialog(page).getByLabel("Delete them").check();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("1 webhook was deleted").waitFor();
    await row(page, name).waitFor({ state: "detached" });
    expect(await found(third)).toBeUndefined();
    expect(await api.context.db("webhooks").where({ api_key_id: id, deleted: null })).toEqual([]);
    await page.getByText("Revoked", { exact: true }).click();
    await page.getByRole("button", { name: `Remove ${name}` }).click();
    expect(new URL(page.url()).search).toBe("?state=revoked");
    await dialog(page).getByRole("button", { name: "Remove key" }).click();
    await page.getByText(`“${name}” is removed`).waitFor();
    await row(page, name).waitFor({ state: "detached" });
  });
  expect(await api.context.db("api_keys").where({ id })).toEqual([]);
});

test("a wrong address is refused at its field; a registered one is shown, edited and deleted, and the audit log shows by whom", () =>
  web.visit({ path: "/webhooks/new" }, async (page) => {
    const register = async (url: string) => {
      await page.getByRole("textbox", { name: "URL" }).fill(url);
      await page.getByRole("button", { name: "Register webhook" }).click();
    };
    await page.getByRole("checkbox", { name: "OrderDispatched" }).check();
    for (const [url, words] of [
      ["http://shop.example/hooks", "Begins with http://; only https:// is allowed."],
      ["https://10.0.0.7/hooks", /10\.0\.0\.7/],
    ] as const) {
      await register(url);
      await page.getByText(words).waitFor();
    }
    // Another spelling of the same address.
    await register("https://AGAIN.example:443/hooks");
    await page.getByText("Already registered").waitFor();
    await page.getByRole("heading", { name: "again.example/hooks" }).waitFor();
    await act(page, "Edit…");
    await dialog(page).getByRole("textbox", { name: "Name" }).fill("Shop orders");
    await dialog(page).getByRole("textbox", { name: "Rate limit" }).fill("20");
    await dialog(page).getByRole("button", { name: "Save changes" }).click();
    await page.getByRole("heading", { level: 1, name: "Shop orders" }).waitFor();
    await page.getByRole("tab", { name: "Settings" }).click();
    await page.getByText("20 deliveries a second").waitFor();
    await act(page, "Delete…");
    await dialog(page).getByRole("button", { name: "Delete webhook" }).click();
    await page.getByRole("heading", { name: "Webhooks", exact: true }).waitFor();
    await page.getByRole("link", { name: "Audit log" }).click();
    const deleted = page.getByRole("row", { name: /Webhook deleted/ }).first();
    await deleted.getByText(/^Settings page, session [0-9a-f]{8} from (127\.0\.0\.1|::1)$/).waitFor();
    await page.getByRole("combobox", { name: "Action" }).click();
    await page.getByRole("option", { name: "Webhook changed" }).click();
    await page.getByRole("row", { name: /rate limit: 20$/ }).waitFor();
    await page.getByRole("button", { name: "Export…" }).click();
    const saved = page.waitForEvent("download");
    await page.getByRole("menuitem", { name: "CSV file" }).click();
    const lines = await readFile(await (await saved).path(), "utf8");
    expect(lines).toContain(`webhook_updated`);
    expect(lines).not.toContain("webhook_deleted");
  }));

test("a URL is registered for several event types by keyboard alone; these are changed, and deleted one by one or together", () =>
  web.visit({ path: "/webhooks" }, async (page) => {
    const url = "https://shop.example/several";
    const types = () =>
      page
        .getByRole("list", { name: "Event types of this endpoint" })
        .getByRole("listitem")
        .locator(":scope > :first-child")
        .allTextContents();
    await page.getByRole("link", { name: "New webhook" }).focus();
    await page.keyboard.press("Enter");
    await tabTo(page, page.getByRole("checkbox", { name: "StockLevelChanged" }));
    await page.keyboard.press("Space");
    await tabTo(page, page.getByRole("checkbox", { name: "DocumentCreated" }), { back: true });
    await page.keyboard.press("Space");
    await page.getByRole("textbox", { name: "URL" }).focus();
    await page.keyboard.type(url);
    await page.keyboard.press("Enter");
    await page.getByText("Endpoint registered").waitFor();
    await page.getByRole("button", { name: "Test now" }).and(page.locator(":focus")).waitFor();
    await tabTo(page, page.getByRole("link", { name: "Open the webhook" }));
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "shop.example/several", level: 1 }).waitFor();
    await page.getByRole("tab", { name: "Activity" }).focus();
    await page.keyboard.press("ArrowRight");
    await expect.poll(types).toEqual(["DocumentCreated", "StockLevelChanged"]);

    const section = page.getByRole("region", { name: "Event types" });
    await section.getByRole("button", { name: "Change event types" }).click();
    await dialog(page).getByRole("checkbox", { name: "OrderDispatched" }).check();
    await page.getByRole("button", { name: "Save event types" }).click();
    await page.getByText("Event types changed").waitFor();
    await expect.poll(types).toEqual(["DocumentCreated", "StockLevelChanged", "OrderDispatched"]);
    const [{ endpointId = "" } = {}] = (await webhooks.listWebhooks({})).webhooks.filter(
      (each) => each.url === url,
    );
    const { endpoint } = await api.client(EndpointService).getEndpoint({ endpointId });
    const secrets = (endpoint?.webhooks ?? []).map(({ id }) => webhooks.getWebhookSecret({ webhookId: id }));
    expect(new Set((await Promise.all(secrets)).map(({ secret }) => secret)).size).toBe(1);

    await act(page, "Delete…");
    await dialog(page).getByRole("radio", { name: "StockLevelChanged only" }).waitFor();
    await dialog(page).getByRole("button", { name: "Delete event type" }).click();
    await page.getByRole("tab", { name: "Settings" }).click();
    await expect.poll(types).toEqual(["DocumentCreated", "OrderDispatched"]);
    await act(page, "Delete…");
    await dialog(page).getByRole("radio", { name: "The endpoint with all 2 event types" }).check();
    await dialog(page).getByRole("button", { name: "Delete endpoint" }).click();
    await page.getByRole("heading", { name: "Webhooks", exact: true }).waitFor();
    expect(await api.context.db("webhooks").where({ url, deleted: null })).toEqual([]);
  }));

expectCalls("administration", web);
