/** WebhookService and EndpointService. */
export { endpointService } from "./endpoints.ts";
export type { LatestEvent } from "./filters.ts";
export type { WebhookServiceParts } from "./service-parts.ts";
export { webhookService } from "./webhooks.ts";
