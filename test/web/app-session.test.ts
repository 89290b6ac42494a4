import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { dialog, row } from "./keys-page.ts";
import { expectAccessible, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const ALL = [
  Permission.READ_ADMINISTRATIVE_DATA,
  Permission.WRITE_ADMINISTRATIVE_DATA,
  Permission.MANAGE_API_KEYS,
];

let web: Web;
let appId: string;
/** The secret of the app's key that is signed in with. */
let key: string;
beforeAll(async () => {
  web = await startWeb();
  const { keys } = web.service;
  const { installedApp } = await keys.createInstalledApp({ name: "Label printer" });
  await keys.createInstalledApp({ name: "Rival" });
  appId = installedApp?.id as string;
  const made = await keys.createApiKey({
    name: "Printer",
    permissions: ALL,
    allowedProcesses: [1],
    installedApplicationId: appId,
  });
  key = made.secret;
  await keys.createApiKey({ name: "Stronger", permissions: ALL, installedApplicationId: appId });
  await web.service.register("https://receiver.example/own", { key });
  await web.service.register("https://receiver.example/of-nobody");
});
afterAll(() => web?.stop());

test("a session of an app's key shows the app's webhooks, and nothing of dispatch runs", () =>
  web.visit({ path: "/webhooks", key }, async (page) => {
    await page.getByRole("link", { name: "receiver.example/own" }).first().waitFor();
    expect(await page.getByText("of-nobody").count()).toBe(0);
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByText("Live delivery status of your app’s webhooks").waitFor();
    expect(await page.getByText("Last dispatch runs").count()).toBe(0);
    expect(await page.getByRole("button", { name: "Dispatch now" }).count()).toBe(0);
    await takeScreenshots(page, "app-overview");
  }));

test("a session of an app's key sends a test event, and cannot start a run for it", async () => {
  const { webhooks, publish } = web.service;
  const own = (await webhooks.listWebhooks({})).webhooks.find(({ url }) => url.endsWith("/own"));
  // The test event waits behind these.
  await webhooks.setWebhookRateLimit({ webhookId: own?.id ?? 0n, rateLimit: 1 });
  for (let n = 0; n < 20; n += 1) await publish();
  await web.visit({ path: "/webhooks", key }, async (page) => {
    await page.getByRole("link", { name: "receiver.example/own" }).first().click();
    await page.getByRole("button", { name: "Send test event" }).click();
    await page.getByText("It waits for the next dispatch.").waitFor();
    expect(await page.getByRole("button", { name: "Dispatch now" }).count()).toBe(0);
  });
});

test("an address that another key registered is told so, and stays another's", () =>
  web.visit({ path: "/webhooks?new=1", key }, async (page) => {
    await dialog(page).getByRole("checkbox", { name: "OrderDispatched" }).check();
    await dialog(page).getByLabel("URL").fill("https://receiver.example/of-nobody");
    await dialog(page).getByRole("button", { name: "Register webhook" }).click();
    await page.getByText("register another URL for a webhook of your own").waitFor();
    await dialog(page).waitFor({ state: "detached" });
    expect(new URL(page.url()).pathname).toBe("/webhooks");
  }));

test("a session of an app's key makes keys of the app with at most its own rights, and leaves stronger ones alone", () =>
  web.visit({ path: "/keys", key }, async (page) => {
    await row(page, "Stronger").waitFor();
    expect(await page.getByText("Administrator", { exact: true }).count()).toBe(0);
    expect(await page.getByRole("button", { name: "Revoke Stronger" }).count()).toBe(0);
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill("Printer 2");
    expect(await page.getByRole("checkbox", { name: /^Publish/ }).count()).toBe(0);
    await page.getByRole("checkbox", { name: /^Read / }).check();
    await expectAccessible(page);
    await takeScreenshots(page, "app-new-key");
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await page.getByRole("button", { name: "I have copied it" }).click();
    await row(page, "Printer 2").waitFor();
    const { apiKeys } = await web.service.keys.listApiKeys({});
    expect(apiKeys.find(({ name }) => name === "Printer 2")).toMatchObject({
      installedApplicationId: appId,
      allowedProcesses: [1],
    });
    await page.getByRole("link", { name: "Installed apps" }).click();
    await page.getByRole("link", { name: "3 keys" }).waitFor();
    expect(await page.getByText("Rival").count()).toBe(0);
    expect(await page.getByRole("button", { name: "New app" }).count()).toBe(0);
  }));

test("an app is removed once nothing belongs to it, and until then its dialog says what does", () =>
  web.visit({ path: "/apps" }, async (page) => {
    await page.getByRole("button", { name: "Remove Label printer" }).click();
    await dialog(page).getByRole("button", { name: "Remove app" }).click();
    await dialog(page).getByText("revoke and remove its keys").waitFor();
    await dialog(page).getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("button", { name: "Remove Rival" }).click();
    await dialog(page).getByRole("button", { name: "Remove app" }).click();
    await page.getByText("The app “Rival” is removed").waitFor();
    await page.getByRole("row", { name: /Rival/ }).waitFor({ state: "detached" });
    await expectAccessible(page);
  }));
