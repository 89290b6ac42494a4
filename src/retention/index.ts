/** Deletes what is older than its retention. */
export { createDeleteExpired, type Deletions } from "./delete-expired.ts";
