import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { type ReplaySchema, ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import { hideSecrets } from "../../calls/errors/index.ts";
import type { Scope } from "../../calls/index.ts";
import { stateNumbers } from "../../log/rpc/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import type { ReplayFilter, ReplayRow } from "../replays.ts";

const STATES: Record<ReplayRow["state"], ReplayState> = {
  running: ReplayState.RUNNING,
  paused: ReplayState.PAUSED,
  completed: ReplayState.COMPLETED,
  cancelled: ReplayState.CANCELLED,
};

type Message = MessageInitShape<typeof ReplaySchema>;

/** A replay as a scope shows it. */
export function replayMessage(
  replay: ReplayRow,
  scope: Scope,
  workflowUrl: WorkflowUrl | undefined,
): Message {
  const { workflowId, runId } = replay;
  const url =
    scope === "everything" && workflowId !== null && runId !== null
      ? workflowUrl?.(workflowId, runId)
      : undefined;
  return {
    id: replay.id,
    what: whatOf(replay),
    state: STATES[replay.state],
    created: timestampFromDate(replay.created),
    ...(replay.ended === null ? {} : { ended: timestampFromDate(replay.ended) }),
    queued: replay.queued,
    skipped: replay.skipped,
    progress: replay.progress,
    webhooks: replay.webhooks,
    webhooksWaiting: replay.waiting,
    ...(url === undefined ? {} : { url }),
  };
}

function whatOf({ kind, filter }: ReplayRow): NonNullable<Message["what"]> {
  const { webhookId, process, eventId, states, search } = filter;
  if (kind === "backfill")
    return { case: "backfill", value: { webhookId: webhookId ?? 0n, ...rangeOf(filter) } };
  return {
    case: "resend",
    value: {
      ...(webhookId === undefined ? {} : { webhookId }),
      ...(process === undefined ? {} : { process: process as WebhookProcess }),
      ...(eventId === undefined ? {} : { eventId }),
      states: states.map((state) => stateNumbers.get(state) ?? DeliveryState.UNSPECIFIED),
      search: search === undefined ? "" : hideSecrets(search.text),
      ...rangeOf(filter),
    },
  };
}

function rangeOf({ from, to }: ReplayFilter) {
  return {
    ...(from === undefined ? {} : { from: timestampFromDate(from) }),
    ...(to === undefined ? {} : { to: timestampFromDate(to) }),
  };
}
