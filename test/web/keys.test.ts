import { afterAll, beforeAll, expect, test } from "vitest";
import { findApiKey } from "../../src/db/keys/api-keys.ts";
import { dialog, newKey, READ_AND_WRITE, row, secretShown } from "./keys-page.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
});
afterAll(() => web?.stop());

test("§5.3: a key is made with chosen permissions, its secret is shown once and works", () =>
  web.visit({ path: "/keys" }, async (page) => {
    const { installedApp } = await web.service.keys.createInstalledApp({ name: "Stock planner" });
    await page.reload();
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill("Warehouse, production");
    await dialog(page)
      .getByRole("checkbox", { name: /^Read / })
      .check();
    await dialog(page)
      .getByRole("checkbox", { name: /^Write / })
      .check();
    await dialog(page).getByRole("combobox", { name: "Event types" }).click();
    await page.getByRole("option", { name: "StockLevelChanged" }).click();
    // Several can be chosen: the choices stay until the focus goes.
    await page.keyboard.press("Tab");
    await dialog(page).getByRole("combobox", { name: "Installed app" }).click();
    await page.getByRole("option", { name: "Stock planner" }).click();
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await page.getByText("It is shown only once").waitFor();
    await takeScreenshots(page, "keys-secret");
    await expectAccessible(page);
    const secret = await secretShown(page);
    expect(secret).toMatch(/^whk_[\w-]{43}$/);
    expect(await findApiKey(web.service.db, secret)).toMatchObject({
      name: "Warehouse, production",
      permissions: READ_AND_WRITE,
      allowedProcesses: [3],
      installedAppId: installedApp?.id,
    });
    await page.getByRole("button", { name: "I have copied it" }).click();
    const shown = await row(page, "Warehouse, production").textContent();
    for (const part of [secret.slice(0, 12), "Read", "Write", "StockLevelChanged", "Stock planner", "Never"])
      expect(shown).toContain(part);
    expect(await page.content()).not.toContain(secret);
    expect(page.url()).not.toContain("whk_");
    expect(await page.evaluate("JSON.stringify([localStorage, sessionStorage])")).not.toContain("whk_");
  }));

test("a key without a name or a permission is not made, and the form says what is missing", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await dialog(page).getByText("Enter a name, so that people know").waitFor();
    await dialog(page).getByText("Choose at least one").waitFor();
    await expectAccessible(page);
  }));

test("a key is made by keyboard alone, and the focus is back where it was", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await row(page, "Administrator").waitFor();
    await page.getByRole("button", { name: "New key" }).focus();
    await page.keyboard.press("Enter");
    await dialog(page).locator("input:focus").waitFor();
    await page.keyboard.type("By keyboard");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Space");
    await page.keyboard.press("Enter");
    await page.getByText("It is shown only once").waitFor();
    // What nobody has copied yet is not closed by a slip of the finger.
    await dialog(page).locator("input:focus").waitFor();
    await page.keyboard.press("Escape");
    await expect.poll(() => page.getByText("It is shown only once").count()).toBe(1);
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await row(page, "By keyboard").waitFor();
    await expect.poll(() => page.evaluate("document.activeElement.textContent")).toBe("New key");
  }));

test("keys are found by name, prefix and app, and the address keeps what is sought, but no secret", async () => {
  const key = await newKey(web.service);
  await web.service
    .db("api_keys")
    .where({ id: key.id })
    .update({ created: new Date(Date.now() - 47 * 3_600_000) });
  await web.visit({ path: "/keys" }, async (page) => {
    const search = page.getByLabel("Search keys");
    await search.fill(key.name);
    await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe(key.name);
    await row(page, "Administrator").waitFor({ state: "detached" });
    await search.fill(key.secret);
    const prefix = key.secret.slice(0, 12);
    await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe(prefix);
    await expect.poll(() => search.inputValue()).toBe(prefix);
    // Not "yesterday", which it was until midnight.
    await row(page, key.name).getByText("1 day ago").waitFor();
    await search.fill("nothing is called this");
    await page.getByRole("button", { name: "Clear the filters" }).click();
    await row(page, "Administrator").waitFor();
    expect(new URL(page.url()).search).toBe("");
  });
});

test("an app in the address that does not exist is shown as a filter that can be cleared", () =>
  web.visit({ path: "/keys?app=no-such-app" }, async (page) => {
    await page.getByRole("heading", { name: "No key matches" }).waitFor();
    await expect
      .poll(() => page.getByRole("combobox", { name: "Installed app" }).inputValue())
      .toBe("no-such-app");
    await page.getByRole("button", { name: "Any installed app" }).click();
    await row(page, "Administrator").waitFor();
  }));

test("dozens of keys can be used by everyone, and on a phone they are cards", async () => {
  await fill();
  await web.visit({ path: "/keys?search=shop" }, async (page) => {
    await row(page, "Shop 1").waitFor();
    await expectAccessible(page);
    await expectFitsPhone(page);
    await takeScreenshots(page, "keys");
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill("Nightly export");
    await takeScreenshots(page, "keys-new");
    await expectFitsPhone(page);
  });
});

/** Keys as a service has them after some months. */
async function fill(): Promise<void> {
  const { keys } = web.service;
  const { installedApp } = await keys.createInstalledApp({
    name: "Returns and reverse logistics for retailers with several brands",
  });
  for (let n = 1; n <= 14; n++) {
    await keys.createApiKey({
      name: n % 7 === 0 ? `Shop ${n} of the warehouse management system in Rotterdam, staging` : `Shop ${n}`,
      permissions: n % 5 === 0 ? [1, 2, 3, 4] : [1, 2],
      allowedProcesses: n % 4 === 0 ? [1, 2] : [],
      ...(n % 3 === 0 && installedApp ? { installedApplicationId: installedApp.id } : {}),
    });
  }
}

test("the quotas of a key are changed, shown in the list and removed", () =>
  web.visit({ path: "/keys" }, async (page) => {
    const { name, id } = await newKey(web.service);
    await page.reload();
    const change = page.getByRole("button", { name: `Change the quotas of ${name}` });
    await change.click();
    await dialog(page).getByLabel("Webhooks").fill("20");
    await dialog(page).getByLabel("Events per second").fill("1000");
    await expectAccessible(page);
    await dialog(page).getByRole("button", { name: "Save quotas" }).click();
    await row(page, name).getByText("At most 20 webhooks, 1,000 events/s").waitFor();
    await dialog(page).waitFor({ state: "detached" });

    await change.click();
    await expect.poll(() => dialog(page).getByLabel("Webhooks").inputValue()).toBe("20");
    await dialog(page).getByLabel("Webhooks").fill("30");
    // Another administrator changes them meanwhile.
    await web.service.keys.setApiKeyQuotas({ apiKeyId: id, quotas: { webhooks: 20, eventsPerSecond: 7 } });
    await dialog(page).getByRole("button", { name: "Save quotas" }).click();
    await dialog(page).getByText("This key was changed meanwhile").waitFor();
    await row(page, name).getByText("At most 20 webhooks, 7 events/s").waitFor();
    await dialog(page).getByRole("button", { name: "Load the current values" }).click();
    await expect.poll(() => dialog(page).getByLabel("Events per second").inputValue()).toBe("7");
    await dialog(page).getByLabel("Webhooks").fill("");
    await dialog(page).getByLabel("Events per second").fill("");
    await dialog(page).getByRole("button", { name: "Save quotas" }).click();
    await row(page, name).getByText("At most").waitFor({ state: "detached" });
  }));

test("a key is made with quotas", () =>
  web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill("With a quota");
    await dialog(page)
      .getByRole("checkbox", { name: /^Publish / })
      .check();
    await dialog(page).getByLabel("Events per second").fill("50");
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await page.getByText("It is shown only once").waitFor();
    await page.getByRole("button", { name: "I have copied it" }).click();
    await row(page, "With a quota").getByText("At most 50 events/s").waitFor();
  }));

test("a quota or rate limit of 0 is refused in its form, not saved as no limit", async () => {
  const { name, id } = await newKey(web.service);
  await web.service.keys.setApiKeyQuotas({ apiKeyId: id, quotas: { webhooks: 20 } });
  const webhookId = await web.service.register("https://limited.example/hooks");
  await web.service.webhooks.updateWebhook({ webhookId, rateLimit: 30 });
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Change the quotas of ${name}` }).click();
    await dialog(page).getByLabel("Webhooks").fill("0");
    await page.keyboard.press("Enter");
    await dialog(page).getByText("From 1. Leave it empty for no quota.").waitFor();
    await page.keyboard.press("Escape");

    await page.getByRole("button", { name: "New key" }).click();
    await dialog(page).getByLabel("Name").fill("No quota of 0");
    await dialog(page)
      .getByRole("checkbox", { name: /^Publish / })
      .check();
    await dialog(page).getByLabel("Events per second").fill("0");
    await page.keyboard.press("Enter");
    await dialog(page).getByText("From 1. Leave it empty for no quota.").waitFor();

    await page.goto(`/webhooks/${webhookId}`);
    await page.getByRole("button", { name: "Edit", exact: true }).click();
    await dialog(page).getByLabel("Deliveries a second").fill("0");
    await page.keyboard.press("Enter");
    await dialog(page).getByText("From 1. Leave it empty for no limit.").waitFor();
  });
  const { apiKeys } = await web.service.keys.listApiKeys({});
  expect(apiKeys.find((key) => key.id === id)?.quotas?.webhooks).toBe(20);
  expect(apiKeys.map((key) => key.name)).not.toContain("No quota of 0");
  expect((await web.service.webhooks.getWebhook({ webhookId })).webhook?.rateLimit).toBe(30);
});
