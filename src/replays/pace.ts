/** The maximum number of concurrent steps. Each takes a database session. */
export const CONCURRENT_STEPS = 3;
/** The maximum number of steps between two pauses. */
export const STEPS_PER_ROUND = 30;
/** The pause when no webhook is ready for its next step, in milliseconds. */
const IDLE_MS = 250;
/** The maximum of a pause, in milliseconds: a step may have waited for a database that did not respond. */
const MAX_PAUSE_MS = 10_000;
/** The part of its time for which a replay works on webhooks that are behind. */
const BEHIND_SHARE = 0.1;

/** A step that queued deliveries. */
interface TimedStep {
  /** Whether first attempts of the webhook have waited for more than two seconds. */
  behind: boolean;
  /** Its duration, in milliseconds. */
  tookMs: number;
}

/**
 * The pause after a round of steps, in milliseconds, at most 10,000. However many webhooks a replay concerns, it takes at most a tenth of
 * what its steps could take from first attempts that wait; steps of other webhooks follow each other at once.
 *
 * @param steps the steps of the round
 * @param more whether there is more to do at once
 */
export function pauseAfterRound(steps: readonly TimedStep[], more: boolean): number {
  const behindMs = steps.reduce((sum, { behind, tookMs }) => (behind ? sum + tookMs : sum), 0);
  const pauseMs = (behindMs / CONCURRENT_STEPS) * (1 / BEHIND_SHARE - 1);
  return Math.max(Math.min(pauseMs, MAX_PAUSE_MS), more || steps.length > 0 ? 0 : IDLE_MS);
}
