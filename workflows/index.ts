export { deleteExpired } from "./delete-expired.ts";
export { dispatchOnPublish } from "./dispatch-on-publish.ts";
export { dispatchPendingDeliveries } from "./dispatch-pending-deliveries.ts";
