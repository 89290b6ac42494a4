import { randomUUID } from "node:crypto";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { pagesOf } from "../../../support/pages.ts";
import { idAt, idBeside, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const STATES = ["delivered", "failed", "cancelled", "pending", "retrying", "delivering"] as const;
const HOUR = 3_600_000;

interface Filter {
  webhookId?: bigint;
  process?: WebhookProcess;
  states?: DeliveryState[];
  from?: Timestamp;
  to?: Timestamp;
}

const api = await useApi();
const deliveries = api.client(DeliveryService);
const webhooks: { id: bigint; process: WebhookProcess }[] = [];
for (const process of [1, 1, 2, 2] as WebhookProcess[])
  webhooks.push({ id: await api.register({ process }), process });
/** Oldest first: 120 deliveries, an hour apart, of four webhooks of two event types, in every state. */
const start = Date.now() - 200 * HOUR;
const made = Array.from({ length: 120 }, (_, n) => {
  const { id: webhookId, process } = webhooks[(n * 7) % 4] as (typeof webhooks)[number];
  const created = new Date(start + n * HOUR);
  const state = STATES[(n * 5 + Math.floor(n / 6)) % STATES.length] as (typeof STATES)[number];
  return { id: idAt(created, n), webhookId, process, state, created };
});
await storeDeliveries(api.context.db, made);
const [oldest] = made as [(typeof made)[number]];

const stateOf = (name: string) => DeliveryState[name.toUpperCase() as keyof typeof DeliveryState];
const idsOf = (page: { deliveries: Delivery[] }) => page.deliveries.map(({ id }) => id);

/** What the filter finds, by pages; also back from the last page to the first. */
async function found(filter: Filter): Promise<string[]> {
  const read = (pageToken: string) => deliveries.listDeliveries({ ...filter, pageSize: 17, pageToken });
  const pages = await pagesOf(read);
  for (const { id, state, webhookId } of pages.flatMap((page) => page.deliveries)) {
    const one = made.find((each) => each.id === id);
    expect([state, webhookId]).toEqual([stateOf(one?.state ?? ""), one?.webhookId]);
  }
  const last = pages.at(-1)?.previousPageToken ?? "";
  const back = last === "" ? [] : await pagesOf(read, last, "previousPageToken");
  expect(back.reverse().flatMap(idsOf)).toEqual(pages.slice(0, -1).flatMap(idsOf));
  return pages.flatMap(idsOf);
}

const matching = ({ webhookId, process, states = [], from, to }: Filter) =>
  made
    .filter(
      (delivery) =>
        (webhookId === undefined || delivery.webhookId === webhookId) &&
        (process === undefined || delivery.process === process) &&
        (states.length === 0 || states.includes(stateOf(delivery.state))) &&
        (!from || delivery.created.getTime() >= Number(from.seconds) * 1_000 + from.nanos / 1e6) &&
        (!to || delivery.created.getTime() < Number(to.seconds) * 1_000 + to.nanos / 1e6),
    )
    .map(({ id }) => id)
    .reverse();

test.each<[string, DeliveryState[]]>([
  ["in any state", []],
  ["that failed", [DeliveryState.FAILED]],
  ["that are pending", [DeliveryState.PENDING]],
  ["in any of three states", [DeliveryState.FAILED, DeliveryState.CANCELLED, DeliveryState.DELIVERED]],
])(
  "a list of deliveries %s, with event type, webhook and time, has what its filter lets through and no more",
  async (_, states) => {
    const { webhookId, process } = oldest;
    // From the moment of one delivery, which is in, to that of another, which is not.
    const times = {
      from: timestampFromDate(made[20]?.created as Date),
      to: timestampFromDate(made[90]?.created as Date),
    };
    for (const filter of [
      {},
      { process: 1 as const },
      { process: 2 as const, ...times },
      { webhookId },
      { webhookId, ...times },
      { webhookId, process },
      times,
    ]) {
      const expected = matching({ ...filter, states });
      expect(expected.length).toBeGreaterThan(0);
      expect(await found({ ...filter, states })).toEqual(expected);
    }
  },
);

test("a page is gone back to from the next one, and from the first one lead what came since", async () => {
  const eventId = idBeside(idAt(new Date()));
  const add = async (n: number) => {
    const id = `${eventId.slice(0, 18)}-8000-${n.toString().padStart(12, "0")}`;
    await storeDeliveries(api.context.db, [{ id, webhookId: oldest.webhookId, eventId }]);
    return id;
  };
  const read = (pageToken: string) => deliveries.listDeliveries({ eventId, pageSize: 2, pageToken });
  expect(await read("")).toMatchObject({ deliveries: [], nextPageToken: "", previousPageToken: "" });
  const [first, second, third] = [await add(1), await add(2), await add(3)];

  const newest = await read("");
  expect(idsOf(newest)).toEqual([third, second]);
  const older = await read(newest.nextPageToken);
  expect(older).toMatchObject({ deliveries: [{ id: first }], nextPageToken: "" });
  const back = await read(older.previousPageToken);
  expect([idsOf(back), back.previousPageToken]).toEqual([[third, second], ""]);
  expect(idsOf(await read(back.nextPageToken))).toEqual([first]);

  const nothing = await read(newest.previousPageToken);
  expect(nothing).toMatchObject({ deliveries: [], previousPageToken: "" });
  expect(idsOf(await read(nothing.nextPageToken))).toEqual([third, second]);
  const fourth = await add(4);
  const since = await read(newest.previousPageToken);
  expect(idsOf(since)).toEqual([fourth]);
  expect(idsOf(await read(since.nextPageToken))).toEqual([third, second]);
});

test("filters that exclude each other find nothing", async () => {
  const { webhookId, process } = oldest;
  const early = timestampFromDate(new Date("2020-01-01T00:00:00Z"));
  const filters: Filter[] = [{ webhookId, process: process === 1 ? 2 : 1 }, { process: 3 }, { to: early }];
  for (const filter of filters) expect(await found(filter)).toEqual([]);
});

test("a delivery is found by its id, unless the rest of the filter is against it", async () => {
  const { id: deliveryId, state } = made[3] as (typeof made)[number];
  const page = await deliveries.listDeliveries({ deliveryId });
  expect([idsOf(page), page.nextPageToken]).toEqual([[deliveryId], ""]);
  const states = STATES.filter((each) => each !== state).map(stateOf);
  expect((await deliveries.listDeliveries({ deliveryId, states })).deliveries).toEqual([]);
  expect((await deliveries.listDeliveries({ deliveryId: randomUUID() })).deliveries).toEqual([]);
});
