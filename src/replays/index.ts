/** Replays and backfills. */
export { OUTCOMES_JOB } from "./outcomes.ts";
export { cancelReplaysOfKey, deleteOldReplays } from "./replays.ts";
export { createReplayActivities } from "./run-replay.ts";
export { isReplaying } from "./running.ts";
export { startReplays } from "./start-replays.ts";
