import { randomUUID } from "node:crypto";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { BadRequestSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import {
  DeliveryService,
  DeliveryState,
  type ExportDeliveriesResponse,
  ExportFormat,
} from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { changeDelivery, idAt, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

/** More than two pages of an export. */
const MANY = 1_200;
/** A few such payloads are more than an export holds at once. */
const LARGE_CHARACTERS = 200_000;
const NOW = Date.now();
const AN_HOUR_AGO = { seconds: BigInt(Math.floor(NOW / 1_000) - 3_600) };

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
let webhookId: bigint;
/** A webhook with MANY ended deliveries, newest first. */
let busy: bigint;
let ids: string[];

beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
  webhookId = await api.register();
  busy = await api.register();
  ids = Array.from({ length: MANY }, (_, n) => idAt(new Date(NOW - 1_000 * n), n));
  await storeDeliveries(
    api.context.db,
    ids.map((id, n) => ({
      id,
      webhookId: busy,
      state: n % 3 === 0 ? ("failed" as const) : ("delivered" as const),
      finished: new Date(NOW),
    })),
  );
});
afterAll(() => api.stop());

/** Publishes an order. Returns the id of its delivery. */
async function publish(orderNumber: string, carrier = "DHL"): Promise<string> {
  const { eventId } = await createClient(EventService, grpc(api)).publishEvent({
    idempotencyKey: randomUUID(),
    userId: "tenant-1",
    data: {
      case: "orderDispatched",
      value: { orderId: 1n, orderNumber, carrier, dispatchedAt: { seconds: 1n } },
    },
  });
  const [found] = await rows<{ id: string }>(
    api.context.db,
    "select id from queue where event_id = :eventId::uuid and webhook_id = :webhookId::bigint",
    { eventId, webhookId },
  );
  return found?.id ?? "";
}

async function exported(
  request: Parameters<typeof deliveries.exportDeliveries>[0],
): Promise<ExportDeliveriesResponse[]> {
  const responses: ExportDeliveriesResponse[] = [];
  for await (const response of deliveries.exportDeliveries(request)) responses.push(response);
  return responses;
}

const textOf = (responses: readonly ExportDeliveriesResponse[]) =>
  responses.map(({ lines }) => lines).join("");

test("every delivery that matches is exported once, newest first, however many pages there are", async () => {
  const all = await exported({ webhookId: busy });
  expect(all.flatMap((response) => response.deliveries.map(({ id }) => id))).toEqual(ids);
  expect(all.at(-1)).toMatchObject({ exported: BigInt(MANY), examined: BigInt(MANY) });
  expect(all.length).toBeGreaterThan(2);
  const failed = await exported({
    webhookId: busy,
    states: [DeliveryState.FAILED],
    format: ExportFormat.CSV,
  });
  expect(textOf(failed).trimEnd().split("\r\n")).toHaveLength(1 + MANY / 3);
  const recent = await exported({
    webhookId: busy,
    from: { seconds: BigInt(Math.floor((NOW - 100_500) / 1_000)) },
    format: ExportFormat.JSON_LINES,
  });
  const lines = textOf(recent).trimEnd().split("\n");
  expect(lines.map((line) => (JSON.parse(line) as { id: string }).id)).toEqual(ids.slice(0, lines.length));
  expect(Math.abs(lines.length - 101)).toBeLessThanOrEqual(1);
});

test("CSV quotes what needs it, and no value becomes a formula", async () => {
  const id = await publish('=HYPERLINK("https://evil.example"),\nsecond line');
  const [first, ...more] = await exported({ search: id, format: ExportFormat.CSV, withPayload: true });
  expect(more).toEqual([]);
  const text = first?.lines ?? "";
  expect(text.split("\r\n")[0]).toBe(
    "delivery_id,event_id,event_type,subject,webhook_id,url,state,attempts,created,finished,next_attempt,status,error,reason,duration_ms,payload",
  );
  expect(text).toContain(`${id},`);
  expect(text).toContain(`,"'=HYPERLINK(""https://evil.example""),\nsecond line",`);
  expect(text).toMatch(/,pending,0,\d{4}-\d\d-\d\dT[\d:.]+Z,,,,,,,"\{""OrderId"":1,/);
});

test("JSON lines have the payload as receivers get it, and large ones one after the other", async () => {
  const large: string[] = [];
  for (let n = 0; n < 8; n += 1) large.push(await publish(`LARGE-${n}`, "x".repeat(LARGE_CHARACTERS)));
  const responses = await exported({
    webhookId,
    payloadText: '"OrderNumber":"LARGE-',
    from: AN_HOUR_AGO,
    format: ExportFormat.JSON_LINES,
    withPayload: true,
  });
  // No response holds more than a few of them.
  expect(responses.length).toBeGreaterThan(1);
  const lines = textOf(responses).trimEnd().split("\n");
  const found = lines.map((line) => JSON.parse(line) as { id: string; payload: { Carrier: string } });
  expect(found.map(({ id }) => id)).toEqual(large.sort().reverse());
  for (const { payload } of found) expect(payload.Carrier).toHaveLength(LARGE_CHARACTERS);
});

test("deliveries that share a large payload are exported in messages of less than 1.5 MiB, each once", async () => {
  const webhooks = 30;
  for (let n = 0; n < webhooks; n += 1)
    await api.rest("POST", "/api/webhook", {
      json: { process: 2, url: `https://receiver.example/shared/${n}` },
    });
  const { eventId } = await createClient(EventService, grpc(api)).publishEvent({
    idempotencyKey: randomUUID(),
    userId: "tenant-1",
    data: {
      case: "documentCreated",
      value: { documentId: 1n, kind: 1, number: "x".repeat(LARGE_CHARACTERS), createdAt: { seconds: 1n } },
    },
  });
  const responses = await exported({ eventId, format: ExportFormat.JSON_LINES, withPayload: true });
  for (const { lines } of responses) expect(lines.length).toBeLessThan(1.5 * 1_024 * 1_024);
  const lines = textOf(responses).trimEnd().split("\n");
  const found = lines.map((line) => JSON.parse(line) as { id: string; payload: { Number: string } });
  expect(new Set(found.map(({ id }) => id)).size).toBe(webhooks);
  expect(found).toHaveLength(webhooks);
  expect(responses.at(-1)?.exported).toBe(BigInt(webhooks));
  for (const { payload } of found) expect(payload.Number).toHaveLength(LARGE_CHARACTERS);
});

test("a delivery is one JSON line if the payload of its test event has line breaks", async () => {
  const payload = '{\r\n  "OrderNumber": "SO-1\\n",\n  "OrderId": 9007199254740993\n}';
  const { deliveryId } = await createClient(WebhookService, grpc(api)).sendTestEvent({ webhookId, payload });
  const responses = await exported({
    search: deliveryId,
    format: ExportFormat.JSON_LINES,
    withPayload: true,
  });
  const lines = textOf(responses).trimEnd().split(/\r|\n/);
  expect(lines).toHaveLength(1);
  expect(JSON.parse(lines[0] ?? "")).toMatchObject({ id: deliveryId, payload: { OrderNumber: "SO-1\n" } });
  expect(lines[0]).toContain("9007199254740993");
});

test("text is found inside payloads within a time range, and the export says how much it has examined", async () => {
  const other = await publish("SO-77000", "UPS");
  const wanted = await publish("SO-77001", "Überland-Kurier");
  const find = async (payloadText: string) => {
    const responses = await exported({ webhookId, payloadText, from: AN_HOUR_AGO });
    return {
      ids: responses.flatMap((response) => response.deliveries.map(({ id }) => id)).sort(),
      last: responses.at(-1),
    };
  };
  const { ids, last } = await find("berland-Kur");
  expect(ids).toEqual([wanted]);
  expect(last?.exported).toBe(1n);
  expect(last?.examined).toBeGreaterThan(1n);
  expect((await find("SO-7700")).ids).toEqual([other, wanted].sort());
  // The case counts, and % and _ are no wildcards.
  for (const text of ["ÜBERLAND", "SO-7%", "SO_77001"]) expect((await find(text)).ids, text).toEqual([]);
});

test("an erased payload is null, and is not found", async () => {
  const id = await publish("ERASED-1");
  await api.context.db.raw(
    "update events set payload = null where id = (select event_id from queue where id = ?)",
    [id],
  );
  const [response] = await exported({ search: id, format: ExportFormat.JSON_LINES, withPayload: true });
  expect(JSON.parse(response?.lines ?? "")).toMatchObject({ id, payload: null });
  expect(await exported({ search: id, payloadText: "ERASED-1", from: AN_HOUR_AGO })).toMatchObject([
    { exported: 0n, examined: 1n },
  ]);
});

test("an export without deliveries is an empty file: a header line in CSV", async () => {
  const nothing = { search: randomUUID() };
  expect(textOf(await exported({ ...nothing, format: ExportFormat.CSV }))).toMatch(/^delivery_id,.*\r\n$/);
  expect(textOf(await exported({ ...nothing, format: ExportFormat.JSON_LINES }))).toBe("");
});

test("what became of a delivery is in its line", async () => {
  const id = await publish("SO-78000");
  await changeDelivery(api.context.db, id, { state: "failed", reason: "expired" });
  const [response] = await exported({ search: id, format: ExportFormat.JSON_LINES });
  expect(JSON.parse(response?.lines ?? "")).toMatchObject({
    id,
    state: "DELIVERY_STATE_FAILED",
    reason: "expired",
    subject: "SO-78000",
  });
});

test.each([
  [{ payloadText: "ab", from: AN_HOUR_AGO }, "payload_text", "from 3 to 300"],
  [{ payloadText: "a".repeat(301), from: AN_HOUR_AGO }, "payload_text", "at most 300"],
  [{ payloadText: "abc" }, "from", "is required with payload_text"],
  [{ format: 9 }, "format", "EXPORT_FORMAT_CSV"],
  [{ withPayload: true }, "with_payload", "GetEvent"],
  [{ eventId: "no" }, "event_id", "a UUID"],
] as const)("a request that means nothing is refused with its field: %o", async (request, field, text) => {
  const refused = await failure(exported(request as never));
  expect(refused?.rawMessage).toContain(field);
  expect(refused?.rawMessage).toContain(text);
});

test.each(["from", "to"] as const)(
  "an export whose %s is no time of a calendar is refused",
  async (field) => {
    const refused = await failure(exported({ webhookId: busy, [field]: { seconds: 10_000_000_000_000n } }));
    expect(refused?.code).toBe(Code.InvalidArgument);
    const [violation] = refused?.findDetails(BadRequestSchema)[0]?.fieldViolations ?? [];
    expect(violation).toMatchObject({ field, description: "must lie in the years 0001 to 9999" });
  },
);

test("an export takes the permission to read", async () => {
  const { secret } = await api.key({ permissions: [...ONLY.write, ...ONLY.publish, ...ONLY.manage] });
  const refused = await failure(
    (async () => {
      for await (const _ of createClient(DeliveryService, grpc(api, secret)).exportDeliveries({}));
    })(),
  );
  expect(refused?.rawMessage).toContain("Read_Administrative_Data");
});

test("a caller who leaves ends the export", async () => {
  const gone = new AbortController();
  const leaving = failure(
    (async () => {
      for await (const _ of deliveries.exportDeliveries({ webhookId: busy }, { signal: gone.signal }))
        gone.abort();
    })(),
  );
  expect((await leaving)?.code).toBe(Code.Canceled);
});
