import type { ClaimedDelivery } from "../db/queue/claims.ts";
import type { Outcome } from "./outcome.ts";

/** What became of the deliveries that went through a flow. */
export interface FlowCounts {
  /** Attempts made and recorded. */
  sent: number;
  delivered: number;
  /** Failed, with retries left. */
  retrying: number;
  /** Failed for good. */
  failed: number;
}

/** Where a flow's deliveries come from, and where they go when it ends early. */
export interface FlowSource {
  /** Claims up to `limit`; `exhausted` when nothing more is waiting, not even for its webhook's rate limit (`limited`). */
  claim(
    limit: number,
    excluded: readonly bigint[],
  ): Promise<{ deliveries: ClaimedDelivery[]; exhausted: boolean; limited: boolean }>;
  /** Gives back what was claimed and not sent. */
  release(deliveries: readonly ClaimedDelivery[]): Promise<void>;
}

/** Hooks of a flow that treats the slow apart. */
export interface FlowWatcher {
  onOutcome(delivery: ClaimedDelivery, outcome: Outcome): void;
  /** Every quarter of a second, with how long each receiver has had its request, in milliseconds. */
  onTick(inFlight: Iterable<{ delivery: ClaimedDelivery; forMs: number }>): void;
  /** Whether a claimed delivery is not to be sent by this flow. */
  refuses(delivery: ClaimedDelivery): boolean;
}
