import { afterAll, beforeAll, expect, test } from "vitest";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/hooks/${++paths}`;
const create = (url: string, process = 1, key = api.adminKey) =>
  api.rest("POST", "/api/webhook", { json: { process, url }, key });

test("§2.1: a listed webhook has exactly the contract's fields, with their types", async () => {
  const url = freshUrl();
  const { envelope: made } = await create(url, 2);
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const webhook = envelope.Data.find((each: { Id: number }) => each.Id === made.Data.Id);
  expect(Object.keys(webhook)).toEqual(["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"]);
  expect(webhook).toEqual({
    Id: expect.any(Number),
    Created: expect.any(String),
    Modified: expect.any(String),
    WebhookProcess: "DocumentCreated",
    Url: url,
    Application: null,
  });
});

test("§2.1: an Id beyond 2^53 is a JSON number with every digit, on create, list and delete", async () => {
  const id = "9007199254740993";
  await api.context.db.raw(`alter table webhooks alter column id restart with ${id}`);
  const url = freshUrl();
  const made = await create(url);
  expect(made.text).toContain(`"Data":{"Id":${id},`);
  expect((await api.rest("GET", "/api/webhook/list")).text).toContain(`{"Id":${id},`);
  const deleted = await api.rest("DELETE", "/api/webhook", {
    raw: { body: `{"webhookId": ${id}}`, type: "application/json" },
  });
  expect(deleted.text).toContain(`"Data":{"Id":${id},`);
  // The highest there is still can be asked for.
  const highest = await api.rest("DELETE", "/api/webhook", { query: { webhookId: "9223372036854775807" } });
  expect(highest.envelope.Warnings[0]).toContain("there is no webhook 9223372036854775807");
  await api.context.db.raw("alter table webhooks alter column id restart with 1000");
});

test("§2.2: a success has Success, Data and Warnings and nothing else, in this order", async () => {
  const answers = [await create(freshUrl()), await api.rest("GET", "/api/webhook/list")];
  for (const { envelope, headers } of answers) {
    expect(Object.keys(envelope)).toEqual(["Success", "Data", "Warnings"]);
    expect(envelope.Success).toBe(true);
    expect(envelope.Warnings).toEqual([]);
    expect(headers.get("content-type")).toBe("application/json; charset=utf-8");
  }
});

test("§2.2: a failure has Success false, Data null and an array of messages", async () => {
  const { envelope } = await api.rest("POST", "/api/webhook");
  expect(Object.keys(envelope)).toEqual(["Success", "Data", "Warnings"]);
  expect(envelope).toEqual({ Success: false, Data: null, Warnings: [expect.any(String)] });
});

test("§2.3: Created and Modified are UTC in the shape YYYY-MM-DDThh:mm:ss", async () => {
  const before = Math.floor(Date.now() / 1_000) * 1_000;
  const { envelope } = await create(freshUrl());
  for (const time of [envelope.Data.Created, envelope.Data.Modified]) {
    expect(time).toMatch(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}$/);
    expect(Date.parse(`${time}Z`)).toBeGreaterThanOrEqual(before);
    expect(Date.parse(`${time}Z`)).toBeLessThanOrEqual(Date.now());
  }
});

test("§4.1: GET /api/webhook/list answers an array of all registered webhooks, of every key, oldest first", async () => {
  const other = await api.key();
  const first = (await create(freshUrl())).envelope.Data;
  const second = (await create(freshUrl(), 3, other.secret)).envelope.Data;
  const { status, envelope } = await api.rest("GET", "/api/webhook/list");
  expect(status).toBe(200);
  expect(envelope.Data.slice(-2)).toEqual([first, second]);
});

test("§4.1: a list without webhooks is an empty array", async () => {
  const empty = await startTestApi();
  try {
    expect((await empty.rest("GET", "/api/webhook/list")).text).toBe(
      '{"Success":true,"Data":[],"Warnings":[]}',
    );
  } finally {
    await empty.stop();
  }
});

test("§4.2: POST /api/webhook takes process and url and answers the created webhook", async () => {
  const url = freshUrl();
  const { status, envelope } = await create(url, 3);
  expect(status).toBe(200);
  expect(envelope.Data).toMatchObject({ WebhookProcess: "StockLevelChanged", Url: url });
});

test("§4.2.1: creating the same process and url again changes nothing and answers the existing webhook", async () => {
  const url = freshUrl();
  const first = await create(url);
  const again = await create(url, 1, (await api.key()).secret);
  expect(again.status).toBe(200);
  expect(again.envelope.Data).toEqual(first.envelope.Data);
  expect(again.text.replace(/"Warnings":\[".+"\]/, '"Warnings":[]')).toBe(first.text);
  const other = await create(url, 2);
  expect(other.envelope.Data.Id).not.toBe(first.envelope.Data.Id);
});

test("§4.2.1: addresses that differ in spelling only are the same, and the first spelling is shown", async () => {
  const url = "https://Receiver.example:443/a/../same";
  const first = await create(url);
  expect(first.envelope.Data.Url).toBe(url);
  for (const same of [
    "https://receiver.example/same",
    "https://receiver.example./same",
    "HTTPS://RECEIVER.EXAMPLE/./same",
  ]) {
    expect((await create(same)).envelope.Data).toEqual(first.envelope.Data);
  }
  expect((await create("https://receiver.example/Same")).envelope.Data.Id).not.toBe(first.envelope.Data.Id);
});

test("§4.2.1: fifty creates at once, of two keys and two spellings, make one webhook", async () => {
  const other = await api.key();
  const path = freshUrl();
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, i) =>
      create(
        i % 2 ? path : path.replace("receiver.example", "RECEIVER.example:443"),
        1,
        i % 3 ? api.adminKey : other.secret,
      ),
    ),
  );
  expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([200]));
  expect(new Set(answers.map((answer) => answer.envelope.Data.Id)).size).toBe(1);
  const { rows } = await api.context.db.raw("select count(*)::int as n from webhooks where target_url = ?", [
    path,
  ]);
  expect(rows[0].n).toBe(1);
});

test("§4.2.1: a webhook deleted before can be registered anew, under a new Id", async () => {
  const url = freshUrl();
  const first = (await create(url)).envelope.Data.Id;
  await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(first) } });
  expect((await create(url)).envelope.Data.Id).toBeGreaterThan(first);
});

test("§4.2.2: the key of an installed app stores its InstalledApplicationId on the webhook", async () => {
  const app = await createInstalledApp(api.context.db, "Shop");
  const key = await api.key({ installedAppId: app.id });
  const { envelope } = await create(freshUrl(), 1, key.secret);
  expect(envelope.Data.Application).toBe(app.id);
  const { rows } = await api.context.db.raw("select installed_app_id from webhooks where id = ?", [
    envelope.Data.Id,
  ]);
  expect(rows[0].installed_app_id).toBe(app.id);
});

test("§4.2.2: an installed app's create leaves an existing webhook of another key as it is", async () => {
  const url = freshUrl();
  const first = await create(url);
  const app = await createInstalledApp(api.context.db, "Late");
  const again = await create(url, 1, (await api.key({ installedAppId: app.id })).secret);
  expect(again.envelope.Data).toEqual(first.envelope.Data);
});

test("§7.1: a success has status 200 and Success true", async () => {
  const made = await create(freshUrl());
  const deleted = await api.rest("DELETE", "/api/webhook", {
    query: { webhookId: String(made.envelope.Data.Id) },
  });
  for (const answer of [made, deleted, await api.rest("GET", "/api/webhook/list")]) {
    expect([answer.status, answer.envelope.Success]).toEqual([200, true]);
  }
});

test("§7.2: a failure has status 400, Success false, Data null and a message that explains it", async () => {
  const { status, envelope } = await create("http://receiver.example/plain");
  expect(status).toBe(400);
  expect(envelope).toEqual({
    Success: false,
    Data: null,
    Warnings: ["url begins with http://; only https:// is allowed"],
  });
});

test.each(["/api", "/api/v1", "/api/v2"])(
  "§9.1: list, create and delete are at %s/webhook",
  async (prefix) => {
    const made = await api.rest("POST", `${prefix}/webhook`, { json: { process: 1, url: freshUrl() } });
    expect(made.envelope.Success).toBe(true);
    const listed = await api.rest("GET", `${prefix}/webhook/list`);
    expect(listed.envelope.Data).toContainEqual(made.envelope.Data);
    const deleted = await api.rest("DELETE", `${prefix}/webhook`, {
      json: { webhookId: made.envelope.Data.Id },
    });
    expect(deleted.envelope.Success).toBe(true);
  },
);
