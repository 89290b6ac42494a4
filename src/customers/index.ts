/** Customers: their limits, and what removes them. */
export { assertCustomerQuota, makeCustomer } from "./customers.ts";
export { type ErasureState, eraseStep, listErasing, type Removal } from "./erasure.ts";
