import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter } from "@connectrpc/connect";
import { Health } from "../../gen/health/v1/health_pb.ts";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import type { ApiContext } from "./context.ts";
import type { Readiness } from "./readiness.ts";
import { apiKeyService } from "./services/api-keys.ts";
import { deliveryService } from "./services/deliveries.ts";
import { eventService } from "./services/events.ts";
import { healthService } from "./services/health.ts";
import { webhookService } from "./services/webhooks.ts";

/** Every service of the contract. */
export const SERVICES: readonly DescService[] = [
  WebhookService,
  EventService,
  ApiKeyService,
  DeliveryService,
];

/**
 * All services, for every listener and protocol alike.
 *
 * @param stopping ends calls that would go on for ever, such as Health.Watch
 */
export function createRoutes(
  context: ApiContext,
  readiness: Readiness,
  stopping: AbortSignal,
): (router: ConnectRouter) => void {
  // One for all listeners, so that whatever is published gathers in the same groups.
  const events = eventService(context);
  return (router) => {
    router
      .service(WebhookService, webhookService(context))
      .service(EventService, events)
      .service(ApiKeyService, apiKeyService(context))
      .service(DeliveryService, deliveryService(context))
      .service(Health, healthService(SERVICES, readiness, stopping));
  };
}
