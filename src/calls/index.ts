/** A call of the API: its caller and scope, its errors, pages and turns. */
export { callTrace, traceparentOfCall } from "./call-trace.ts";
export { callerIn, callerOf, type Identity, identityOf, setIdentity } from "./caller.ts";
export type { ApiKeyRow } from "./caller-key.ts";
export { assertServiceWide, callerScope } from "./caller-scope.ts";
export {
  type AddressValues,
  addressOf,
  addressValues,
  type PublicAddress,
  plainAddress,
  publicAddressOf,
  setAddress,
  siteOf,
} from "./client-address.ts";
export * as elements from "./element-limit.ts";
export { FairQueue } from "./fair-queue.ts";
export { inclusivePageToken, newerPageToken, pageToken, readPageToken } from "./page-tokens.ts";
export { BY_CREATED, BY_ID, BY_UUID, pageSize, readPage } from "./paging.ts";
export * from "./scope.ts";
export { searchWords } from "./search-words.ts";
export { LONG_WORK_BYTES, longTurn, shortTurn, slices } from "./thread-turns.ts";
export { assertCustomer, assertUserId, MAX_USER_ID_CHARACTERS } from "./user-id.ts";
export * from "./values.ts";
