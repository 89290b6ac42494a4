/** DeliveryService. */
export { type DeliveryServiceParts, deliveryService } from "./deliveries.ts";
export { finalDeliveryFilter, searchText, stateNumbers } from "./delivery-filter.ts";
