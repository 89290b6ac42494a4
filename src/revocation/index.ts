/** Revokes a key, with its webhooks and replays. */
export { revokeKey } from "./revocation-entries.ts";
