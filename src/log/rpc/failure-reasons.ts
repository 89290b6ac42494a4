import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ListFailureReasonsResponseSchema } from "../../../gen/webhook/v1/delivery_pb.ts";
import { timeOfId } from "../../schema/index.ts";
import type { DeliveryRow } from "../deliveries.ts";
import type { DeliveryPage } from "../list.ts";

/** The maximum number of reasons returned. */
const MAX_REASONS = 20;

/** Counts deliveries by reason. @param limit the number of deliveries counted, the newest first */
export function failureReasonsMessage(
  { deliveries, searchedTo }: DeliveryPage,
  limit: number,
): MessageInitShape<typeof ListFailureReasonsResponseSchema> {
  const examined = deliveries.slice(0, limit);
  const counts = new Map<string, number>();
  for (const row of examined) {
    const reason = reasonOf(row);
    counts.set(reason, (counts.get(reason) ?? 0) + 1);
  }
  const last = examined.at(-1);
  const back = searchedTo ?? (deliveries.length > limit && last ? last.id : null);
  return {
    reasons: [...counts]
      .sort(([a, more], [b, less]) => less - more || (a < b ? -1 : 1))
      .slice(0, MAX_REASONS)
      .map(([reason, count]) => ({ reason, count })),
    examined: examined.length,
    ...(back === null ? {} : { searchedBackTo: timestampFromDate(timeOfId(back)) }),
  };
}

function reasonOf({ reason, last }: DeliveryRow): string {
  return reason ?? last?.error ?? (last?.status ? `HTTP ${last.status}` : "unknown");
}
