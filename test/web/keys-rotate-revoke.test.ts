import { afterAll, beforeAll, expect, test } from "vitest";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { findApiKey } from "../../src/db/keys/api-keys.ts";
import { dialog, newKey, READ_AND_WRITE, row, secretShown } from "./keys-page.ts";
import { expectAccessible, takeScreenshots } from "./looks.ts";
import { startWeb, type Web } from "./web.ts";

const MANAGE = Permission.MANAGE_API_KEYS;

let web: Web;
beforeAll(async () => {
  web = await startWeb({ ROLE: "api" });
});
afterAll(() => web?.stop());

const registered = async (url: string) =>
  (await web.service.webhooks.listWebhooks({})).webhooks.find((webhook) => webhook.url === url);

test("a key gets another secret and keeps its id and webhooks; the old one works as long as is chosen", async () => {
  const key = await newKey(web.service);
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
      await page.getByText("It is shown only once").waitFor();
      const secret = await secretShown(page);
      await page.getByRole("button", { name: "I have copied it" }).click();
      return secret;
    };
    const second = await rotate("For a day");
    await row(page, key.name).getByText("An old secret works until").waitFor();
    for (const secret of [key.secret, second])
      expect(await findApiKey(web.service.db, secret)).toMatchObject({ id: key.id });
    const third = await rotate("Revoke immediately");
    await row(page, key.name).getByText(third.slice(0, 12)).waitFor();
    for (const secret of [key.secret, second]) expect(await findApiKey(web.service.db, secret)).toBeNull();
    expect(await findApiKey(web.service.db, third)).toMatchObject({ id: key.id });
    expect(await registered(url)).toMatchObject({ apiKeyId: key.id });
  });
});

test("who rotates the key of their own session sees the secret and stays signed in", async () => {
  const key = await newKey(web.service, [MANAGE]);
  await web.visit({ path: "/keys", key: key.secret }, async (page) => {
    await row(page, key.name).getByText("Signed in with this key").waitFor();
    await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
    await dialog(page).getByText("you stay signed in here, and nowhere else").waitFor();
    await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
    await page.getByText("It is shown only once").waitFor();
    const secret = await secretShown(page);
    expect(await findApiKey(web.service.db, secret)).toMatchObject({ id: key.id });
    await page.getByRole("button", { name: "I have copied it" }).click();
    await row(page, key.name).getByText(secret.slice(0, 12)).waitFor();
    await page.reload();
    await row(page, key.name).getByText("Signed in with this key").waitFor();
  });
});

test("the secret stays on show when the session ends by the rotation, until it is copied", async () => {
  const key = await newKey(web.service, [MANAGE]);
  await web.visit({ path: "/keys", key: key.secret }, async (page) => {
    await page.route("**/webhook.v1.SessionService/SignIn", (route) => route.abort());
    await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
    await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
    await page.getByText("You are signed out by this").waitFor();
    // What is read anew when somebody comes back to the window would be refused.
    await page.evaluate(`document.dispatchEvent(new Event("visibilitychange"))`);
    expect(await findApiKey(web.service.db, await secretShown(page))).toMatchObject({ id: key.id });
    await page.getByRole("button", { name: "I have copied it" }).click();
    await page.getByText("Your session has ended").waitFor();
  });
});

test("a key is revoked once another takes its webhooks over, which are named before", async () => {
  const key = await newKey(web.service);
  const heir = await newKey(web.service);
  const unfit = await newKey(web.service, READ_AND_WRITE, [2]);
  const urls = [1, 2, 3, 4, 5, 6, 7].map((n) => `https://receiver.example/taken-over/${n}`);
  for (const url of urls) await web.service.register(url, { key: key.secret });
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("The key has 7 webhooks:").waitFor();
    await expect.poll(() => dialog(page).getByText("https://receiver.example/taken-over/").count()).toBe(5);
    await dialog(page).getByText("and 2 more").waitFor();
    const revoke = dialog(page).getByRole("button", { name: "Revoke key" });
    expect(await revoke.isDisabled()).toBe(true);
    await dialog(page).getByLabel("Transfer them to another key").check();
    await dialog(page).getByRole("combobox", { name: "New owner" }).click();
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
  const key = await newKey(web.service);
  const url = "https://receiver.example/deleted-with-its-key";
  await web.service.register(url, { key: key.secret });
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("The key has 1 webhook:").waitFor();
    await dialog(page).getByLabel("Delete them").check();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByText("1 webhook was deleted").waitFor();
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

test("a revoked key is removed, and is listed no more", async () => {
  const key = await newKey(web.service);
  await web.service.keys.revokeApiKey({
    apiKeyId: key.id,
    webhooks: { case: "deleteWebhooks", value: {} },
  });
  await web.visit({ path: "/keys?state=revoked" }, async (page) => {
    await row(page, key.name)
      .getByRole("button", { name: `Remove ${key.name}` })
      .click();
    await expectAccessible(page);
    await dialog(page).getByRole("button", { name: "Remove key" }).click();
    await page.getByText(`“${key.name}” is removed`).waitFor();
    await row(page, key.name).waitFor({ state: "detached" });
  });
  const { apiKeys } = await web.service.keys.listApiKeys({});
  expect(apiKeys.map(({ id }) => id)).not.toContain(key.id);
});

test("who revokes the key of their own session is told before that it signs them out, and is signed out", async () => {
  const key = await newKey(web.service, [MANAGE]);
  await web.visit({ path: "/keys", key: key.secret }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("revoking it signs you out").waitFor();
    // This key may not read webhooks, so it cannot be told of its own.
    await dialog(page).getByText("Your key does not have permission to list its webhooks").waitFor();
    await dialog(page).getByLabel("Delete them").check();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    await page.getByText("is revoked").waitFor();
  });
  expect(await findApiKey(web.service.db, key.secret)).toBeNull();
});

test("what the service cannot do is said in words, and can be tried again", async () => {
  const key = await newKey(web.service);
  await web.visit({ path: "/keys" }, async (page) => {
    await row(page, key.name).waitFor();
    await web.service.keys.revokeApiKey({
      apiKeyId: key.id,
      webhooks: { case: "deleteWebhooks", value: {} },
    });
    await page.getByRole("button", { name: `Rotate the secret of ${key.name}` }).click();
    await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
    await dialog(page).getByText("is revoked and cannot be rotated; create another key").waitFor();
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

test("webhooks that a key registers while its revocation is confirmed are not deleted unasked", async () => {
  const key = await newKey(web.service);
  const urls = [1, 2].map((n) => `https://receiver.example/meanwhile/${n}`) as [string, string];
  await web.visit({ path: "/keys" }, async (page) => {
    await page.getByRole("button", { name: `Revoke ${key.name}` }).click();
    await dialog(page).getByText("The key has no webhooks.").waitFor();
    const revoke = dialog(page).getByRole("button", { name: "Revoke key" });
    await web.service.register(urls[0], { key: key.secret });
    await revoke.click();
    await dialog(page).getByText("The key has 1 webhook:").waitFor();
    await dialog(page).getByRole("alert").getByText("The key has registered a webhook").waitFor();
    await dialog(page).getByLabel("Delete them").check();
    await web.service.register(urls[1], { key: key.secret });
    await revoke.click();
    await dialog(page).getByText("The key has 2 webhooks:").waitFor();
    for (const url of urls) expect(await registered(url)).toMatchObject({ apiKeyId: key.id });
    await revoke.click();
    await page.getByText("2 webhooks were deleted").waitFor();
  });
  for (const url of urls) expect(await registered(url)).toBeUndefined();
});
