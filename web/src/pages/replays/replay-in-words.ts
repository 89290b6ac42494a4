import { type Replay, ReplayState } from "../../../../gen/webhook/v1/replay_pb.ts";
import { processName } from "../../../../src/contract/catalogue.ts";
import { DELIVERY_STATES } from "../../parts/status/delivery-state.tsx";
import { countOf } from "../../parts/text/count-of.ts";

/** The label and colour of each state. */
export const REPLAY_STATES: Record<ReplayState, { label: string; color: string }> = {
  [ReplayState.UNSPECIFIED]: { label: "Unknown", color: "gray" },
  [ReplayState.RUNNING]: { label: "Running", color: "blue" },
  [ReplayState.PAUSED]: { label: "Paused", color: "orange" },
  [ReplayState.COMPLETED]: { label: "Completed", color: "green" },
  [ReplayState.CANCELLED]: { label: "Cancelled", color: "gray" },
};

/** Whether the replay is open. */
export function isOpen({ state }: Pick<Replay, "state">): boolean {
  return state === ReplayState.RUNNING || state === ReplayState.PAUSED;
}

/** The title of a replay: `Failed deliveries`, `Missed events`. */
export function replayTitle({ what }: Replay): string {
  if (what.case === "backfill") return "Missed events";
  if (what.case !== "resend") return "Replay";
  const { states, process } = what.value;
  const labels = DELIVERY_STATES.filter(({ state }) => states.includes(state)).map(({ label }) => label);
  const of = process === undefined ? "" : ` of ${processName(process)}`;
  return `${labels.join(", ")} deliveries${of}`;
}

/** The webhook that a replay is restricted to; undefined for several. */
export function webhookOf({ what }: Replay): bigint | undefined {
  return what.case === undefined ? undefined : what.value.webhookId;
}

/** `1,250 deliveries queued, 3 skipped`. */
export function countsInWords({ queued, skipped }: Replay): string {
  const counted = countOf(Number(queued), "delivery queued", "deliveries queued");
  return skipped === 0n ? counted : `${counted}, ${skipped.toLocaleString()} skipped`;
}

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = { open: 1_000, ended: 15_000 };

/** The interval at which replays are read again, in milliseconds: short while one is open. */
export function refreshMs(replays: readonly Pick<Replay, "state">[] = []): number {
  return replays.some(isOpen) ? REFRESH_MS.open : REFRESH_MS.ended;
}
