/** StatsService. */
export { statsService } from "./stats.ts";
