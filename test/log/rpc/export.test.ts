import { randomUUID } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import {
  DeliveryState,
  type ExportDeliveriesResponse,
  ExportFormat,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { changeDelivery, idAt, storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

/** More than two pages of an export. */
const MANY = 1_200;
/** A few such payloads are more than an export holds at once. */
const LARGE_CHARACTERS = 200_000;
/** A full second. */
const NEWEST = Math.floor(Date.now() / 1_000) * 1_000;
const AN_HOUR_AGO = { seconds: BigInt(NEWEST / 1_000 - 3_600) };
const { CSV, JSON_LINES } = ExportFormat;

const api = await useApi();
const { db } = api.context;
const { deliveries } = api;
const webhookId = await api.register();
/** A webhook with MANY ended deliveries, a second apart, newest first. */
const busy = await api.register();
const ids = Array.from({ length: MANY }, (_, n) => idAt(new Date(NEWEST - 1_000 * n), n));
await storeDeliveries(
  db,
  ids.map((id, n) => ({ id, webhookId: busy, state: n % 3 === 0 ? "failed" : "delivered" })),
);

/** Publishes an order. Returns the id of its delivery. */
async function publish(orderNumber: string, carrier = "DHL"): Promise<string> {
  const { eventId } = await api.events.publishEvent(anOrder({ orderNumber, carrier }));
  const of = { event_id: eventId, webhook_id: String(webhookId) };
  return (await db("queue").where(of).first())?.id;
}

async function exported(request: Parameters<typeof deliveries.exportDeliveries>[0]) {
  const responses: ExportDeliveriesResponse[] = [];
  for await (const response of deliveries.exportDeliveries(request)) responses.push(response);
  return responses;
}

const textOf = (responses: readonly ExportDeliveriesResponse[]) =>
  responses.map(({ lines }) => lines).join("");
/** The objects of JSON lines. */
const objectsOf = (responses: readonly ExportDeliveriesResponse[]) =>
  textOf(responses)
    .trimEnd()
    .split("\n")
    // biome-ignore lint/suspicious/noExplicitAny: a Delivery in JSON, with its payload
    .map((line) => JSON.parse(line) as any);

test("every delivery that matches is exported once, newest first, however many pages there are", async () => {
  const all = await exported({ webhookId: busy });
  expect(all.flatMap((response) => response.deliveries.map(({ id }) => id))).toEqual(ids);
  expect(all.at(-1)).toMatchObject({ exported: BigInt(MANY), examined: BigInt(MANY) });
  expect(all.length).toBeGreaterThan(2);
  const failed = await exported({ webhookId: busy, states: [DeliveryState.FAILED], format: CSV });
  expect(textOf(failed).trimEnd().split("\r\n")).toHaveLength(1 + MANY / 3);
  const from = { seconds: BigInt(NEWEST / 1_000 - 100) };
  const recent = await exported({ webhookId: busy, from, format: JSON_LINES });
  expect(objectsOf(recent).map(({ id }) => id)).toEqual(ids.slice(0, 101));
});

test("CSV quotes what needs it, and no value becomes a formula", async () => {
  const id = await publish('=HYPERLINK("https://evil.example"),\nsecond line');
  const [first, ...more] = await exported({ search: id, format: CSV, withPayload: true });
  expect(more).toEqual([]);
  const text = first?.lines ?? "";
  // By which Excel recognizes UTF-8.
  expect(text).toMatch(/^\ufeff/);
  const plain = await exported({ search: id, format: CSV, withPayload: true, withoutByteOrderMark: true });
  expect(plain.map(({ lines }) => lines)).toEqual([text.slice(1)]);
  expect(text.slice(1).split("\r\n")[0]).toBe(
    "delivery_id,event_id,event_type,subject,webhook_id,url,state,attempts,created,finished,next_attempt,status,error,reason,duration_ms,payload",
  );
  expect(text).toContain(`${id},`);
  expect(text).toContain(`,"'=HYPERLINK(""https://evil.example""),\nsecond line",`);
  expect(text).toMatch(/,pending,0,\d{4}-\d\d-\d\dT[\d:.]+Z,,,,,,,"\{""OrderId"":1,/);
});

test.each([
  ...["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "\nplain", "＝1+1", "＋1", "－1", "＠SUM(1)"],
  ...[" =1+1", "   @SUM(1)", "\u00a0=1", "\u3000＝1", "\ufeff=1", " \n-1"],
])("a CSV cell that a spreadsheet could take for a formula begins with an apostrophe: %j", async (number) => {
  const id = await publish(number);
  const text = textOf(await exported({ search: id, format: CSV }));
  const cell = /[\r\n]/.test(number) ? `"'${number}"` : `'${number}`;
  expect(text).toContain(`,OrderDispatched,${cell},`);
});

test.each(["SO-1", "a=1", " a@b", "7", "１＋１"])(
  "a CSV cell that is no formula stays as it is: %j",
  async (number) => {
    const id = await publish(number);
    expect(textOf(await exported({ search: id, format: CSV }))).toContain(`,OrderDispatched,${number},`);
  },
);

test("deliveries that share a large payload are exported in messages of less than 1.5 MiB, each once", async () => {
  const webhooks = 12;
  for (let n = 0; n < webhooks; n += 1) await api.register({ process: 2 });
  const number = "x".repeat(LARGE_CHARACTERS);
  const value = { documentId: 1n, kind: 1 as const, number, createdAt: { seconds: 1n } };
  const data = { case: "documentCreated" as const, value };
  const { eventId } = await api.events.publishEvent({ idempotencyKey: randomUUID(), userId: "u", data });
  const responses = await exported({ eventId, format: JSON_LINES, withPayload: true });
  expect(responses.length).toBeGreaterThan(1);
  for (const { lines } of responses) expect(lines.length).toBeLessThan(1.5 * 1_024 * 1_024);
  const found = objectsOf(responses);
  expect(new Set(found.map(({ id }) => id)).size).toBe(webhooks);
  expect(found).toHaveLength(webhooks);
  expect(responses.at(-1)?.exported).toBe(BigInt(webhooks));
  for (const { payload } of found) expect(payload.Number).toHaveLength(LARGE_CHARACTERS);
});

test("JSON lines have the payload as receivers get it, in one line, and the result of the delivery", async () => {
  const payload = '{\r\n  "OrderNumber": "SO-1\\n",\n  "OrderId": 9007199254740993\n}';
  const { deliveryId } = await api.webhooks.sendTestEvent({ webhookId, payload });
  await changeDelivery(db, deliveryId, { state: "failed", reason: "expired" });
  const responses = await exported({ search: deliveryId, format: JSON_LINES, withPayload: true });
  const lines = textOf(responses).trimEnd().split(/\r|\n/);
  expect(lines).toHaveLength(1);
  const ended = { id: deliveryId, state: "DELIVERY_STATE_FAILED", reason: "expired", subject: "SO-1\n" };
  expect(objectsOf(responses)).toMatchObject([{ ...ended, payload: { OrderNumber: "SO-1\n" } }]);
  expect(lines[0]).toContain("9007199254740993");
});

test("text is found inside payloads within a time range, and the export says how much it has examined", async () => {
  const other = await publish("SO-77000", "UPS");
  const wanted = await publish("SO-77001", "Überland-Kurier");
  const find = async (payloadText: string) => {
    const responses = await exported({ webhookId, payloadText, from: AN_HOUR_AGO });
    const found = responses.flatMap((response) => response.deliveries.map(({ id }) => id));
    return { ids: found.sort(), last: responses.at(-1) };
  };
  const { ids: found, last } = await find("berland-Kur");
  expect(found).toEqual([wanted]);
  expect(last?.exported).toBe(1n);
  expect(last?.examined).toBeGreaterThan(1n);
  expect((await find("SO-7700")).ids).toEqual([other, wanted].sort());
  // The case counts, and % and _ are no wildcards.
  for (const text of ["ÜBERLAND", "SO-7%", "SO_77001"]) expect((await find(text)).ids, text).toEqual([]);
});

test("an erased payload is null, and is not found", async () => {
  const id = await publish("ERASED-1");
  const { event_id } = await db("queue").where({ id }).first();
  await db("events").where({ id: event_id }).update({ payload: null });
  const responses = await exported({ search: id, format: JSON_LINES, withPayload: true });
  expect(objectsOf(responses)).toMatchObject([{ id, payload: null }]);
  expect(await exported({ search: id, payloadText: "ERASED-1", from: AN_HOUR_AGO })).toMatchObject([
    { exported: 0n, examined: 1n },
  ]);
  // An export without deliveries is an empty file: a header line in CSV.
  const nothing = { search: randomUUID() };
  expect(textOf(await exported({ ...nothing, format: CSV }))).toMatch(/^\ufeffdelivery_id,.*\r\n$/);
  expect(textOf(await exported({ ...nothing, format: JSON_LINES }))).toBe("");
});

test.each([
  [{ payloadText: "ab", from: AN_HOUR_AGO }, /payload_text.*from 3 to 300/],
  [{ payloadText: "abc" }, /from is required with payload_text/],
  [{ format: 9 as ExportFormat }, /format.*EXPORT_FORMAT_CSV/],
  [{ withPayload: true }, /with_payload.*GetEvent/],
])("a request that means nothing is refused with its field and what to do: %o", async (request, text) => {
  await expectRefused(exported(request), Code.InvalidArgument, text);
});

test("a caller who leaves ends the export", async () => {
  const gone = new AbortController();
  const leaving = (async () => {
    for await (const _ of deliveries.exportDeliveries({ webhookId: busy }, { signal: gone.signal }))
      gone.abort();
  })();
  await expectRefused(leaving, Code.Canceled);
});
