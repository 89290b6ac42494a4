import {
  type Client,
  type ConnectError,
  createClient,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";
import { ErrorInfoSchema } from "../gen/google/rpc/error_details_pb.ts";
import { ApiKeyService } from "../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../gen/webhook/v1/audit_pb.ts";
import { CustomerService } from "../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../gen/webhook/v1/endpoint_pb.ts";
import { EventService } from "../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../gen/webhook/v1/event_type_pb.ts";
import { IncidentService } from "../gen/webhook/v1/incident_pb.ts";
import { ReplayService } from "../gen/webhook/v1/replay_pb.ts";
import { StatsService } from "../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../gen/webhook/v1/webhook_pb.ts";

export {
  type BadRequest,
  BadRequestSchema,
  type ErrorInfo,
  ErrorInfoSchema,
  type RetryInfo,
  RetryInfoSchema,
} from "../gen/google/rpc/error_details_pb.ts";
export * from "../gen/webhook/v1/api_key_pb.ts";
export * from "../gen/webhook/v1/audit_pb.ts";
export * from "../gen/webhook/v1/customer_pb.ts";
export * from "../gen/webhook/v1/delivery_pb.ts";
export * from "../gen/webhook/v1/endpoint_pb.ts";
export * from "../gen/webhook/v1/event_pb.ts";
export * from "../gen/webhook/v1/event_type_pb.ts";
export * from "../gen/webhook/v1/incident_pb.ts";
export * from "../gen/webhook/v1/notice_pb.ts";
export * from "../gen/webhook/v1/options_pb.ts";
export * from "../gen/webhook/v1/replay_pb.ts";
export * from "../gen/webhook/v1/request_settings_pb.ts";
export * from "../gen/webhook/v1/stats_pb.ts";
export * from "../gen/webhook/v1/webhook_pb.ts";

// Not session_pb.ts: sessions are the settings page's own, and refuse all callers but that page.

/** A client of each service that programs call. */
export interface WebhookClients {
  webhooks: Client<typeof WebhookService>;
  events: Client<typeof EventService>;
  deliveries: Client<typeof DeliveryService>;
  apiKeys: Client<typeof ApiKeyService>;
  stats: Client<typeof StatsService>;
  audit: Client<typeof AuditService>;
  replays: Client<typeof ReplayService>;
  endpoints: Client<typeof EndpointService>;
  eventTypes: Client<typeof EventTypeService>;
  customers: Client<typeof CustomerService>;
  incidents: Client<typeof IncidentService>;
}

/**
 * A client of each of these services over one transport, which says by what protocol the service is called and where it is:
 * `createGrpcTransport` of @connectrpc/connect-node, or `createConnectTransport` of @connectrpc/connect-web.
 */
export function createWebhookClients(transport: Transport): WebhookClients {
  return {
    webhooks: createClient(WebhookService, transport),
    events: createClient(EventService, transport),
    deliveries: createClient(DeliveryService, transport),
    apiKeys: createClient(ApiKeyService, transport),
    stats: createClient(StatsService, transport),
    audit: createClient(AuditService, transport),
    replays: createClient(ReplayService, transport),
    endpoints: createClient(EndpointService, transport),
    eventTypes: createClient(EventTypeService, transport),
    customers: createClient(CustomerService, transport),
    incidents: createClient(IncidentService, transport),
  };
}

/** Sends the API key with every call: one of a transport's `interceptors`. */
export function withApiKey(key: string): Interceptor {
  return (next) => (request) => {
    request.header.set("X-Service-Key", key);
    return next(request);
  };
}

/** Why a call was refused, such as `WEBHOOK_NOT_FOUND`; undefined where the service was not reached. */
export function reasonOf(error: ConnectError): string | undefined {
  return error.findDetails(ErrorInfoSchema)[0]?.reason;
}
