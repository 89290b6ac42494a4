/** EventTypeService. */
export { eventTypeService } from "./event-types.ts";
