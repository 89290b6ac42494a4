/** Revokes a key, with its webhooks and what else ends with it. */
export { keyRevocation } from "./key-revocation.ts";
