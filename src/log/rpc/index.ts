/** DeliveryService. */
export { type DeliveryServiceParts, deliveryService } from "./deliveries.ts";
export { finalDeliveryFilter, STATE_NUMBERS, searchText } from "./delivery-filter.ts";
