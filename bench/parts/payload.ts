import { fileURLToPath } from "node:url";
import { create, type MessageInitShape, toBinary, toJsonString } from "@bufbuild/protobuf";
import { anyPack } from "@bufbuild/protobuf/wkt";
import { OrderDispatchedSchema, type PublishEventRequestSchema } from "../../gen/webhook/v1/event_pb.ts";

/** The process of all events of the bench unless it says otherwise: OrderDispatched. */
export const PROCESS = 1;

/** A registered event type with the fields of OrderDispatched, in a stage with the setting `REGISTERED_SETTINGS`. */
export const REGISTERED = { process: 1_000, name: "OrderSent", message: "bench.v1.OrderSent" };

/** The settings of a service that registers this event type. */
export const REGISTERED_SETTINGS = { EVENT_TYPES: fileURLToPath(new URL("event-types", import.meta.url)) };

const LINES = [1, 2, 3, 4].map((n) => ({ productId: 1_000n + BigInt(n), sku: `LAMP-0${n}`, quantity: n }));
const CARRIER = "Parcel Post International";

/** The order number of an order, of at least 14 characters. */
export const orderNumber = (orderId: number) => `SO-2026-${String(orderId).padStart(6, "0")}`;

/** The tracking number of an order, of 21 characters. */
export const trackingNumber = (orderId: number) => `PPI-00-${String(orderId * 7_919).padStart(14, "0")}`;

/** The part of the body after the order's id, as receivers get it. */
export const PAYLOAD_END = `,"OrderNumber":"${orderNumber(1)}","DispatchedAt":"2026-09-21T13:33:20","Carrier":"${CARRIER}","TrackingNumber":"${trackingNumber(1)}","Lines":[${LINES.map(
  ({ productId, sku, quantity }) => `{"ProductId":${productId},"Sku":"${sku}","Quantity":${quantity}}`,
).join(",")}]}`;

/** The part of the body before the order's id. */
export const PAYLOAD_START = '{"OrderId":';

/** A body of about 380 bytes, sent by every scenario. */
export function payload(orderId: number): string {
  return `${PAYLOAD_START}${orderId}${PAYLOAD_END}`;
}

/** The members of a publish request that carry the event; `registered…` those with an event of the registered event type. */
export type Member = "orderDispatched" | "event" | "jsonEvent" | "registeredEvent" | "registeredJsonEvent";

/** The same event as a publish request. */
export function publishRequest(
  orderId: number,
  idempotencyKey: string,
  member: Member = "orderDispatched",
): MessageInitShape<typeof PublishEventRequestSchema> {
  const value = {
    orderId: BigInt(orderId),
    dispatchedAt: { seconds: 1_790_000_000n },
    orderNumber: orderNumber(orderId),
    carrier: CARRIER,
    trackingNumber: trackingNumber(orderId),
    lines: LINES,
  };
  return { idempotencyKey, userId: "tenant-1", data: dataOf(member, value) };
}

function dataOf(
  member: Member,
  value: MessageInitShape<typeof OrderDispatchedSchema>,
): NonNullable<MessageInitShape<typeof PublishEventRequestSchema>["data"]> {
  if (member === "orderDispatched") return { case: member, value };
  // The messages of both event types have the same fields, so the same bytes and the same JSON.
  const order = create(OrderDispatchedSchema, value);
  switch (member) {
    case "event":
      return { case: "event", value: anyPack(OrderDispatchedSchema, order) };
    case "registeredEvent": {
      const typeUrl = `type.googleapis.com/${REGISTERED.message}`;
      return { case: "event", value: { typeUrl, value: toBinary(OrderDispatchedSchema, order) } };
    }
    default: {
      const process = member === "jsonEvent" ? "OrderDispatched" : REGISTERED.name;
      return { case: "jsonEvent", value: { process, payload: toJsonString(OrderDispatchedSchema, order) } };
    }
  }
}
