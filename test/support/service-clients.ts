import type { DescService } from "@bufbuild/protobuf";
import type { Client } from "@connectrpc/connect";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { CustomerService } from "../../gen/webhook/v1/customer_pb.ts";
import { DeliveryService } from "../../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../../gen/webhook/v1/endpoint_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../gen/webhook/v1/event_type_pb.ts";
import { IncidentService } from "../../gen/webhook/v1/incident_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";

const SERVICES = {
  webhooks: WebhookService,
  endpoints: EndpointService,
  events: EventService,
  deliveries: DeliveryService,
  stats: StatsService,
  audit: AuditService,
  replays: ReplayService,
  incidents: IncidentService,
  keys: ApiKeyService,
  eventTypes: EventTypeService,
  customers: CustomerService,
};

/** A client of each service. */
export type ServiceClients = {
  readonly [Name in keyof typeof SERVICES]: Client<(typeof SERVICES)[Name]>;
};

export function serviceClients(make: (service: DescService) => Client<DescService>): ServiceClients {
  const clients = Object.entries(SERVICES).map(([name, service]) => [name, make(service)]);
  return Object.fromEntries(clients) as ServiceClients;
}
