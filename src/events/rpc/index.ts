/** EventService: publishes events. */
export { type EventServiceParts, eventService } from "./events.ts";
