/** Deliveries and their attempts, open and ended. */
export { type DeliveryStateName, hasDelivery, TABLES } from "./deliveries.ts";
export { filterFacts, sentManyAgain } from "./delivery-changes.ts";
export { latestEvents } from "./latest.ts";
export type { DeliveryFilter } from "./list.ts";
export { searchDeliveries } from "./search.ts";
export type { SearchText } from "./search-text.ts";
export { MAX_ROWS_PER_STATEMENT, startRound } from "./send-again.ts";
