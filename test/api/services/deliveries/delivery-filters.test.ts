import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { type Delivery, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { idAt, idBeside, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const STATES = ["delivered", "failed", "cancelled", "pending", "retrying", "delivering"] as const;
const HOUR = 3_600_000;

const api = await useApi();
const { deliveries } = api;
const webhookId = await api.register();
const other = await api.register({ process: 2 });
/** Oldest first, an hour apart: a delivery in each state of both webhooks. */
const start = Date.now() - 200 * HOUR;
const made = STATES.flatMap((state) => [
  { state, webhookId },
  { state, webhookId: other },
]).map((delivery, n) => {
  const created = new Date(start + n * HOUR);
  return { ...delivery, id: idAt(created, n), created };
});
await storeDeliveries(api.context.db, made);

const stateOf = (name: (typeof STATES)[number]) =>
  DeliveryState[name.toUpperCase() as Uppercase<(typeof STATES)[number]>];
const idsOf = (page: { deliveries: Delivery[] }) => page.deliveries.map(({ id }) => id);
const found = async (filter: Parameters<typeof deliveries.listDeliveries>[0]) =>
  idsOf(await deliveries.listDeliveries(filter));

test.each(STATES)(
  "deliveries that are %s are found by state, event type, webhook and time",
  async (state) => {
    const [first, second] = made.filter((each) => each.state === state) as [
      (typeof made)[number],
      (typeof made)[number],
    ];
    const states = [stateOf(state)];
    expect(await found({ states })).toEqual([second.id, first.id]);
    expect(await found({ states: STATES.filter((each) => each !== state).map(stateOf) })).toHaveLength(10);
    for (const filter of [
      { webhookId: other },
      { process: 2 as const },
      { webhookId: other, process: 2 as const },
    ])
      expect(await found({ ...filter, states })).toEqual([second.id]);
    // From the moment of one delivery, which is in, to that of another, which is not.
    const [from, to] = [timestampFromDate(first.created), timestampFromDate(second.created)];
    expect(await found({ from, to })).toEqual([first.id]);
    for (const filter of [
      { webhookId, process: 2 as const },
      { process: 3 as const },
      { webhookId: other, to },
    ])
      expect(await found({ ...filter, states })).toEqual([]);
    expect(await found({ deliveryId: first.id })).toEqual([first.id]);
    expect(await found({ deliveryId: first.id, webhookId: other })).toEqual([]);
  },
);

test("a page is gone back to from the next one, and from the first one lead what came since", async () => {
  const eventId = idBeside(idAt(new Date()));
  const add = async (n: number) => {
    const id = `${eventId.slice(0, 18)}-8000-${n.toString().padStart(12, "0")}`;
    await storeDeliveries(api.context.db, [{ id, webhookId, eventId }]);
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
