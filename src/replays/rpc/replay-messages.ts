import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { type ReplaySchema, type ReplayState, ReplayStateSchema } from "../../../gen/webhook/v1/replay_pb.ts";
import { hideSecrets } from "../../calls/errors/index.ts";
import type { Scope } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { numbersOf } from "../../contract/enum-numbers.ts";
import { present, timestampOf } from "../../contract/present.ts";
import { STATE_NUMBERS } from "../../log/rpc/index.ts";
import type { WorkflowUrl } from "../../temporal/index.ts";
import type { ReplayFilter, ReplayRow } from "../replays.ts";

const STATES: Record<ReplayRow["state"], ReplayState> = numbersOf(ReplayStateSchema);

type Message = MessageInitShape<typeof ReplaySchema>;

/** A replay as a scope shows it. */
export function replayMessage(
  replay: ReplayRow,
  scope: Scope,
  workflowUrl: WorkflowUrl | undefined,
): Message {
  const { workflowId, runId, filter } = replay;
  const url =
    scope === "everything" && workflowId !== null && runId !== null
      ? workflowUrl?.(workflowId, runId)
      : undefined;
  return present({
    id: replay.id,
    what: whatOf(replay),
    webhookProcessName: filter.process === undefined ? undefined : processName(filter.process),
    state: STATES[replay.state],
    created: timestampFromDate(replay.created),
    ended: timestampOf(replay.ended),
    queued: replay.queued,
    delivered: replay.delivered,
    failed: replay.failed,
    waiting: replay.open,
    skipped: replay.skipped,
    progress: replay.progress,
    webhooks: replay.webhooks,
    webhooksWaiting: replay.waiting,
    url,
  });
}

function whatOf({ kind, filter }: ReplayRow): NonNullable<Message["what"]> {
  const { webhookId, process, eventId, states, search, customer } = filter;
  if (kind === "backfill")
    return { case: "backfill", value: { webhookId: webhookId ?? 0n, ...rangeOf(filter) } };
  return {
    case: "resend",
    value: present({
      webhookId,
      process: process as WebhookProcess | undefined,
      eventId,
      customer,
      states: states.map((state) => STATE_NUMBERS[state]),
      search: search === undefined ? "" : hideSecrets(search.text),
      ...rangeOf(filter),
    }),
  };
}

function rangeOf({ from, to }: ReplayFilter) {
  return present({ from: timestampOf(from), to: timestampOf(to) });
}
