import { randomUUID } from "node:crypto";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { grpc } from "../support/clients.ts";
import { failure } from "../support/failure.ts";
import { startTestApi, type TestApi } from "../support/test-api.ts";

const STATES = ["delivered", "failed", "cancelled", "pending", "retrying", "delivering"] as const;
const HOUR = 3_600_000;

interface Made {
  id: string;
  webhookId: number;
  process: WebhookProcess;
  eventId: string;
  state: (typeof STATES)[number];
  created: Date;
}

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
/** Oldest first: 120 deliveries, an hour apart, of four webhooks of two event types, in every state. */
const made: Made[] = [];

/** A UUIDv7 of a moment. */
function idAt(moment: Date, n: number): string {
  const ms = moment.getTime().toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-7000-8000-${n.toString(16).padStart(12, "0")}`;
}

beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
  const webhooks: { id: number; process: WebhookProcess }[] = [];
  for (const process of [1, 1, 2, 2] as WebhookProcess[]) {
    const url = `https://receiver.example/${webhooks.length}`;
    const answer = await api.rest("POST", "/api/webhook", { json: { process, url } });
    webhooks.push({ id: answer.envelope.Data.Id, process });
  }
  const start = Date.now() - 200 * HOUR;
  for (let n = 0; n < 120; n += 1) {
    const webhook = webhooks[(n * 7) % 4] as (typeof webhooks)[number];
    const created = new Date(start + n * HOUR);
    const state = STATES[(n * 5 + Math.floor(n / 6)) % STATES.length] as Made["state"];
    made.push({
      id: idAt(created, n),
      webhookId: webhook.id,
      process: webhook.process,
      eventId: randomUUID(),
      state,
      created,
    });
  }
  await api.context.db("deliveries").insert(
    made.map(({ id, webhookId, eventId, state, created }) => ({
      id,
      webhook_id: webhookId,
      event_id: eventId,
      state,
      created,
    })),
  );
});
afterAll(() => api.stop());

interface Filter {
  webhookId?: bigint;
  process?: WebhookProcess;
  states?: DeliveryState[];
  from?: Timestamp;
  to?: Timestamp;
}

/** What the filter finds, gathered by pages of seven; also back from the last page to the first. */
async function pages(filter: Filter): Promise<string[]> {
  const read = (pageToken: string) => deliveries.listDeliveries({ ...filter, pageSize: 7, pageToken });
  const ids = (page: { deliveries: { id: string }[] }) => page.deliveries.map(({ id }) => id);
  let page = await read("");
  const found = ids(page);
  while (page.nextPageToken !== "") {
    page = await read(page.nextPageToken);
    found.push(...ids(page));
  }
  const back = ids(page);
  while (page.previousPageToken !== "") {
    page = await read(page.previousPageToken);
    back.unshift(...ids(page));
  }
  expect(back).toEqual(found);
  return found;
}

const nameOf = (state: DeliveryState) =>
  Object.entries(DeliveryState)
    .find(([, number]) => number === state)?.[0]
    .toLowerCase();

const matching = ({ webhookId, process, states = [], from, to }: Filter) =>
  made
    .filter(
      (delivery) =>
        (webhookId === undefined || BigInt(delivery.webhookId) === webhookId) &&
        (process === undefined || delivery.process === process) &&
        (states.length === 0 || states.some((state) => nameOf(state) === delivery.state)) &&
        (!from || delivery.created.getTime() >= Number(from.seconds) * 1_000 + from.nanos / 1e6) &&
        (!to || delivery.created.getTime() < Number(to.seconds) * 1_000 + to.nanos / 1e6),
    )
    .map(({ id }) => id)
    .reverse();

describe("a list of deliveries, page by page and newest first, has what its filter lets through and no more", () => {
  const states: [string, DeliveryState[]][] = [
    ["any state", []],
    ["failed", [DeliveryState.FAILED]],
    ["pending", [DeliveryState.PENDING]],
    ["any of three", [DeliveryState.FAILED, DeliveryState.CANCELLED, DeliveryState.DELIVERED]],
  ];
  test.each(states)("by %s, with event type, webhook and time", async (_name, wanted) => {
    const state = { states: wanted };
    const webhookId = BigInt(made[0]?.webhookId as number);
    // From the moment of one delivery, which is in, to that of another, which is not.
    const times = {
      from: timestampFromDate(made[20]?.created as Date),
      to: timestampFromDate(made[90]?.created as Date),
    };
    const filters: Filter[] = [
      state,
      { ...state, process: 1 },
      { ...state, process: 2, ...times },
      { ...state, webhookId },
      { ...state, webhookId, ...times },
      { ...state, webhookId, process: made[0]?.process as WebhookProcess },
      { ...state, ...times },
    ];
    for (const filter of filters) {
      const expected = matching(filter);
      expect(expected.length).toBeGreaterThan(0);
      expect(await pages(filter)).toEqual(expected);
    }
  });
});

test("a page is gone back to from the next one, and from the first one lead what came since", async () => {
  const eventId = randomUUID();
  const webhookId = BigInt(made[0]?.webhookId as number);
  const add = async (n: number) => {
    const id = idAt(new Date(Date.now() + n), n);
    await api.context.db("deliveries").insert({ id, webhook_id: webhookId.toString(), event_id: eventId });
    return id;
  };
  const read = (pageToken: string) => deliveries.listDeliveries({ eventId, pageSize: 2, pageToken });
  expect(await read("")).toMatchObject({ deliveries: [], nextPageToken: "", previousPageToken: "" });
  const [first, second, third] = [await add(1), await add(2), await add(3)];

  const newest = await read("");
  expect(newest.deliveries.map(({ id }) => id)).toEqual([third, second]);
  const older = await read(newest.nextPageToken);
  expect(older).toMatchObject({ deliveries: [{ id: first }], nextPageToken: "" });
  const back = await read(older.previousPageToken);
  expect(back.deliveries.map(({ id }) => id)).toEqual([third, second]);
  expect(back.previousPageToken).toBe("");
  expect((await read(back.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([first]);

  const nothing = await read(newest.previousPageToken);
  expect(nothing).toMatchObject({ deliveries: [], previousPageToken: "" });
  expect((await read(nothing.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([third, second]);
  const fourth = await add(4);
  const since = await read(newest.previousPageToken);
  expect(since.deliveries.map(({ id }) => id)).toEqual([fourth]);
  expect((await read(since.nextPageToken)).deliveries.map(({ id }) => id)).toEqual([third, second]);
});

test("filters that exclude each other find nothing", async () => {
  const [{ webhookId, process }] = made as [Made];
  const other = process === 1 ? 2 : 1;
  expect(await pages({ webhookId: BigInt(webhookId), process: other })).toEqual([]);
  expect(await pages({ process: 3 })).toEqual([]);
  const early = timestampFromDate(new Date("2020-01-01T00:00:00Z"));
  expect(await pages({ to: early })).toEqual([]);
});

test("a delivery is found by its id, unless the rest of the filter is against it", async () => {
  const { id: deliveryId, state } = made[3] as Made;
  const found = await deliveries.listDeliveries({ deliveryId });
  expect(found.deliveries.map(({ id }) => id)).toEqual([deliveryId]);
  expect(found.nextPageToken).toBe("");
  const others = STATES.filter((each) => each !== state).map(
    (each) => DeliveryState[each.toUpperCase() as keyof typeof DeliveryState],
  );
  expect((await deliveries.listDeliveries({ deliveryId, states: others })).deliveries).toEqual([]);
  expect((await deliveries.listDeliveries({ deliveryId: randomUUID() })).deliveries).toEqual([]);
});

test("what cannot be an id, an event type or a time is INVALID_ARGUMENT", async () => {
  const refused = await Promise.all([
    failure(deliveries.listDeliveries({ deliveryId: "x" })),
    failure(deliveries.listDeliveries({ process: 99 as WebhookProcess })),
    failure(deliveries.listDeliveries({ from: { seconds: 1n << 60n, nanos: 0 } })),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
  expect(refused[0]?.rawMessage).toContain("delivery_id");
});
