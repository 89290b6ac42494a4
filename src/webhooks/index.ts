/** Webhooks, with their secrets and settings. */
export { type BreakerState, removeBreakers } from "./breakers.ts";
export { type ClaimedWebhook, ClaimedWebhooks } from "./claimed-webhooks.ts";
export { pauseWebhooksOf } from "./customer-pause.ts";
export { privateKeyOf } from "./key-pairs.ts";
export { headersOfSettings, openRequestSettings } from "./request-settings.ts";
export { raiseRevisions } from "./revisions.ts";
export {
  createSecretBox,
  keyPairContext,
  type SecretBox,
  UnopenableError,
  webhookSecretContext,
} from "./secret-box.ts";
export { type Resealing, resealSecrets } from "./secret-resealing.ts";
export { noteSlowFilter, stopFilter } from "./slow-filters.ts";
export { inLog, webhookEntries, webhookTarget } from "./webhook-changes.ts";
export { deleteWebhooks } from "./webhook-deletion.ts";
export { forgetExpiredSecrets, readSealedSecrets, type SealedSecret, type Sign } from "./webhook-secrets.ts";
export { forgetOldUrls } from "./webhook-update.ts";
export {
  getWebhook,
  HEALTH_NUMBERS,
  type Health,
  idsOf,
  listWebhookIds,
  lockWebhook,
  ownsOutside,
  processesOfKey,
  transferWebhooks,
  type WebhookRow,
} from "./webhooks.ts";
