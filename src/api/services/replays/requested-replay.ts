import { timestampDate } from "@bufbuild/protobuf/wkt";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type {
  MissedEvents,
  ResentDeliveries,
  StartReplayRequest,
} from "../../../../gen/webhook/v1/replay_pb.ts";
import { FINAL_STATES } from "../../../db/deliveries/deliveries.ts";
import type { NewReplay } from "../../../db/replays/replays.ts";
import { invalidFields } from "../../errors/errors.ts";
import { deliveryFilter, searchText, stateText } from "../deliveries/delivery-filter.ts";

/**
 * What a request wants replayed.
 *
 * @throws DomainError INVALID_ARGUMENT that names the invalid field
 */
export function requestedReplay({ what }: StartReplayRequest): Pick<NewReplay, "kind" | "filter"> {
  switch (what.case) {
    case "resend":
      return { kind: "resend", filter: resent(what.value) };
    case "backfill":
      return { kind: "backfill", filter: missed(what.value) };
    default:
      throw invalidFields([
        {
          field: "what",
          description:
            "is required: `resend` for ended deliveries, or `backfill` for events that a webhook missed",
        },
      ]);
  }
}

function resent(request: ResentDeliveries): NewReplay["filter"] {
  const { states, from, to, webhookId, process, eventId } = deliveryFilter({
    ...request,
    states: request.states.length > 0 ? request.states : [DeliveryState.FAILED],
    pageToken: "",
  });
  if (!states?.every((state) => FINAL_STATES.includes(state))) {
    throw invalidFields([
      {
        field: "resend.states",
        description: `must be one or more of: ${FINAL_STATES.map(stateText).join(", ")}; deliveries in another state are under way`,
      },
    ]);
  }
  assertRange("resend", from, to);
  const search = searchText(request.search);
  return { webhookId, process, eventId, states: [...new Set(states)], search, from, to };
}

function missed({ webhookId, from, to }: MissedEvents): NewReplay["filter"] {
  const range = { from: from && timestampDate(from), to: to && timestampDate(to) };
  assertRange("backfill", range.from, range.to);
  return { webhookId, states: [], ...range };
}

function assertRange(what: string, from: Date | undefined, to: Date | undefined): void {
  if (from === undefined || to === undefined || from < to) return;
  throw invalidFields([{ field: `${what}.to`, description: "must be later than `from`" }]);
}
