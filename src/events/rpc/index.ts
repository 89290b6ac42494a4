/** EventService: publishes events. */
export { eventService } from "./events.ts";
