export { dispatchPendingDeliveries } from "./dispatch-pending-deliveries.ts";
