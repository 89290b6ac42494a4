/** Parts of a Node process: the clock, the log, jobs, the shutdown, watched files, and a watch for work that blocks the thread. */
export { watchBlockedThread } from "./blocked-thread.ts";
export { type Clock, currentMoment, LONG_AGO, type Moment, systemClock } from "./clock.ts";
export { instanceName } from "./instance-name.ts";
export { type Job, startJobs } from "./jobs.ts";
export { createLogger } from "./logger.ts";
export { readMemoryLimit } from "./memory-limit.ts";
export type { Progress } from "./progress.ts";
export { untilToldToStop } from "./shutdown.ts";
export { watchFiles } from "./watched-files.ts";
