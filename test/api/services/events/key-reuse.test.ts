import { randomUUID } from "node:crypto";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { PublishEventRequestSchema, type PublishResult } from "../../../../gen/webhook/v1/event_pb.ts";
import { failure } from "../../../support/failure.ts";
import { grpcTrailers } from "../../../support/grpc-calls.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const { events } = api;

type Request = MessageInitShape<typeof PublishEventRequestSchema>;
const LINES = [
  { productId: 7n, sku: "LAMP-01", quantity: 2 },
  { productId: 9_007_199_254_740_993n, sku: "LAMP-02", quantity: 1 },
];
const order = {
  orderId: 1001n,
  orderNumber: "SO-1001",
  dispatchedAt: { seconds: 1_790_000_000n },
  lines: LINES,
};
const request = (more: object = {}, data: object = {}): Request => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  time: { seconds: 1_790_000_000n, nanos: 500_000 },
  data: { case: "orderDispatched", value: { ...order, ...data } },
  ...more,
});
const secondLine = (more: object) => ({ lines: [LINES[0], { ...LINES[1], ...more }] });

async function* stream(event: Request) {
  yield { events: [event] };
}
/** How the only event of several is refused. */
async function refusedOf(call: Promise<{ results: PublishResult[] }>) {
  const { results } = await call;
  return results[0]?.result.case === "error" ? results[0].result.value : undefined;
}

/** Each way to publish one event, and what it is refused with. */
const ways: [string, (event: Request) => Promise<{ code: number; message: string } | undefined>][] = [
  [
    "PublishEvent",
    async (event) => {
      const error = await failure(events.publishEvent(event));
      return error && { code: error.code, message: error.rawMessage };
    },
  ],
  ["PublishEventBatch", (event) => refusedOf(events.publishEventBatch({ events: [event] }))],
  ["PublishEvents", (event) => refusedOf(events.publishEvents(stream(event)))],
];

test.each(ways)(
  "a reused idempotency key is refused by %s with the first event and the fields that differ",
  async (_way, publish) => {
    const first = request();
    const { eventId } = await events.publishEvent(first);
    const again = { idempotencyKey: first.idempotencyKey };
    const cases: [Request, string][] = [
      [request({ ...again, userId: "tenant-2" }), "user_id"],
      [request({ ...again, time: { seconds: 1_790_000_000n, nanos: 501_000 } }), "time"],
      [request(again, { orderNumber: "SO-1002" }), "order_dispatched.order_number"],
      [request(again, { carrier: "Post" }), "order_dispatched.carrier"],
      [request(again, { lines: [LINES[0]] }), "order_dispatched.lines"],
      [
        request(again, secondLine({ productId: 9_007_199_254_740_992n })),
        "order_dispatched.lines[1].product_id",
      ],
      [
        request(
          { ...again, userId: "tenant-2" },
          { ...secondLine({ quantity: 5, sku: "X" }), carrier: "Post" },
        ),
        "user_id, order_dispatched.carrier, order_dispatched.lines[1].sku and 1 more",
      ],
      [
        request({
          ...again,
          data: {
            case: "stockLevelChanged",
            value: { productId: 1n, sku: "A", location: "Oslo", changedAt: { seconds: 1n } },
          },
        }),
        "data",
      ],
      [
        request(again, { dispatchedAt: { seconds: 1_790_000_000n, nanos: 5 } }),
        "time, or in fractions of a second",
      ],
    ];
    for (const [event, fields] of cases) {
      expect(await publish(event)).toMatchObject({
        code: Code.AlreadyExists,
        message: `idempotency_key was already used for a different event, ${eventId}: they differ in ${fields}; use a new key for a new event`,
      });
    }
  },
);

test("over gRPC the trailers stay below 8 KiB if thousands of fields differ, and programs read the first 20", async () => {
  const lines = (sku: string) =>
    Array.from({ length: 2_500 }, (_, n) => ({ productId: 7n, sku: `${sku}-${n}`, quantity: 1 }));
  const first = request({}, { lines: lines("A") });
  const { eventId } = await events.publishEvent(first);
  const other = request({ idempotencyKey: first.idempotencyKey }, { lines: lines("B") });
  const message = toBinary(PublishEventRequestSchema, create(PublishEventRequestSchema, other));
  const { trailers, bytes } = await grpcTrailers(api, "/webhook.v1.EventService/PublishEvent", message);
  expect(trailers["grpc-status"]).toBe(String(Code.AlreadyExists));
  expect(bytes).toBeLessThan(8_192);
  const error = await failure(events.publishEvent(other));
  expect(error?.rawMessage).toContain("lines[2].sku and 2497 more");
  const fields = Array.from({ length: 20 }, (_, n) => `order_dispatched.lines[${n}].sku`);
  expect(error?.findDetails(ErrorInfoSchema)).toMatchObject([
    {
      reason: "IDEMPOTENCY_KEY_REUSED",
      metadata: { event_id: eventId, fields: [...fields, "…"].join(",") },
    },
  ]);
});

test("of an event whose payload is erased only the other fields are compared", async () => {
  const userId = `erased-${randomUUID()}`;
  const first = request({ userId });
  const { eventId } = await events.publishEvent(first);
  expect((await events.erasePayloads({ userId })).erased).toBe(1);
  const again = { idempotencyKey: first.idempotencyKey };
  const start = `idempotency_key was already used for a different event, ${eventId}`;
  const end = "; its payload is erased and was not compared; use a new key for a new event";
  const data = await failure(events.publishEvent(request({ ...again, userId }, { orderNumber: "SO-2" })));
  expect(data?.rawMessage).toBe(start + end);
  const user = await failure(events.publishEvent(request(again)));
  expect(user?.rawMessage).toBe(`${start}: they differ in user_id${end}`);
});

test("of an event that is no longer stored the id is named", async () => {
  const first = request();
  const { eventId } = await events.publishEvent(first);
  await api.context.db("events").where("id", eventId).delete();
  const error = await failure(
    events.publishEvent(request({ idempotencyKey: first.idempotencyKey }, { orderNumber: "SO-2" })),
  );
  expect(error?.rawMessage).toBe(
    `idempotency_key was already used for a different event, ${eventId}, which is no longer stored; use a new key for a new event`,
  );
});
