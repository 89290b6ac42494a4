import type { DescService } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl } from "@connectrpc/connect";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServerReflection as ServerReflectionAlpha } from "../../gen/grpc/reflection/v1alpha/reflection_pb.ts";
import { Health } from "../../gen/health/v1/health_pb.ts";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { CustomerService } from "../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../../gen/webhook/v1/endpoint_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { IncidentService } from "../../gen/webhook/v1/incident_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { SessionService } from "../../gen/webhook/v1/session_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { auditService } from "../audit/rpc/index.ts";
import { customerService } from "../customers/rpc/index.ts";
import { eventTypeService } from "../event-types/rpc/index.ts";
import { queueTestEvent } from "../events/index.ts";
import { eventService } from "../events/rpc/index.ts";
import { incidentService } from "../incidents/rpc/index.ts";
import type { Gate } from "../keys/gate/index.ts";
import { apiKeyService, sessionService } from "../keys/rpc/index.ts";
import { latestEvents } from "../log/index.ts";
import { deliveryService } from "../log/rpc/index.ts";
import { cancelFirst, readOverdueRetries } from "../queue/index.ts";
import { replayService } from "../replays/rpc/index.ts";
import { revokeKey } from "../revocation/index.ts";
import { countOfCustomers } from "../stats/index.ts";
import { statsService } from "../stats/rpc/index.ts";
import { pauseWebhooksOf } from "../webhooks/index.ts";
import { endpointService, webhookService } from "../webhooks/rpc/index.ts";
import type { ApiContext } from "./context/context.ts";
import type { Readiness } from "./context/readiness.ts";
import { healthService } from "./grpc/health.ts";
import { reflectionService } from "./grpc/reflection.ts";
import { messageLimits } from "./limits/message-limits.ts";
import { requestJsonOptions } from "./rpc/request-values.ts";

/** The services of the contract. */
export const SERVICES: readonly DescService[] = [
  WebhookService,
  EventService,
  ApiKeyService,
  DeliveryService,
  StatsService,
  AuditService,
  ReplayService,
  EndpointService,
  EventTypeService,
  CustomerService,
  IncidentService,
];

/** All services: the contract's, the settings page's, and health and reflection for gRPC clients. */
export const SERVED: readonly DescService[] = [
  ...SERVICES,
  SessionService,
  Health,
  ServerReflection,
  ServerReflectionAlpha,
];

/**
 * All services, for every listener and protocol.
 *
 * @param stopping ends endless calls such as Health.Watch with its reason
 * @param overviewSilenceMs the maximum time between messages of WatchOverview, in milliseconds. Defaults to 20,000
 */
export function createRoutes(
  context: ApiContext,
  gate: Gate,
  readiness: Readiness,
  stopping: AbortSignal,
  overviewSilenceMs?: number,
): (router: ConnectRouter) => void {
  // Shared by all listeners, so that all events join the same batches.
  const events = eventService(context, gate);
  // Shared by all subscribers so that each poll queries the database once.
  const stats = statsService(context, gate, stopping, overviewSilenceMs);
  const reflection = reflectionService(SERVED, stopping);
  const ofOthers = { onDeleted: cancelFirst, readOverdueRetries, queueTestEvent, latestEvents };
  const webhookParts = { ...context, ...ofOthers };
  const customerParts = { ...context, countOfCustomers, pauseWebhooksOf };
  return (router) => {
    addService(router, WebhookService, webhookService(webhookParts));
    addService(router, EventService, events);
    addService(router, ApiKeyService, apiKeyService({ ...context, revokeKey }));
    addService(router, DeliveryService, deliveryService(context, gate, stopping));
    addService(router, SessionService, sessionService(context, gate));
    addService(router, StatsService, stats);
    addService(router, AuditService, auditService(context));
    addService(router, ReplayService, replayService(context));
    addService(router, EndpointService, endpointService(webhookParts));
    addService(router, EventTypeService, eventTypeService(context));
    addService(router, CustomerService, customerService(customerParts));
    addService(router, IncidentService, incidentService(context));
    addService(router, Health, healthService(SERVED, readiness, stopping));
    addService(router, ServerReflection, reflection);
    // The two versions of the protocol have the same messages under different names.
    addService(
      router,
      ServerReflectionAlpha,
      reflection as unknown as ServiceImpl<typeof ServerReflectionAlpha>,
    );
  };
}

/** Adds the methods of a service, each with the limit and the JSON options of its messages. */
function addService<T extends DescService>(
  router: ConnectRouter,
  service: T,
  implementation: ServiceImpl<T>,
): void {
  const methods = implementation as Record<string, (...given: never[]) => unknown>;
  for (const method of service.methods) {
    const run = methods[method.localName]?.bind(implementation);
    router.rpc(method, run as never, {
      readMaxBytes: messageLimits(method).maxBytes,
      jsonOptions: requestJsonOptions(method.input),
    });
  }
}
