import { expect, test } from "vitest";
import type { ApiKey } from "../../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import type { Webhook } from "../../../gen/webhook/v1/webhook_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { ADMINISTRATOR, ALL, aKey, aWebhook, signedIn } from "./answers.ts";
import {
  all,
  click,
  expectFocus,
  field,
  fill,
  find,
  goTo,
  isDisabled,
  later,
  open,
  path,
  press,
  row,
  sees,
  seesNot,
  tab,
  value,
} from "./page.tsx";

const SECRET = `whk_${"s".repeat(43)}`;
const APP = { id: "planner", name: "Stock planner" };

/** The page of keys; those that are made are listed. */
function openKeys(keys: ApiKey[], answers: Parameters<typeof open>[1] = {}, at = "/keys") {
  return open(at, {
    listApiKeys: () => ({ apiKeys: keys }),
    listInstalledApps: { installedApps: [APP] },
    createApiKey: ({ name, quotas, permissions, allowedProcesses }) => {
      const apiKey = aKey({ id: "made", name, permissions, allowedProcesses, ...(quotas ? { quotas } : {}) });
      keys.push(apiKey);
      return { apiKey, secret: SECRET };
    },
    rotateApiKey: { secret: SECRET },
    ...answers,
  });
}

test("a key is made by keyboard alone, its secret is closed by its button only, and the focus is back where it was", async () => {
  const { calls } = await openKeys([ADMINISTRATOR]);
  find("button", "New key").focus();
  await press("{Enter}");
  expectFocus(field("Name"));
  await press("By keyboard");
  await tab();
  await press(" {Enter}");
  sees("It is shown only once");
  expect(calls.createApiKey).toMatchObject([{ name: "By keyboard", permissions: [1] }]);
  expectFocus(field("Secret"));
  await press("{Escape}");
  sees("It is shown only once");
  await tab({ shift: true });
  await press("{Enter}");
  row("By keyboard");
  seesNot(SECRET);
  await later(1_000);
  expectFocus(find("button", "New key"));
});

test("keys are found by name, prefix and app, and the address keeps what is sought, but no secret", async () => {
  await openKeys([ADMINISTRATOR, aKey({ prefix: SECRET.slice(0, 12) })]);
  await fill("Search keys", "Shop");
  await later(200);
  expect(path()).toBe("/keys?search=Shop");
  seesNot("Signed in with this key");
  await fill("Search keys", SECRET);
  await later(200);
  expect(path()).toBe(`/keys?search=${SECRET.slice(0, 12)}`);
  row("Shop");
  await goTo("/keys?app=no-such-app");
  sees("No key matches");
  await click("Any installed app");
  row("Administrator");
});

test("quotas of 0 are refused, and those that somebody else has changed meanwhile are not written over", async () => {
  const { calls, answers } = await openKeys([ADMINISTRATOR, aKey({ quotas: { webhooks: 20 } })]);
  await click("Change the quotas of Shop");
  expect(value("Webhooks")).toBe("20");
  await fill("Webhooks", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for no quota.");
  await fill("Webhooks", "30");
  const changed = aKey({ quotas: { webhooks: 20, eventsPerSecond: 7 } });
  answers.listApiKeys = { apiKeys: [ADMINISTRATOR, changed] };
  await click("Save quotas");
  sees("This key was changed meanwhile");
  sees("At most 20 webhooks, 7 events/s", row("Shop"));
  expect(calls.setApiKeyQuotas).toEqual([]);
  await click("Load the current values");
  expect(value("Events per second")).toBe("7");
  for (const quota of ["Webhooks", "Events per second"]) await fill(quota, "");
  await click("Save quotas");
  expect(calls.setApiKeyQuotas).toMatchObject([
    { apiKeyId: "shop", quotas: { webhooks: 0, eventsPerSecond: 0 } },
  ]);
  await click("New key");
  await fill("Name", "No quota of 0");
  await click(/^Publish /, "checkbox");
  await fill("Events per second", "0");
  await press("{Enter}");
  sees("From 1. Leave it empty for no quota.");
  expect(calls.createApiKey).toEqual([]);
});

test("a session of an app's key makes keys of the app with at most its own rights, and leaves stronger ones alone", async () => {
  const permissions = ALL.filter((each) => each !== Permission.PUBLISH_EVENTS);
  const own = aKey({
    id: "admin",
    name: "Printer",
    permissions,
    allowedProcesses: [1],
    installedApplicationId: APP.id,
  });
  const stronger = aKey({ id: "stronger", name: "Stronger", permissions, installedApplicationId: APP.id });
  const { calls } = await openKeys([own, stronger], { getSession: signedIn(own) });
  row("Stronger");
  expect(all("button", "Revoke Stronger")).toEqual([]);
  await click("New key");
  await fill("Name", "Printer 2");
  expect(all("checkbox", /^Publish/)).toEqual([]);
  await click(/^Read /, "checkbox");
  await click("Create key");
  expect(calls.createApiKey).toMatchObject([{ installedApplicationId: APP.id, allowedProcesses: [1] }]);
});

test("rotating the session's key signs in with the new secret, which stays shown if the sign-in fails", async () => {
  const key = { id: "admin", name: "Own", permissions: [Permission.MANAGE_API_KEYS] };
  const { calls, answers } = await openKeys([aKey(key)], { getSession: signedIn(key) });
  await click("Rotate the secret of Own");
  sees("you stay signed in here, and nowhere else");
  await click("Rotate secret");
  expect(calls.signIn).toMatchObject([{ apiKey: SECRET }]);
  await click("I have copied it");
  sees("Signed in with this key");

  const ended = new DomainError("API_KEY_UNKNOWN", "your session has expired");
  Object.assign(answers, { signIn: ended, getSession: ended, listApiKeys: ended, listInstalledApps: ended });
  await click("Rotate the secret of Own");
  await click("Rotate secret");
  sees("You are signed out by this");
  // What is read anew when somebody comes back to the window would be refused.
  document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
  await later(60_000);
  expect(value("Secret")).toBe(SECRET);
  await click("I have copied it");
  sees("Your session has ended");
});

test("a revocation names the webhooks of the key, and who can take them over", async () => {
  const keys = [
    aKey(),
    aKey({ id: "heir", name: "Heir" }),
    aKey({ id: "unfit", name: "Unfit", allowedProcesses: [2] }),
  ];
  const registered = [1n, 2n].map((id) => aWebhook({ id, apiKeyId: "shop" }));
  const { calls } = await openKeys([ADMINISTRATOR, ...keys], {
    searchWebhooks: { webhooks: registered, found: 12_000 },
    revokeApiKey: { apiKey: aKey(), webhooksTransferred: 2 },
  });
  await click("Revoke Shop");
  // The service counts them, and names some.
  expect(calls.searchWebhooks.at(-1)).toMatchObject({ apiKeyId: "shop", pageSize: 200 });
  sees("The key has 12,000 webhooks:", find("dialog"));
  sees("and 11,995 more", find("dialog"));
  expect(isDisabled("Revoke key")).toBe(true);
  await click(/^Transfer them to another key/, "radio");
  await click("New owner", "combobox");
  sees("not for OrderDispatched", find("option", /^Unfit/));
  await click(/^Heir \(/, "option");
  await click("Revoke key");
  expect(calls.revokeApiKey).toMatchObject([
    { apiKeyId: "shop", webhooks: { case: "transferToKeyId", value: "heir" } },
  ]);
  sees("2 webhooks were taken over");
});

test("revoking the session's key warns of the sign-out, and signs out", async () => {
  const key = { id: "admin", name: "Own", permissions: [Permission.MANAGE_API_KEYS] };
  const { calls } = await openKeys([aKey(key)], {
    getSession: signedIn(key),
    revokeApiKey: { apiKey: aKey(key) },
  });
  await click("Revoke Own");
  sees("revoking it signs you out");
  // This key may not read webhooks, so it cannot be told of its own.
  sees("Your key does not have permission to list its webhooks");
  expect(calls.searchWebhooks).toEqual([]);
  sees("No other key manages keys");
  await click(/^Delete them/, "radio");
  await click("Revoke key");
  find("heading", "Sign in");
  sees("is revoked");
});

test("webhooks that a key registers while its revocation is confirmed are not deleted without a question", async () => {
  const registered: Webhook[] = [];
  const { calls } = await openKeys([ADMINISTRATOR, aKey()], {
    searchWebhooks: () => ({ webhooks: registered, found: registered.length }),
    revokeApiKey: { apiKey: aKey(), webhooksDeleted: 1 },
  });
  await click("Revoke Shop");
  sees("The key has no webhooks.");
  registered.push(aWebhook({ id: 2n, url: "https://receiver.example/2", apiKeyId: "shop" }));
  await click("Revoke key");
  sees("The key has 1 webhook:");
  sees("The key has registered a webhook", find("alert"));
  expect(calls.revokeApiKey).toEqual([]);
  await click(/^Delete them/, "radio");
  await click("Revoke key");
  expect(calls.revokeApiKey).toMatchObject([{ webhooks: { case: "deleteWebhooks" } }]);
  sees("1 webhook was deleted");
});

test("what the service cannot do is said in words, and can be tried again", async () => {
  const { answers } = await openKeys([ADMINISTRATOR, aKey()], {
    rotateApiKey: new DomainError(
      "STATE_NOT_FIT",
      "the key is revoked and cannot be rotated; create another key",
    ),
  });
  await click("Rotate the secret of Shop");
  await click("Rotate secret");
  sees("The key is revoked and cannot be rotated; create another key.", find("dialog"));
  answers.rotateApiKey = { secret: SECRET };
  await click("Rotate secret");
  sees("It is shown only once");
});

test("a key is renamed, and an empty name is refused", async () => {
  const { calls } = await openKeys([ADMINISTRATOR, aKey()], { renameApiKey: {} });
  await click("Rename Shop");
  await fill("Name", " ");
  await press("{Enter}");
  sees("Enter a name");
  expect(calls.renameApiKey).toEqual([]);
  await fill("Name", " Shop Berlin ");
  await click("Rename", "button", find("dialog"));
  expect(calls.renameApiKey).toMatchObject([{ apiKeyId: aKey().id, name: "Shop Berlin" }]);
});
