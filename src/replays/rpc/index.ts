/** ReplayService. */
export { replayService } from "./replays.ts";
