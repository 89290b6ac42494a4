/** StatsService. */
export { type StatsParts, statsService } from "./stats.ts";
