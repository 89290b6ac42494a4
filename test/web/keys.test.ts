import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { findApiKey } from "../../src/db/api-keys.ts";
import { expectAccessible, expectFitsPhone, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const READ_AND_WRITE = [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA];
const MANAGE = Permission.MANAGE_API_KEYS;

let web: Web;
beforeAll(async () => {
  web = await startWeb();
});
afterAll(() => web?.stop());

const row = (page: Page, name: string) =>
  page.getByRole("row").filter({ has: page.getByText(name, { exact: true }) });
const dialog = (page: Page) => page.getByRole("dialog");
const secretShown = (page: Page) => page.getByLabel("Secret", { exact: true }).inputValue();

let made = 0;
/** A key under a name of its own. */
async function newKey(permissions: Permission[] = READ_AND_WRITE, allowedProcesses: WebhookProcess[] = []) {
  const name = `Key ${++made}`;
  const { apiKey, secret } = await web.service.keys.createApiKey({ name, permissions, allowedProcesses });
  return { id: apiKey?.id as string, name, secret };
}

const registered = async (url: string) =>
  (await web.service.webhooks.listWebhooks({})).webhooks.find((webhook) => webhook.url === url);

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
    await page.getByText("It will not be shown again").waitFor();
    await takeScreenshots(page, "keys-secret");
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
    await page.getByText("It will not be shown again").waitFor();
    // What nobody has copied yet is not closed by a slip of the finger.
    await dialog(page).locator("input:focus").waitFor();
    await page.keyboard.press("Escape");
    expect(await page.getByText("It will not be shown again").count()).toBe(1);
    await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await row(page, "By keyboard").waitFor();
    await expect.poll(() => page.evaluate("document.activeElement.textContent")).toBe("New key");
  }));

test("a key gets another secret and keeps its id and webhooks; the old one works as long as is chosen", async () => {
  const key = await newKey();
  const url = "https://receiver.example/rotated";
  await web.service.register(url, { key: key.secret });
  await web.visit({ path: "/keys" }, async (page) => {
    const rotate = async (grace: string) => {
      await row(page, key.name)
        .getByRole("button", { name: `Rotate the secret of ${key.name}` })
        .click();
      await dialog(page).getByLabel(grace).check();
      await takeScreenshots(page, "keys-rotate");
      await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
      await page.getByText("It will not be shown again").waitFor();
      const secret = await secretShown(page);
      await page.getByRole("button", { name: "I have copied it" }).click();
      return secret;
    };
    const second = await rotate("For a day");
    await row(page, key.name).getByText("An old secret works until").waitFor();
    for (const secret of [key.secret, second])
      expect(await findApiKey(web.service.db, secret)).toMatchObject({ id: key.id });
    const third = await rotate("No longer");
    await row(page, key.name).getByText(third.slice(0, 12)).waitFor();
    for (const secret of [key.secret, second]) expect(await findApiKey(web.service.db, secret)).toBeNull();
    expect(await findApiKey(web.service.db, third)).toMatchObject({ id: key.id });
    expect(await registered(url)).toMatchObject({ apiKeyId: key.id });
  });
});

test("who rotates the key of their own session sees the secret and stays signed in", async () => {
  const key = await newKey([MANAGE]);
  await web.visit({ path: "/keys", key: key.secret }, async (page) => {
    await row(page, key.name).getByText("Signed in with this key").waitFor();
    await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
    await dialog(page).getByText("you stay signed in here, and nowhere else").waitFor();
    await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
    await page.getByText("It will not be shown again").waitFor();
    const secret = await secretShown(page);
    expect(await findApiKey(web.service.db, secret)).toMatchObject({ id: key.id });
    await page.getByRole("button", { name: "I have copied it" }).click();
    await row(page, key.name).getByText(secret.slice(0, 12)).waitFor();
    await page.reload();
    await row(page, key.name).getByText("Signed in with this key").waitFor();
  });
});

test("a key is revoked once another takes its webhooks over, which are named before", async () => {
  const key = await newKey();
  const heir = await newKey();
  const unfit = await newKey(READ_AND_WRITE, [2]);
  const urls = [1, 2, 3, 4, 5, 6, 7].map((n) => `https://receiver.example/taken-over/${n}`);
  for (const url of urls) await web.service.register(url, { key: key.secret });
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("The key has 7 webhooks:").waitFor();
    expect(await dialog(page).getByText("https://receiver.example/taken-over/").count()).toBe(5);
    await dialog(page).getByText("and 2 more").waitFor();
    const revoke = dialog(page).getByRole("button", { name: "Revoke key" });
    expect(await revoke.isDisabled()).toBe(true);
    await dialog(page).getByLabel("Another key takes them over").check();
    await dialog(page).getByRole("combobox", { name: "The key that takes them over" }).click();
    const unfitted = page.getByRole("option", { name: `${unfit.name} (` });
    expect(await unfitted.textContent()).toContain("not for OrderDispatched");
    await page.getByRole("option", { name: `${heir.name} (` }).click();
    await expectAccessible(page);
    await takeScreenshots(page, "keys-revoke");
    await revoke.click();
    await page.getByText("7 webhooks were taken over").waitFor();
    await dialog(page).waitFor({ state: "detached" });
    await row(page, key.name).waitFor({ state: "detached" });
  });
  for (const url of urls) expect(await registered(url)).toMatchObject({ apiKeyId: heir.id });
  expect(await findApiKey(web.service.db, key.secret)).toBeNull();
});

test("a key is revoked and its webhooks are deleted, and it is found among the revoked ones", async () => {
  const key = await newKey();
  const url = "https://receiver.example/deleted-with-its-key";
  await web.service.register(url, { key: key.secret });
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("The key has one webhook:").waitFor();
    await dialog(page).getByLabel("They are deleted").check();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("One webhook was deleted").waitFor();
    await row(page, key.name).waitFor({ state: "detached" });
    await page.getByText("Revoked", { exact: true }).click();
    await row(page, key.name)
      .getByText("Revoked now")
      .or(row(page, key.name).getByText("ago"))
      .first()
      .waitFor();
    expect(new URL(page.url()).search).toBe("?state=revoked");
    await takeScreenshots(page, "keys-revoked");
    expect(await page.getByRole("button", { name: `Revoke ${key.name}` }).count()).toBe(0);
  });
  expect(await registered(url)).toBeUndefined();
});

test("who revokes the key of their own session is told before that it signs them out, and is signed out", async () => {
  const key = await newKey([MANAGE]);
  await web.visit({ path: "/keys", key: key.secret }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("revoking it signs you out").waitFor();
    // This key may not read webhooks, so it cannot be told of its own.
    await dialog(page).getByText("Your key may not see which webhooks it has").waitFor();
    await dialog(page).getByLabel("They are deleted").check();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByText("is revoked").waitFor();
  });
  expect(await findApiKey(web.service.db, key.secret)).toBeNull();
});

test("keys are found by name, prefix and app, and the address keeps what is sought, but no secret", async () => {
  const key = await newKey();
  await web.visit({ path: "/keys" }, async (page) => {
    const search = page.getByLabel("Search keys");
    await search.fill(key.name);
    await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe(key.name);
    await row(page, "Administrator").waitFor({ state: "detached" });
    await search.fill(key.secret);
    const prefix = key.secret.slice(0, 12);
    await expect.poll(() => new URL(page.url()).searchParams.get("search")).toBe(prefix);
    await expect.poll(() => search.inputValue()).toBe(prefix);
    await row(page, key.name).waitFor();
    await search.fill("nothing is called this");
    await page.getByRole("button", { name: "Clear the filters" }).click();
    await row(page, "Administrator").waitFor();
    expect(new URL(page.url()).search).toBe("");
  });
});

test("what the service cannot do is said in words, and can be tried again", async () => {
  const key = await newKey();
  await web.visit({ path: "/keys" }, async (page) => {
    await row(page, key.name).waitFor();
    await web.service.keys.revokeApiKey({
      apiKeyId: key.id,
      webhooks: { case: "deleteWebhooks", value: {} },
    });
    await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
    await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
    await dialog(page).getByText("is revoked; create another").waitFor();
  });
});

test("the last key that manages keys is not revoked without a warning", async () => {
  const { keys } = web.service;
  for (const key of (await keys.listApiKeys({})).apiKeys) {
    if (key.name !== "Administrator" && !key.revoked && key.permissions.includes(MANAGE))
      await keys.revokeApiKey({ apiKeyId: key.id, webhooks: { case: "deleteWebhooks", value: {} } });
  }
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: "Revoke Administrator" }).click();
    await dialog(page).getByText("No other key manages keys").waitFor();
    await takeScreenshots(page, "keys-revoke-last");
  });
});

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
