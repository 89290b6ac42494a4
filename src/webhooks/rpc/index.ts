/** WebhookService and EndpointService. */
export { endpointService } from "./endpoints.ts";
export { webhookService } from "./webhooks.ts";
