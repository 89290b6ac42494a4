import { expect, onTestFinished, test } from "vitest";
import { createInstalledApp } from "../../../src/keys/installed-apps.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { cancelOfDeleted } from "../../../src/queue/deleted-webhooks.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { type Envelope, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;

let paths = 0;
const freshUrl = () => `https://receiver.example/hooks/${++paths}`;
const create = (url = freshUrl(), process = 1, key = api.adminKey) =>
  api.rest("POST", "/api/webhook", { json: { process, url }, key });
async function created(...given: Parameters<typeof create>) {
  const { envelope } = await create(...given);
  expect(envelope).toMatchObject({ Success: true });
  return envelope.Data;
}
const list = () => api.rest("GET", "/api/webhook/list");
const remove = (webhookId: number | string) =>
  api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
const idsIn = ({ Data }: Envelope) => Data.map(({ Id }: { Id: number }) => Id);

test("§4.1: a list without webhooks is an empty array", async () => {
  expect((await list()).text).toBe('{"Success":true,"Data":[],"Warnings":[]}');
});

test("§2.1: a listed webhook has exactly the contract's fields, with their types", async () => {
  const url = freshUrl();
  const made = await created(url, 2);
  const { envelope } = await list();
  expect(envelope.Data).toEqual([made]);
  expect(Object.keys(made)).toEqual(["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"]);
  expect(made).toEqual({
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
  const restart = (next: string) => db.raw(`alter table webhooks alter column id restart with ${next}`);
  const [{ next = "" } = {}] = await rows<{ next: string }>(
    db,
    "select nextval(pg_get_serial_sequence('webhooks', 'id'))::text as next",
  );
  onTestFinished(() => restart(next));
  await restart(id);
  for (const act of [create, list, () => remove(id)]) expect((await act()).text).toContain(`{"Id":${id},`);
});

test("§2.2, §7.1: a success is 200 with Success, Data and Warnings and nothing else, in this order", async () => {
  const made = await create();
  for (const { status, envelope, headers } of [made, await list(), await remove(made.envelope.Data.Id)]) {
    expect([status, Object.keys(envelope)]).toEqual([200, ["Success", "Data", "Warnings"]]);
    expect(envelope).toMatchObject({ Success: true, Warnings: [] });
    expect(headers.get("content-type")).toBe("application/json; charset=utf-8");
  }
});

test("§2.2, §7.2: a failure is 400 with Success false, Data null and a message that explains it", async () => {
  const { status, envelope } = await create("http://receiver.example/plain");
  const Warnings = ["url begins with http://; only https:// is allowed"];
  expect([status, envelope]).toEqual([400, { Success: false, Data: null, Warnings }]);
});

test("§2.3: Created and Modified are UTC in the shape YYYY-MM-DDThh:mm:ss", async () => {
  const { Id, Created, Modified } = await created();
  const [stored] = await rows<Record<"created" | "modified", Date>>(
    db,
    "select * from webhooks where id = :Id",
    { Id },
  );
  const inUtc = (time?: Date) => time?.toISOString().slice(0, "YYYY-MM-DDThh:mm:ss".length);
  expect([Created, Modified]).toEqual([inUtc(stored?.created), inUtc(stored?.modified)]);
});

test("§4.1, §4.2: the list is an array of all registered webhooks, of every key, oldest first, as create answered them", async () => {
  const made = [await created(), await created(freshUrl(), 3, (await api.key()).secret)];
  expect(made[1]).toMatchObject({ WebhookProcess: "StockLevelChanged" });
  expect((await list()).envelope.Data.slice(-2)).toEqual(made);
});

test("§4.2.1: creating the same process and url again changes nothing and answers the existing webhook", async () => {
  const url = freshUrl();
  const first = await create(url);
  const again = await create(url, 1, (await api.key()).secret);
  expect(again.status).toBe(200);
  expect(again.envelope.Data).toEqual(first.envelope.Data);
  expect(again.text.replace(/"Warnings":\[".+"\]/, '"Warnings":[]')).toBe(first.text);
  expect((await created(url, 2)).Id).not.toBe(first.envelope.Data.Id);
});

test("§4.2.1: addresses that differ in spelling only are the same, and the first spelling is shown", async () => {
  const url = "https://Receiver.example:443/a/../same";
  const first = await created(url);
  expect(first.Url).toBe(url);
  for (const same of [
    "https://receiver.example/same",
    "https://receiver.example./same",
    "HTTPS://RECEIVER.EXAMPLE/./same",
  ])
    expect(await created(same)).toEqual(first);
  expect((await created("https://receiver.example/Same")).Id).not.toBe(first.Id);
});

test("§4.2.1: fifty creates at once, of two keys and two spellings, make one webhook", async () => {
  const keys = [api.adminKey, (await api.key()).secret];
  const url = freshUrl();
  const spellings = [url, url.replace("receiver.example", "RECEIVER.example:443")];
  const made = await Promise.all(
    Array.from({ length: 50 }, (_, n) => created(spellings[n % 2], 1, keys[n % 3 ? 0 : 1])),
  );
  expect(new Set(made.map(({ Id }) => Id)).size).toBe(1);
  expect(await db("webhooks").where({ target_url: url }).pluck("id")).toHaveLength(1);
});

test("§4.2.1: a deleted webhook can be registered again, under a new Id", async () => {
  const url = freshUrl();
  const { Id } = await created(url);
  await remove(Id);
  expect((await created(url)).Id).toBeGreaterThan(Id);
});

test("§4.2.2: the key of an installed app stores its InstalledApplicationId on a new webhook, and leaves an existing one as it is", async () => {
  const url = freshUrl();
  const first = await created(url);
  const app = await createInstalledApp(db, "Shop");
  const { secret } = await api.key({ installedAppId: app.id });
  const { Id, Application } = await created(freshUrl(), 1, secret);
  expect([Application, await db("webhooks").where({ id: Id }).pluck("installed_app_id")]).toEqual([
    app.id,
    [app.id],
  ]);
  expect(await created(url, 1, secret)).toEqual(first);
});

test("§4.3, §4.3.1: the Id from the list deletes its webhook, which is returned and removed from the list", async () => {
  const made = await created();
  const Id = idsIn((await list()).envelope).at(-1);
  const { envelope } = await remove(Id);
  expect(envelope).toMatchObject({ Success: true, Data: { Id: made.Id, Url: made.Url } });
  expect(idsIn((await list()).envelope)).not.toContain(made.Id);
});

test.each(["4711", "-1", "9007199254740993"])(
  "§4.3.2, §7.3: a webhookId that does not exist is a failure with a warning: %s",
  async (webhookId) => {
    const { status, envelope } = await remove(webhookId);
    expect(status).toBe(400);
    expect(envelope).toEqual({ Success: false, Data: null, Warnings: [expect.stringContaining(webhookId)] });
  },
);

test("§4.3.2: of many deletes of one webhook at once, one succeeds", async () => {
  const { Id } = await created();
  const answers = await Promise.all(Array.from({ length: 10 }, () => remove(Id)));
  expect(answers.filter(({ envelope }) => envelope.Success)).toHaveLength(1);
});

test.each(["/api", "/api/v1", "/api/v2"])(
  "§9.1: list, create and delete are at %s/webhook",
  async (prefix) => {
    const made = await api.rest("POST", `${prefix}/webhook`, { json: { process: 1, url: freshUrl() } });
    const listed = await api.rest("GET", `${prefix}/webhook/list`);
    expect(listed.envelope.Data).toContainEqual(made.envelope.Data);
    const json = { webhookId: made.envelope.Data.Id };
    expect((await api.rest("DELETE", `${prefix}/webhook`, { json })).envelope.Success).toBe(true);
  },
);

const statesOf = (webhookId: number) =>
  db("all_deliveries").where("webhook_id", webhookId).orderBy("state").pluck("state");

test("a delete waits for no delivery that is being changed; it is cancelled soon after", async () => {
  const { Id: webhookId } = await created();
  const [busy = ""] = await storeDeliveries(db, [{ webhookId }, { webhookId }]);
  const other = await db.transaction();
  await other("queue").where("id", busy).forUpdate();
  expect((await remove(webhookId)).envelope.Success).toBe(true);
  expect(await statesOf(webhookId)).toEqual(["cancelled", "pending"]);
  await other.commit();
  expect(await cancelOfDeleted(db)).toBe(1);
  expect(await statesOf(webhookId)).toEqual(["cancelled", "cancelled"]);
});

test("a delete that PostgreSQL chose in a deadlock is tried again", async () => {
  const { Id: webhookId } = await created();
  await storeDeliveries(db, [{ webhookId }, { webhookId }]);
  const other = await db.transaction();
  await other.raw("set local deadlock_timeout = '1h'");
  await other("processes").where("process", 1).forUpdate();
  const deleted = remove(webhookId);
  await expect.poll(() => waitingQueries(api)).toBe(1);
  // Now each waits for the other, and the delete, which looks first, gives way.
  await other("webhooks").where("id", webhookId).forUpdate();
  await other.commit();
  expect((await deleted).envelope.Success).toBe(true);
  expect(await statesOf(webhookId)).toEqual(["cancelled", "cancelled"]);
});
