/** What the fake service of the component tests answers: messages as the API has them, with what a test does not mention filled in. */
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { type ApiKey, ApiKeySchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { type Customer, CustomerSchema } from "../../../gen/webhook/v1/customer_pb.ts";
import {
  type Delivery,
  DeliverySchema,
  DeliveryState,
  type GetDeliveryResponseSchema,
} from "../../../gen/webhook/v1/delivery_pb.ts";
import { type Incident, IncidentSchema } from "../../../gen/webhook/v1/incident_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { type Webhook, WebhookHealth, WebhookSchema } from "../../../gen/webhook/v1/webhook_pb.ts";
import { eventTypes, isNotice } from "../../../src/contract/catalogue.ts";
import { DomainError } from "../../../src/contract/errors.ts";

export const SECOND = 1_000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** When a test opens the page: noon in Berlin, in milliseconds. */
export const NOW = Date.parse("2026-11-21T11:00:00Z");

/** A moment before that. */
export const ago = (ms: number): Timestamp => timestampFromMs(NOW - ms);
/** A moment after it. */
export const ahead = (ms: number): Timestamp => timestampFromMs(NOW + ms);

export const ALL = [
  Permission.READ_ADMINISTRATIVE_DATA,
  Permission.WRITE_ADMINISTRATIVE_DATA,
  Permission.PUBLISH_EVENTS,
  Permission.MANAGE_API_KEYS,
  Permission.MANAGE_EVENT_TYPES,
  Permission.MANAGE_CUSTOMERS,
];
export const READER = [Permission.READ_ADMINISTRATIVE_DATA];

/** A key of an integrator. */
export function aKey(more: MessageInitShape<typeof ApiKeySchema> = {}): ApiKey {
  const id = more.id ?? "shop";
  return create(ApiKeySchema, {
    id,
    name: "Shop",
    prefix: `whk_${id}`,
    permissions: [Permission.READ_ADMINISTRATIVE_DATA, Permission.WRITE_ADMINISTRATIVE_DATA],
    created: ago(30 * DAY),
    ...more,
  });
}

const FIRST = { id: "admin", name: "Administrator", permissions: ALL };
export const ADMINISTRATOR = aKey(FIRST);

/** A session of the administrator's key, or of another one. */
export function signedIn(key: MessageInitShape<typeof ApiKeySchema> = {}) {
  return {
    session: { apiKey: aKey({ ...FIRST, ...key }), expires: ahead(12 * HOUR) },
    deliveryTimeout: { seconds: 15n },
  };
}

/** A customer with a name and healthy webhooks. */
export function aCustomer(more: MessageInitShape<typeof CustomerSchema> = {}): Customer {
  const init = {
    userId: "tenant-7",
    displayName: "Acme",
    created: ago(DAY),
    counts: { webhooks: 2, apiKeys: 1, pendingDeliveries: 3, retryingDeliveries: 1_000 },
    ...more,
  };
  return create(CustomerSchema, init as typeof more);
}

/** These customers, in lists and by their user ids. They may be changed while the page is open. */
export function customers(...all: Customer[]) {
  return {
    listCustomers: ({ search }: { search: string }) => ({
      customers: all.filter(
        ({ userId, displayName }) => userId.startsWith(search) || displayName.includes(search),
      ),
    }),
    getCustomer: (request: { customer: string }) => {
      const customer = all.find(({ userId }) => userId === request.customer);
      if (!customer) throw new DomainError("NOT_FOUND", "there is no such customer");
      return { customer };
    },
  };
}

/** A webhook of the administrator for OrderDispatched; number 7 unless told. */
export function aWebhook(more: MessageInitShape<typeof WebhookSchema> = {}): Webhook {
  return create(WebhookSchema, {
    id: 7n,
    url: "https://shop.example/hooks",
    webhookProcess: 1,
    apiKeyId: ADMINISTRATOR.id,
    health: WebhookHealth.HEALTHY,
    created: ago(DAY),
    modified: ago(DAY),
    revision: 1n,
    ...more,
  });
}

/** These webhooks, in lists and by their ids. They may be changed while the page is open. */
export function webhooks(...all: Webhook[]) {
  return {
    searchWebhooks: () => ({ webhooks: all, found: all.length }),
    getWebhook: ({ webhookId }: { webhookId: bigint }) => {
      const webhook = all.find(({ id }) => id === webhookId);
      if (!webhook) throw notFound("WEBHOOK_NOT_FOUND");
      return { webhook };
    },
    getEndpoint: ({ endpointId }: { endpointId: string }) => ({
      endpoint: { id: endpointId, webhooks: all.filter((each) => each.endpointId === endpointId) },
    }),
  };
}

/** The id of the n-th delivery. */
export const deliveryId = (n: number) => `01a2b3c4-0000-7000-8000-${String(n).padStart(12, "0")}`;

/** An open incident of three webhooks at shop.example. */
export function anIncident(more: MessageInitShape<typeof IncidentSchema> = {}): Incident {
  const init = {
    id: "01a2b3c4-1000-7000-8000-000000000001",
    cause: {
      code: "connection_refused",
      summary: "connection refused",
      remedy: "check that the server runs, and its host and port",
    },
    subject: "shop.example",
    since: ago(HOUR),
    webhooks: 3n,
    failingWebhooks: 3n,
    customers: 2n,
    waiting: 1_380n,
    nextAttempt: ahead(3 * MINUTE),
    failedAttempts: 120n,
    failedAttemptsBefore: 80n,
    measuredWebhooks: 3n,
    lastError: "connection refused; check that the server runs, and its host and port (ECONNREFUSED)",
    ...more,
  };
  return create(IncidentSchema, init as typeof more);
}

/** These incidents, in lists and by their ids. They may be changed while the page is open. */
export function incidents(...all: Incident[]) {
  return {
    listIncidents: ({ open }: { open?: boolean | undefined }) => ({
      incidents: all.filter(({ ended }) => open === undefined || open === !ended),
    }),
    getIncident: ({ incidentId }: { incidentId: string }) => {
      const incident = all.find(({ id }) => id === incidentId);
      if (!incident) throw notFound("INCIDENT_NOT_FOUND");
      return { incident };
    },
  };
}

/** A delivery that failed after four attempts; the first one unless told. */
export function aDelivery(more: MessageInitShape<typeof DeliverySchema> = {}): Delivery {
  return create(DeliverySchema, {
    id: deliveryId(1),
    eventId: "01a2b3c4-e000-7000-8000-000000000001",
    webhookId: 7n,
    webhookProcess: 1,
    url: "https://shop.example/hooks",
    state: DeliveryState.FAILED,
    attemptCount: 4,
    created: ago(HOUR),
    finished: ago(HOUR),
    status: 503,
    durationMs: 820,
    ...more,
  });
}

/** These deliveries, on one page of lists and by their ids. They may be changed while the page is open. */
export function deliveries(...all: Delivery[]) {
  return {
    listDeliveries: () => ({ deliveries: all }),
    getDelivery: (request: { deliveryId: string }): MessageInitShape<typeof GetDeliveryResponseSchema> => {
      const delivery = all.find(({ id }) => id === request.deliveryId);
      if (!delivery) throw notFound("DELIVERY_NOT_FOUND");
      return { delivery };
    },
  };
}

export const notFound = (
  reason: "WEBHOOK_NOT_FOUND" | "DELIVERY_NOT_FOUND" | "EVENT_NOT_FOUND" | "INCIDENT_NOT_FOUND",
) => new DomainError(reason, "there is no such thing");

/** A refusal by a limit, which the page does not repeat. */
export const TOO_MANY = new DomainError("LIMIT_REACHED", "too many calls");
/** A refusal because somebody else has changed the same thing. */
export const CHANGED_MEANWHILE = new DomainError("REVISION_CHANGED", "it was changed meanwhile");
/** A refusal of one field of a request. */
export const invalid = (field: string, description: string) =>
  new DomainError("REQUEST_INVALID", `${field} ${description}`, { violations: [{ field, description }] });

/** Event types to choose from. */
export const TYPES = eventTypes().map(({ number, name }) => ({
  number,
  name,
  description: `Tells of ${name.toLowerCase()}.`,
  notice: isNotice(number),
  sample: number === 3 ? '{"ProductId":7,"Sku":"LAMP-01"}' : '{"OrderId":1}',
}));
