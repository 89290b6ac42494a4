import { timestampDate } from "@bufbuild/protobuf/wkt";
import type {
  MissedEvents,
  ResentDeliveries,
  StartReplayRequest,
} from "../../../gen/webhook/v1/replay_pb.ts";
import { invalidField } from "../../calls/errors/index.ts";
import { finalDeliveryFilter, searchText } from "../../log/rpc/index.ts";
import type { NewReplay } from "../replays.ts";

/**
 * The replay that a request asks for.
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
      throw invalidField(
        "what",
        "is required: `resend` for ended deliveries, or `backfill` for events that a webhook missed",
      );
  }
}

function resent(request: ResentDeliveries): NewReplay["filter"] {
  const filter = finalDeliveryFilter({ ...request, pageToken: "" }, "resend.states");
  const { states = [], from, to, webhookId, process, eventId } = filter;
  assertRange("resend", from, to);
  const search = searchText(request.search);
  const { customer } = request;
  return { webhookId, process, eventId, customer, states: [...new Set(states)], search, from, to };
}

function missed({ webhookId, from, to }: MissedEvents): NewReplay["filter"] {
  const range = { from: from && timestampDate(from), to: to && timestampDate(to) };
  assertRange("backfill", range.from, range.to);
  return { webhookId, states: [], ...range };
}

function assertRange(what: string, from: Date | undefined, to: Date | undefined): void {
  if (from === undefined || to === undefined || from < to) return;
  throw invalidField(`${what}.to`, "must be later than `from`");
}
