export { deleteExpired } from "./delete-expired.ts";
export { dispatchPendingDeliveries } from "./dispatch-pending-deliveries.ts";
export { replayDeliveries } from "./replay-deliveries.ts";
