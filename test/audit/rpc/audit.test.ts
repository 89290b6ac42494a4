import { timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { describe, expect, onTestFinished, test } from "vitest";
import { AuditAction, AuditActionSchema, type AuditEntry } from "../../../gen/webhook/v1/audit_pb.ts";
import { ExportFormat } from "../../../gen/webhook/v1/delivery_pb.ts";
import { createAdminKey, ensureFirstAdmin } from "../../../src/app/first-admin.ts";
import { deleteOldAuditEntries } from "../../../src/audit/audit-log.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { pagesOf } from "../../support/pages.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { audit, webhooks, keys, endpoints } = api;

const all = async () => (await audit.listAuditEntries({ pageSize: 1_000 })).entries;
const nameOf = (action: AuditAction) => AuditActionSchema.value[action]?.localName;
const short = ({ action, changes }: AuditEntry) => [
  nameOf(action),
  Object.fromEntries(changes.map(({ field, before, after }) => [field, [before, after]])),
];

/** The entries that a call adds, oldest first. */
async function added(call: () => Promise<unknown>): Promise<AuditEntry[]> {
  const before = new Set((await all()).map(({ id }) => id));
  await call();
  return (await all()).filter(({ id }) => !before.has(id)).reverse();
}

test("an entry says what was before and what is after, and when it was written", async () => {
  const webhookId = await api.register();
  const update = (rateLimit: number) => webhooks.updateWebhook({ webhookId, rateLimit });
  const [entries, span] = await timed(db, () =>
    added(async () => {
      for (const rateLimit of [7, 9, 0]) await update(rateLimit);
    }),
  );
  expect(entries.map(short)).toEqual([
    ["WEBHOOK_UPDATED", { rate_limit: [undefined, "7"] }],
    ["WEBHOOK_UPDATED", { rate_limit: ["7", "9"] }],
    ["WEBHOOK_UPDATED", { rate_limit: ["9", undefined] }],
  ]);
  const about = { targetId: String(webhookId), webhookProcess: 1 };
  for (const entry of entries) {
    expect(entry).toMatchObject({ ...about, targetName: expect.stringContaining("https://") });
    expectWithin(span, entry.time);
  }
});

test("entries are found by a part of a name or by an id, and exported as CSV and JSON lines in pages", async () => {
  const { apiKey, secret } = await keys.createApiKey({ name: "Warehouse Nord", permissions: [1, 2, 3, 4] });
  const client = api.as(secret);
  const webhookId = await api.register({ key: secret, url: "https://found.example/Orders" });
  await client.webhooks.pauseWebhook({ webhookId });
  const actions = async (search: string) =>
    (await audit.listAuditEntries({ search })).entries.map(({ action }) => nameOf(action));
  const changes = ["WEBHOOK_PAUSED", "WEBHOOK_CREATED"];
  expect(await actions("FOUND.example/orders")).toEqual(changes);
  expect(await actions("house nord")).toEqual([...changes, "API_KEY_CREATED"]);
  expect(await actions(apiKey?.id.toUpperCase() ?? "")).toEqual(["API_KEY_CREATED"]);
  expect(await actions("no such name")).toEqual([]);
  const filter = { search: "found.example", pageSize: 1 };
  const lines = async (format: ExportFormat) =>
    (await pagesOf((pageToken) => audit.exportAuditEntries({ ...filter, format, pageToken }))).map(
      (page) => page.lines,
    );
  const [first = "", second = ""] = await lines(ExportFormat.CSV);
  expect(first).toMatch(/^\ufeffid,time,action,api_key_id,api_key_name,.*\r\n.*,webhook_paused,.*\r\n$/);
  expect(second).toMatch(/^[^\r]*,webhook_created,[^\r]*Warehouse Nord[^\r]*\r\n$/);
  const objects = (await lines(ExportFormat.JSON_LINES)).map((line) => JSON.parse(line));
  expect(objects).toMatchObject([
    {
      action: "AUDIT_ACTION_WEBHOOK_PAUSED",
      targetId: String(webhookId),
      actor: { apiKeyName: "Warehouse Nord" },
    },
    { action: "AUDIT_ACTION_WEBHOOK_CREATED" },
  ]);
  await expectRefused(audit.exportAuditEntries({}), Code.InvalidArgument, "format is required");
});

test("a renamed key keeps its rights, its old name in older entries, and is renamed by those who may see it", async () => {
  const made = await keys.createApiKey({ name: "Old name", permissions: [1] });
  const id = made.apiKey?.id as string;
  const entries = await added(async () => {
    expect((await keys.renameApiKey({ apiKeyId: id, name: "New name" })).apiKey?.name).toBe("New name");
    await keys.renameApiKey({ apiKeyId: id, name: "New name" });
  });
  expect(entries.map(short)).toEqual([["API_KEY_RENAMED", { name: ["Old name", "New name"] }]]);
  const { entries: about } = await audit.listAuditEntries({ targetId: id });
  expect(about.map(({ targetName }) => targetName)).toEqual(["New name", "Old name"]);
  await api.revoke(id);
  expect((await keys.renameApiKey({ apiKeyId: id, name: "Revoked" })).apiKey?.revoked).toBeDefined();
  const ofApp = await api.key({ installedAppId: await api.app() });
  const other = api.as(ofApp.secret).keys.renameApiKey({ apiKeyId: id, name: "Stolen" });
  await expectRefused(other, Code.NotFound, "there is no API key");
  await expectRefused(keys.renameApiKey({ apiKeyId: id, name: "  " }), Code.InvalidArgument, "white space");
});

test("a change of an endpoint's settings leaves an entry for each of its webhooks, one of its event types names them", async () => {
  const url = "https://receiver.example/endpoint";
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url });
  const [first, second] = (endpoint?.webhooks ?? []).map(({ id }) => id) as [bigint, bigint];
  const entries = await added(async () => {
    await webhooks.updateWebhook({ webhookId: first, rateLimit: 7, filter: 'user_id == "u"' });
    await webhooks.rotateWebhookSecret({ webhookId: first });
  });
  const filtered = { rate_limit: [undefined, "7"], filter: [undefined, 'user_id == "u"'] };
  const revoked = { old_secrets_revoked: [undefined, "false"] };
  expect(entries.map((entry) => [entry.targetId, ...short(entry)])).toEqual([
    [String(first), "WEBHOOK_UPDATED", filtered],
    [String(second), "WEBHOOK_UPDATED", { rate_limit: [undefined, "7"] }],
    [String(first), "WEBHOOK_SECRET_ROTATED", revoked],
    [String(second), "WEBHOOK_SECRET_ROTATED", revoked],
  ]);
  const target = { case: "endpointId" as const, value: endpoint?.id as string };
  await endpoints.updateEndpoint({ target, addProcesses: [3], removeProcesses: [1] });
  const found = await audit.listAuditEntries({ targetId: target.value.toUpperCase() });
  const [entry] = found.entries;
  const types = ["OrderDispatched, DocumentCreated", "DocumentCreated, StockLevelChanged"];
  expect(entry && short(entry)).toEqual(["ENDPOINT_UPDATED", { webhook_processes: types }]);
  expect(entry).toMatchObject({ webhookProcess: 0, targetName: url });
});

test("webhooks that join an endpoint, change their key or are deleted with it each have an entry", async () => {
  const [owner, heir] = [await api.key(), await api.key()];
  const webhookId = await api.register({ key: owner.secret });
  const target = { case: "webhookId" as const, value: webhookId };
  const transfer = { case: "transferToKeyId" as const, value: heir.id };
  for (const [call, actions] of [
    [
      () => endpoints.updateEndpoint({ target, addProcesses: [2] }),
      ["ENDPOINT_CREATED", "WEBHOOK_CREATED", "WEBHOOK_UPDATED"],
    ],
    [
      () => keys.revokeApiKey({ apiKeyId: owner.id, webhooks: transfer }),
      ["API_KEY_REVOKED", "WEBHOOK_TRANSFERRED", "WEBHOOK_TRANSFERRED"],
    ],
    [() => api.revoke(heir.id), ["API_KEY_REVOKED", "WEBHOOK_DELETED", "WEBHOOK_DELETED"]],
  ] as const)
    expect((await added(call)).map(({ action }) => nameOf(action)).sort()).toEqual(actions);
});

test("§4: what REST creates and deletes is audited like every other call", async () => {
  const key = await api.key({ name: "Shop" });
  const url = "https://receiver.example/audited";
  const entries = await added(async () => {
    const json = { process: 2, url };
    const created = await api.rest("POST", "/api/webhook", { key: key.secret, json });
    const webhookId = String(created.envelope.Data.Id);
    await api.rest("DELETE", "/api/webhook", { key: key.secret, query: { webhookId } });
  });
  const type = { webhook_process: [undefined, "DocumentCreated"], api_key_id: [undefined, key.id] };
  expect(entries.map(short)).toEqual([
    ["WEBHOOK_CREATED", expect.objectContaining({ url: [undefined, url], ...type })],
    ["WEBHOOK_DELETED", expect.objectContaining({ url: [url, undefined] })],
  ]);
  const by = { apiKeyId: key.id, apiKeyName: "Shop", address: expect.stringMatching(/^(127\.0\.0\.1|::1)$/) };
  for (const { actor } of entries) {
    expect(actor).toMatchObject(by);
    expect(actor?.sessionId).toBeUndefined();
  }
});

test("a change on the settings page names the session, which the database can find and nobody can use", async () => {
  const page = { "X-Settings-Page": "1", Origin: api.url, "Content-Type": "application/json" };
  const call = (method: string, message: object, headers = {}) =>
    fetch(`${api.url}/webhook.v1.${method}`, {
      method: "POST",
      headers: { ...page, ...headers },
      body: JSON.stringify(message),
    });
  const signIn = await call("SessionService/SignIn", { apiKey: api.adminKey });
  const Cookie = signIn.headers.get("Set-Cookie")?.split(";")[0] as string;
  const [entry] = await added(() =>
    call("ApiKeyService/CreateInstalledApp", { name: "by page" }, { Cookie }),
  );
  const sessionId = entry?.actor?.sessionId as string;
  expect(sessionId).toMatch(/^[0-9a-f]{16}$/);
  expect(Cookie).not.toContain(sessionId);
  const found = "select 1 from sessions where encode(token_sha256, 'hex') like :prefix";
  expect(await rows(db, found, { prefix: `${sessionId}%` })).toHaveLength(1);
});

test("keys that the operator makes are entries without a key", async () => {
  const config = { adminKey: "chosen-by-an-operator-4711-4711-4711", dataDir: "", database: {} as never };
  const made = await added(async () => {
    await createAdminKey(db, "by hand");
    await ensureFirstAdmin(db, config);
    await ensureFirstAdmin(db, config);
    await db("api_keys").where("prefix", "chos").update({ revoked: new Date() });
    await ensureFirstAdmin(db, config);
  });
  expect(made.map(({ action, byOperator, actor }) => [nameOf(action), byOperator, actor])).toEqual([
    ["API_KEY_CREATED", true, undefined],
    ["API_KEY_CREATED", true, undefined],
    ["API_KEY_RESTORED", true, undefined],
  ]);
  expect(short(made[2] as AuditEntry)[1]).toEqual({ revoked: ["true", "false"] });
});

test("an entry is written with its change or not at all", async () => {
  await db.raw("alter table audit_log add constraint refuses check (action <> 'webhook_created') not valid");
  onTestFinished(() => db.raw("alter table audit_log drop constraint refuses"));
  const url = "https://receiver.example/not-without-its-entry";
  await expectRefused(webhooks.createWebhook({ process: 1, url }), Code.Internal);
  expect(await db("webhooks").where({ url })).toEqual([]);
});

describe("the list", () => {
  test("has pages, newest first", async () => {
    const ids = (await all()).map(({ id }) => id);
    const pages = await pagesOf((pageToken) => audit.listAuditEntries({ pageSize: 3, pageToken }));
    expect(pages.flatMap((page) => page.entries.map(({ id }) => id))).toEqual(ids);
    expect(ids).toEqual(ids.toSorted().reverse());
    expect(ids.length).toBeGreaterThan(9);
  });

  test("can be restricted to actions, a key, what was changed, and a time", async () => {
    const key = await api.key({ name: "filtered" });
    const webhookId = await api.register({ key: key.secret });
    await api.as(key.secret).webhooks.pauseWebhook({ webhookId });
    await webhooks.resumeWebhook({ webhookId });
    const actions = async (filter: Parameters<typeof audit.listAuditEntries>[0]) =>
      (await audit.listAuditEntries(filter)).entries.map(({ action }) => nameOf(action));
    expect(await actions({ apiKeyId: key.id })).toEqual(["WEBHOOK_PAUSED", "WEBHOOK_CREATED"]);
    const targetId = String(webhookId);
    expect(await actions({ targetId })).toEqual(["WEBHOOK_RESUMED", "WEBHOOK_PAUSED", "WEBHOOK_CREATED"]);
    const filter = { apiKeyId: key.id, actions: [AuditAction.WEBHOOK_CREATED] };
    expect(await actions(filter)).toEqual(["WEBHOOK_CREATED"]);
    const at = (await audit.listAuditEntries(filter)).entries[0]?.time as never;
    const next = timestampFromDate(new Date(timestampDate(at).getTime() + 1));
    expect(await actions({ ...filter, from: at, to: next })).toEqual(["WEBHOOK_CREATED"]);
    expect(await actions({ ...filter, to: at })).toEqual([]);
    expect(await actions({ ...filter, from: next })).toEqual([]);
  });

  test("shows a key of an app the entries of its app, without keys outside the app", async () => {
    const { installedApp } = await keys.createInstalledApp({ name: "own" });
    const key = await api.key({ name: "of the app", installedAppId: installedApp?.id as string });
    const webhookId = await api.register({ key: key.secret });
    await webhooks.pauseWebhook({ webhookId });
    const ofApp = api.as(key.secret).audit;
    const { entries } = await ofApp.listAuditEntries({});
    expect(entries.map(({ action, actor }) => [nameOf(action), actor?.apiKeyName])).toEqual([
      ["WEBHOOK_PAUSED", undefined],
      ["WEBHOOK_CREATED", "of the app"],
      ["INSTALLED_APP_CREATED", undefined],
    ]);
    expect((await ofApp.listAuditEntries({ apiKeyId: api.adminKeyId })).entries).toEqual([]);
    const found = async (search: string) => (await ofApp.listAuditEntries({ search })).entries.length;
    expect([await found("of the app"), await found("admin")]).toEqual([1, 0]);
  });
});

describe("the table", () => {
  test.each([
    "update audit_log set action = 'webhook_paused'",
    "delete from audit_log",
    "truncate audit_log",
    // Even a transaction that names the retention deletes nothing of the last seven days.
    "select set_config('webhook_service.audit_retention_days', '0', false); delete from audit_log",
    "set session_replication_role = replica; delete from audit_log",
  ])("is append-only, also for the service's own role: %s", async (statement) => {
    const before = (await all()).length;
    const refused = db.transaction((trx) => trx.raw(statement));
    await expect(refused).rejects.toMatchObject({ code: "42501" });
    expect((await all()).length).toBe(before);
  });

  test("loses what is older than the retention, and nothing else", async () => {
    for (const days of [29, 31, 400])
      await db.raw(
        `insert into audit_log (id, action, target_id, written)
          values (overlay(new_event_id()::text placing '0000000' from 1 for 7)::uuid, 'webhook_paused', :target,
            now() - make_interval(days => :days::int))`,
        { days, target: `aged ${days}` },
      );
    const before = await db("audit_log").pluck("target_id");
    expect([await deleteOldAuditEntries(db, 30), await deleteOldAuditEntries(db, 30)]).toEqual([2, 0]);
    const left = before.filter((targetId) => !["aged 31", "aged 400"].includes(targetId));
    expect((await db("audit_log").pluck("target_id")).sort()).toEqual(left.sort());
  });
});

test("a search of the audit log examines 20,000 entries at a time, and says where to go on", async () => {
  await api.register({ url: "https://old.example/once" });
  await db.raw(`insert into audit_log (action, target_name, before, after)
    select 'webhook_updated', 'https://new.example/' || n, '{}', '{}' from generate_series(1, 20000) n`);
  const first = await audit.listAuditEntries({ search: "old.example" });
  expect([first.entries, first.nextPageToken]).toEqual([[], expect.stringMatching(/./)]);
  const second = await audit.listAuditEntries({ search: "old.example", pageToken: first.nextPageToken });
  expect([second.entries.length, second.nextPageToken]).toEqual([1, ""]);
});
