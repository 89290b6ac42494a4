import { expect, test } from "vitest";
import { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import { DomainError } from "../../../src/contract/errors.ts";
import { ADMINISTRATOR, ago, aKey, HOUR } from "./answers.ts";
import { all, choose, click, fill, find, later, open, path, sees, value } from "./page.tsx";

test("dozens of apps are searched, lead to their keys and webhooks, and say why they cannot be removed", async () => {
  const installedApps = Array.from({ length: 12 }, (_, n) => ({ id: `app-${n}`, name: `App ${n}` }));
  await open("/apps", {
    listInstalledApps: { installedApps },
    listApiKeys: {
      apiKeys: [aKey({ installedApplicationId: "app-11" }), aKey({ id: "b", revoked: ago(1) })],
    },
    deleteInstalledApp: new DomainError("FAILED_PRECONDITION", "revoke and remove its keys first"),
  });
  await fill("Search apps", "nothing like it");
  await later(200);
  sees("No app has “nothing like it” in its name");
  await click("Clear the filters");
  await fill("Search apps", "app 11");
  await later(200);
  expect(all("row")).toHaveLength(2);
  await click("Remove App 11");
  await click("Remove app");
  sees("Revoke and remove its keys first", find("dialog"));
  await click("Cancel");
  const to = (name: string) => find("link", name).getAttribute("href");
  expect([to("1 key"), to("Webhooks of App 11")]).toEqual([
    "/keys?app=app-11",
    "/webhooks?application=app-11",
  ]);
});

test("the audit log is filtered by action, key and target in the address, names a deleted key, and uses the page's time zone", async () => {
  const change = { field: "paused", after: "2026-11-21T10:00:00Z" };
  const { calls, answers } = await open("/audit?target=7&action=webhook-paused&key=gone", {
    listApiKeys: { apiKeys: [ADMINISTRATOR] },
    listAuditEntries: {
      entries: [
        { id: "1", time: ago(HOUR), action: AuditAction.WEBHOOK_PAUSED, targetId: "7", changes: [change] },
      ],
    },
  });
  const asked = () => calls.listAuditEntries.at(-1);
  expect(asked()).toMatchObject({ targetId: "7", apiKeyId: "gone", actions: [AuditAction.WEBHOOK_PAUSED] });
  expect(value("Changed with")).toBe("Key gone");
  sees(/21 Nov 2026, 11:00:00 CET/, find("main").querySelector("ins") as Element);
  expect(all("link").map((link) => link.getAttribute("href"))).toContain("/webhooks/7");
  await click("Any API key");
  expect(path()).toBe("/audit?target=7&action=webhook-paused");
  await choose("Action", "Webhook created");
  expect(asked()).toMatchObject({ actions: [AuditAction.WEBHOOK_CREATED] });
  answers.listAuditEntries = {};
  await fill("Id of what was changed", "4711");
  await later(200);
  sees("No entry matches");
  await click("Clear the filters");
  expect(path()).toBe("/audit");
});
