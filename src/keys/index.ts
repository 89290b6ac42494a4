/** API keys and installed apps. */
export {
  ALL_PERMISSIONS,
  createApiKey,
  ensureAdminKey,
  hasApiKeys,
  lockApiKeys,
  markRevoked,
  noSuchKey,
} from "./api-keys.ts";
export { keyCreated, keyRestored, keyTarget } from "./key-changes.ts";
export { forgetExpiredKeySecrets } from "./key-rotation.ts";
export { assertNoMoreRights } from "./more-rights.ts";
export { assertWebhookQuota, createEventQuota } from "./quotas.ts";
export type { RevokeKey, WebhooksFate } from "./revoke-key.ts";
