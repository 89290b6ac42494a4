import { useQuery } from "@connectrpc/connect-query";
import { DeliveryService } from "../../../../../gen/webhook/v1/delivery_pb.ts";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** What the id that was searched for turned out to be. */
export type IdSearch =
  | { is: "none" | "no id" | "looking" }
  | { is: "found"; filter: { deliveryId: string } | { eventId: string } }
  | { is: "failed"; error: unknown; retry: () => void };

/** Takes an id for a delivery's where there is one of it, and for an event's otherwise. */
export function useIdSearch(text: string): IdSearch {
  const id = text.trim().toLowerCase();
  const isId = UUID.test(id);
  const byDelivery = useQuery(
    DeliveryService.method.listDeliveries,
    { deliveryId: id, pageSize: 1 },
    { enabled: isId },
  );
  if (id === "") return { is: "none" };
  if (!isId) return { is: "no id" };
  if (byDelivery.isError)
    return { is: "failed", error: byDelivery.error, retry: () => void byDelivery.refetch() };
  if (byDelivery.isPending) return { is: "looking" };
  const filter = byDelivery.data.deliveries.length > 0 ? { deliveryId: id } : { eventId: id };
  return { is: "found", filter };
}
