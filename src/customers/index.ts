/** Customers: their quotas and their erasure. */
export { assertCustomerQuota, makeCustomer } from "./customers.ts";
export { type ErasureState, eraseStep, listErasing, type Removal } from "./erasure.ts";
