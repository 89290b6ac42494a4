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
    deleteInstalledApp: new DomainError("STATE_NOT_FIT", "revoke and remove its keys first"),
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
  await fill("Search", "4711");
  await later(200);
  expect(asked()).toMatchObject({ search: "4711" });
  expect(asked()).not.toHaveProperty("targetId", "7");
  sees("No entry matches");
  await click("Clear the filters");
  expect(path()).toBe("/audit");
});

test("the audit log is exported as its filters say, all of its pages", async () => {
  const { calls } = await open("/audit?search=shop&from=2026-11-20T00:00:00Z&to=2026-11-21T00:00:00Z", {
    listApiKeys: { apiKeys: [ADMINISTRATOR] },
    listAuditEntries: {},
    exportAuditEntries: ({ pageToken }) => ({
      lines: "{}\n",
      entries: 1,
      nextPageToken: pageToken === "" ? "second" : "",
    }),
  });
  await click("Export…");
  await click("JSON lines file", "menuitem");
  sees(/2 entries saved as audit-log-.*\.jsonl/);
  const filter = {
    search: "shop",
    from: { seconds: 1_795_132_800n },
    to: { seconds: 1_795_219_200n },
    format: 2,
  };
  expect(calls.exportAuditEntries).toMatchObject([filter, { ...filter, pageToken: "second" }]);
});
