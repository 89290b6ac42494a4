import type { MessageInitShape } from "@bufbuild/protobuf";
import type { PublishEventRequestSchema } from "../../gen/webhook/v1/event_pb.ts";

/** The process of all events of the bench: OrderDispatched. */
export const PROCESS = 1;

const LINES = [1, 2, 3, 4].map((n) => ({ productId: 1_000n + BigInt(n), sku: `LAMP-0${n}`, quantity: n }));
const ORDER = {
  orderNumber: "SO-2026-000001",
  carrier: "Parcel Post International",
  trackingNumber: "PPI-00-1234-5678-9012",
};

/** The part of the body after the order's id, as receivers get it. */
export const PAYLOAD_END = `,"OrderNumber":"${ORDER.orderNumber}","DispatchedAt":"2026-09-21T13:33:20","Carrier":"${ORDER.carrier}","TrackingNumber":"${ORDER.trackingNumber}","Lines":[${LINES.map(
  ({ productId, sku, quantity }) => `{"ProductId":${productId},"Sku":"${sku}","Quantity":${quantity}}`,
).join(",")}]}`;

/** The part of the body before the order's id. */
export const PAYLOAD_START = '{"OrderId":';

/** A body of about 380 bytes, sent by every scenario. */
export function payload(orderId: number): string {
  return `${PAYLOAD_START}${orderId}${PAYLOAD_END}`;
}

/** The same event as a publish request. */
export function publishRequest(
  orderId: number,
  idempotencyKey: string,
): MessageInitShape<typeof PublishEventRequestSchema> {
  return {
    idempotencyKey,
    userId: "tenant-1",
    data: {
      case: "orderDispatched",
      value: {
        orderId: BigInt(orderId),
        dispatchedAt: { seconds: 1_790_000_000n },
        ...ORDER,
        lines: LINES,
      },
    },
  };
}
