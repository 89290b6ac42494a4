import { useQuery } from "@connectrpc/connect-query";
import { DeliveryService, DeliveryState } from "../../../../../gen/webhook/v1/delivery_pb.ts";
import { capitalized } from "../../../parts/text/capitalized.ts";
import { countOf } from "../../../parts/text/count-of.ts";

/** Beyond this many it is said that there are more. */
const MOST = 100;
/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 5_000;
const OPEN = [DeliveryState.PENDING, DeliveryState.DELIVERING, DeliveryState.RETRYING];

/**
 * The number of a webhook's open deliveries in words, kept current: `12 deliveries`, `more than 100 deliveries`.
 * Undefined while it is not known; "" when there are none.
 *
 * @param enabled false while nobody looks
 */
export function useUndelivered(webhookId: bigint, enabled: boolean): string | undefined {
  const { data } = useQuery(
    DeliveryService.method.listDeliveries,
    { webhookId, states: OPEN, pageSize: MOST },
    { enabled, refetchInterval: REFRESH_MS },
  );
  if (!data) return undefined;
  const count = data.deliveries.length;
  if (count === 0) return "";
  if (data.nextPageToken) return `more than ${MOST} deliveries`;
  return countOf(count, "delivery", "deliveries");
}

/**
 * What becomes of undelivered deliveries when a webhook is deleted.
 *
 * @param undelivered as useUndelivered has it
 */
export function cancelInWords(undelivered: string | undefined): string {
  if (undelivered === undefined) return "Undelivered deliveries are cancelled.";
  if (undelivered === "") return "Nothing waits to be delivered at the moment.";
  const begun = capitalized(undelivered);
  return `${begun} not delivered yet ${undelivered === "1 delivery" ? "is" : "are"} cancelled.`;
}
