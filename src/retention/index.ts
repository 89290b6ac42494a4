/** Deletes what is older than its retention. */
export { createDeleteExpired } from "./delete-expired.ts";
