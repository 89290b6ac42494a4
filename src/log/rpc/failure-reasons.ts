import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ListFailureReasonsResponseSchema } from "../../../gen/webhook/v1/delivery_pb.ts";
import { present, timestampOf } from "../../contract/present.ts";
import { type FailureCause, failureCause, type OpenIncident } from "../../incidents/index.ts";
import { timeOfId } from "../../schema/index.ts";
import type { DeliveryRow } from "../deliveries.ts";
import type { DeliveryPage } from "../list.ts";

/** The maximum number of reasons returned. */
const MAX_REASONS = 20;

/** Deliveries with one reason. */
interface Counted {
  count: number;
  cause: FailureCause | null;
  webhookIds: Set<bigint>;
}

/**
 * Counts deliveries by reason.
 *
 * @param limit the number of deliveries counted, the newest first
 * @param incidents the open incident of each webhook of these deliveries
 * @param total the number of deliveries that match; null if it is not known
 */
export function failureReasonsMessage(
  { deliveries, searchedTo }: DeliveryPage,
  limit: number,
  incidents: ReadonlyMap<bigint, OpenIncident>,
  total: bigint | null,
): MessageInitShape<typeof ListFailureReasonsResponseSchema> {
  const examined = deliveries.slice(0, limit);
  const counts = new Map<string, Counted>();
  for (const row of examined) {
    const counted = counts.getOrInsertComputed(reasonOf(row), () => {
      const cause = row.reason === null && row.last ? failureCause(row.last.status, row.last.error) : null;
      return { count: 0, cause, webhookIds: new Set<bigint>() };
    });
    counted.count += 1;
    counted.webhookIds.add(row.webhookId);
  }
  const last = examined.at(-1);
  const back = searchedTo ?? (deliveries.length > limit && last ? last.id : null);
  const complete = back === null;
  return present({
    reasons: [...counts]
      .sort(([a, more], [b, less]) => less.count - more.count || (a < b ? -1 : 1))
      .slice(0, MAX_REASONS)
      .map(([reason, { count, cause, webhookIds }]) => {
        const [oldest] = [...webhookIds]
          .flatMap((id) => incidents.get(id) ?? [])
          .filter((incident) => incident.cause === cause?.code)
          .sort((a, b) => a.since.getTime() - b.since.getTime());
        const failing = { failingSince: timestampOf(oldest?.since), incidentId: oldest?.id };
        return present({ reason, count, cause, ...failing });
      }),
    examined: examined.length,
    searchedBackTo: back === null ? null : timestampFromDate(timeOfId(back)),
    complete,
    total: complete ? BigInt(examined.length) : total,
  });
}

function reasonOf({ reason, last }: DeliveryRow): string {
  return reason ?? (last?.status ? `HTTP ${last.status}` : (last?.error ?? "unknown"));
}
