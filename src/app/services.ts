import type { DescService } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
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
import type { CreateServices, Load, Served } from "../api/index.ts";
import { auditService } from "../audit/rpc/index.ts";
import type { LimitsConfig } from "../config/index.ts";
import { customerService } from "../customers/rpc/index.ts";
import { eventTypeService } from "../event-types/rpc/index.ts";
import { queueTestEvent } from "../events/index.ts";
import { type EventServiceParts, eventService } from "../events/rpc/index.ts";
import { incidentService } from "../incidents/rpc/index.ts";
import type { Gate } from "../keys/gate/index.ts";
import { apiKeyService, sessionService } from "../keys/rpc/index.ts";
import { latestEvents } from "../log/index.ts";
import { type DeliveryServiceParts, deliveryService } from "../log/rpc/index.ts";
import { cancelFirst, readOverdueRetries } from "../queue/index.ts";
import { replayService } from "../replays/rpc/index.ts";
import { countOfCustomers } from "../stats/index.ts";
import { type StatsParts, statsService } from "../stats/rpc/index.ts";
import { pauseWebhooksOf } from "../webhooks/index.ts";
import { endpointService, type WebhookServiceParts, webhookService } from "../webhooks/rpc/index.ts";
import { revokeKey } from "./revoke-key.ts";

/** What webhooks and endpoints use of modules above them. */
const OF_OTHERS = { onDeleted: cancelFirst, readOverdueRetries, queueTestEvent, latestEvents };

/** What the services use of their process. */
export type ServiceParts = EventServiceParts &
  DeliveryServiceParts &
  StatsParts &
  Omit<WebhookServiceParts, keyof typeof OF_OTHERS> & { limits: LimitsConfig };

type Parts = ServiceParts & { gate: Gate; stopping: AbortSignal };

/** A service, what creates it, and what its types do not tell about the load of its methods. */
const entry = <T extends DescService>(
  service: T,
  create: (parts: Parts) => ServiceImpl<T>,
  load: Load<keyof T["method"] & string> = {},
) => ({ service, create: create as (parts: Parts) => Served["implementation"], ...load });

/** The services of the contract. */
const CONTRACT = [
  entry(WebhookService, (parts) => webhookService({ ...parts, ...OF_OTHERS }), {
    // A few rows of one webhook; nothing of the database; what the queue of filter trials limits already.
    light: ["getWebhookSecret", "getWebhookKeyPairs", "listProcesses", "tryWebhookFilter"],
  }),
  entry(EventService, (parts) => eventService(parts, parts.gate)),
  entry(ApiKeyService, (parts) => apiKeyService({ ...parts, revokeKey })),
  // The attempts of one delivery. Sending again searches deliveries as ListDeliveries does.
  entry(DeliveryService, (parts) => deliveryService(parts, parts.gate, parts.stopping), {
    light: ["getDelivery"],
    heavy: ["sendAgainMany"],
  }),
  // Counts all open deliveries.
  entry(StatsService, (parts) => statsService(parts, parts.gate, parts.stopping), { heavy: ["getOverview"] }),
  // Reads as many entries as ListAuditEntries.
  entry(AuditService, auditService, { heavy: ["exportAuditEntries"] }),
  // Sums the progress of each webhook of a replay.
  entry(ReplayService, replayService, { heavy: ["getReplay"] }),
  entry(EndpointService, (parts) => endpointService({ ...parts, ...OF_OTHERS })),
  entry(EventTypeService, eventTypeService),
  entry(
    CustomerService,
    (parts) => customerService({ ...parts, countOfCustomers, pauseWebhooksOf }),
    // Counts what a customer has.
    { heavy: ["getCustomer"] },
  ),
  entry(IncidentService, incidentService),
];

/** The same with that of the settings page. */
export const ALL_SERVICES = [
  ...CONTRACT,
  entry(SessionService, (parts) => sessionService(parts, parts.gate)),
];

/** The descriptors of the services of the contract. */
export const SERVICES: readonly DescService[] = CONTRACT.map(({ service }) => service);

/** Creates all services, once for all listeners: they share batches of events, and readings of the database. */
export const createServices =
  (parts: ServiceParts): CreateServices =>
  (gate, stopping) =>
    ALL_SERVICES.map((each) => ({ ...each, implementation: each.create({ ...parts, gate, stopping }) }));
