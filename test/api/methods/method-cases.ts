import { randomUUID } from "node:crypto";
import { create, toJsonString } from "@bufbuild/protobuf";
import { anyPack, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import type { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import { OrderDispatchedSchema } from "../../../gen/webhook/v1/event_pb.ts";
import type { EventTypeChange } from "../../../gen/webhook/v1/event_type_pb.ts";
import { judgedWebhooks } from "../../incidents/failing.ts";
import { orderEvent } from "../../support/grpc-calls.ts";
import { buildFileSet, eventTypeProto } from "../../support/registered-types.ts";
import { changeDelivery } from "../../support/stored-deliveries.ts";
import { freshUrl, type TestApi } from "../../support/test-api.ts";

type Action = keyof typeof AuditAction;
/** Entries of the audit log by action, with the ids of what was changed. */
type Entries = Partial<Record<Action, string[]>>;

export type Request = Record<string, unknown>;

/** What is known of a method. */
export interface MethodCase {
  /** A right request about fresh things. What it leaves out are fields that only restrict a list. */
  request: () => Promise<Request>;
  /** Requests with other members of its oneofs. */
  others?: () => Promise<Request[]>;
  /** The entries that the call leaves in the audit log; an action's name for one about the request's first field. None unless given. */
  // biome-ignore lint/suspicious/noExplicitAny: any method's request and answer
  entries?: Action | ((request: any, answer: any) => Entries);
  /** The code with which the same call is refused the second time; `another` if it makes a second change. */
  again?: Code | "another";
  /** The code that refuses an id that nothing has, by field; NOT_FOUND unless given. `accepted` by what restricts a list. */
  unknown?: Record<string, Code | "accepted">;
  /** What a key of another app gets; unless given, the same as for an id that nothing has. */
  forApps?: Code | "accepted";
}

const HOUR_AGO = timestampFromDate(new Date(Date.now() - 3_600_000));
const FROM_YEAR_2000 = { seconds: 946_684_800n };

/** A case of each method of the contract's services, by its name. */
export async function methodCases(api: TestApi): Promise<Record<string, MethodCase>> {
  const { webhooks, endpoints, replays } = api;
  const { cert, key } = await (await createLocalAuthority()).issue(["shop"], { client: true });

  const webhookId = () => api.register();
  const endpointId = async () =>
    (await endpoints.createEndpoint({ processes: [1, 2], url: freshUrl() })).endpoint?.id;
  const published = async (ofWebhook: bigint) => {
    const userId = randomUUID();
    const { eventId } = await api.events.publishEvent({ ...orderEvent(), userId });
    const of = { event_id: eventId, webhook_id: String(ofWebhook) };
    const [deliveryId] = await api.context.db("queue").where(of).pluck("id");
    return { userId, eventId, deliveryId: deliveryId as string };
  };
  /** Requests to publish by the members that take events of any type. */
  const ofAnyType = (): Request[] => {
    const order = create(OrderDispatchedSchema, orderEvent().data.value);
    const payload = toJsonString(OrderDispatchedSchema, order);
    return [
      { ...orderEvent(), data: { case: "event", value: anyPack(OrderDispatchedSchema, order) } },
      { ...orderEvent(), data: { case: "jsonEvent", value: { process: "OrderDispatched", payload } } },
    ];
  };
  const failed = async (ofWebhook: bigint) => {
    const event = await published(ofWebhook);
    await changeDelivery(api.context.db, event.deliveryId, { state: "failed", attempts: 4 });
    return event;
  };
  const replayId = async () =>
    (await replays.startReplay({ what: { case: "resend", value: {} } })).replay?.id as string;
  const incidentId = async () => {
    const [opened] = await judgedWebhooks(
      api.context.db,
      [await api.register()],
      `token endpoint ${randomUUID()} x`,
    );
    return opened?.id;
  };
  const settings = (authentication: object) => ({
    headers: [{ name: "X-Tenant", value: "4711" }],
    authentication,
    tls: { clientCertificate: { certificate: cert, key }, authorities: { certificates: cert } },
  });
  const basic = { case: "basic", value: { username: "user", password: "password" } };
  const bearer = { case: "bearer", value: { token: "token" } };
  const client = { tokenUrl: "https://login.example/token", clientId: "client", clientSecret: "secret" };
  const oauth2 = { case: "oauth2", value: { ...client, scope: "scope", audience: "audience" } };
  const withSettings = (field: string) => ({
    request: async () => ({ webhookId: await webhookId(), [field]: settings(basic) }),
    async others() {
      const id = await webhookId();
      return [bearer, oauth2].map((authentication) => ({ webhookId: id, [field]: settings(authentication) }));
    },
  });

  const about = { request: async () => ({ webhookId: await webhookId() }) };
  const aboutReplay = { request: async () => ({ replayId: await replayId() }) };
  const aboutKey = { request: async () => ({ apiKeyId: (await api.key()).id }) };
  const aboutEndpoint = { request: async () => ({ endpointId: await endpointId() }) };
  /** A request of which another call has made a right one. */
  const after =
    <Made>(call: (made: Made) => Promise<unknown>, { request }: { request: () => Promise<Made> }) =>
    async () => {
      const made = await request();
      await call(made);
      return made as Request;
    };
  const nothing = { request: async () => ({}) };
  const filter = {
    request: async () => ({ webhookId: await webhookId(), eventId: randomUUID(), process: 1 }),
    unknown: { webhook_id: "accepted", event_id: "accepted", delivery_id: "accepted" },
  } as const;
  const customer = async () => {
    const userId = randomUUID();
    await api.customers.updateCustomer({ customer: userId });
    return userId;
  };
  const aboutCustomer = {
    request: async () => ({ customer: await customer() }),
    forApps: Code.PermissionDenied,
  };
  let registered = 0;
  /** A set with one event type that is not registered. */
  const fileDescriptorSet = () => {
    registered += 1;
    const name = `Method${registered}`;
    return buildFileSet({ [`${name}.proto`]: eventTypeProto(name) });
  };
  const registeredType = async () => {
    const { changes } = await api.eventTypes.registerEventTypes({ fileDescriptorSet: fileDescriptorSet() });
    return changes[0] as EventTypeChange;
  };
  const idsOf = (made: { webhooks: { id: bigint }[] }) => made.webhooks.map(({ id }) => String(id));

  return {
    "WebhookService.ListWebhooks": nothing,
    "WebhookService.SearchWebhooks": nothing,
    "WebhookService.GetWebhook": about,
    "WebhookService.CreateWebhook": {
      request: async () => ({ process: 1, url: freshUrl() }),
      entries: (_, { webhook }) => ({ WEBHOOK_CREATED: [String(webhook.id)] }),
    },
    "WebhookService.UpdateWebhook": {
      request: async () => ({
        ...(await withSettings("requestSettings").request()),
        name: "Shop",
        url: freshUrl(),
        rateLimit: 7,
        paused: true,
        filter: 'user_id == "u"',
        circuitBreaker: { enabled: true },
      }),
      others: withSettings("requestSettings").others,
      entries: "WEBHOOK_UPDATED",
    },
    "WebhookService.DeleteWebhook": {
      ...about,
      entries: "WEBHOOK_DELETED",
      again: Code.NotFound,
      forApps: "accepted",
    },
    "WebhookService.ListProcesses": nothing,
    "WebhookService.SetWebhookRateLimit": {
      request: async () => ({ webhookId: await webhookId(), rateLimit: 7 }),
      entries: "WEBHOOK_UPDATED",
    },
    "WebhookService.PauseWebhook": { ...about, entries: "WEBHOOK_PAUSED" },
    "WebhookService.ResumeWebhook": {
      request: after(webhooks.pauseWebhook, about),
      entries: "WEBHOOK_RESUMED",
    },
    "WebhookService.SendTestEvent": {
      request: async () => ({ webhookId: await webhookId(), process: 2, payload: "{}" }),
      entries: "TEST_EVENT_SENT",
      again: "another",
    },
    "WebhookService.GetWebhookSecret": { ...about, entries: "WEBHOOK_SECRET_READ", again: "another" },
    "WebhookService.RotateWebhookSecret": { ...about, entries: "WEBHOOK_SECRET_ROTATED", again: "another" },
    "WebhookService.GetWebhookKeyPairs": about,
    "WebhookService.RotateWebhookKeyPair": { ...about, entries: "WEBHOOK_UPDATED", again: "another" },
    "WebhookService.DeleteWebhookKeyPairs": {
      request: after(webhooks.rotateWebhookKeyPair, about),
      entries: "WEBHOOK_UPDATED",
    },
    "WebhookService.GetWebhookRequestSettings": about,
    "WebhookService.SetWebhookRequestSettings": { ...withSettings("settings"), entries: "WEBHOOK_UPDATED" },
    "WebhookService.TryWebhookFilter": {
      request: async () => ({ webhookId: await webhookId(), filter: 'user_id == "u"' }),
    },
    "WebhookService.TryWebhookRequest": {
      ...withSettings("settings"),
      entries: "REQUEST_TRIED",
      again: "another",
    },
    "EventService.PublishEvent": {
      request: async () => orderEvent(),
      others: async () => ofAnyType(),
    },
    ...Object.fromEntries(
      ["EventService.PublishEvents", "EventService.PublishEventBatch"].map((name): [string, MethodCase] => [
        name,
        {
          request: async () => ({ events: [orderEvent()] }),
          others: async () => ofAnyType().map((event) => ({ events: [event] })),
        },
      ]),
    ),
    "EventService.ErasePayloads": {
      request: async () => ({ userId: (await published(await webhookId())).userId }),
      entries: () => ({ PAYLOADS_ERASED: [""] }),
      forApps: Code.PermissionDenied,
    },
    "ApiKeyService.CreateApiKey": {
      async request() {
        const installedApplicationId = await api.app();
        return { name: "new", permissions: [3], installedApplicationId, quotas: {} };
      },
      entries: (_, { apiKey }) => ({ API_KEY_CREATED: [apiKey.id] }),
      forApps: Code.PermissionDenied,
      again: "another",
      unknown: { installed_application_id: Code.InvalidArgument },
    },
    "ApiKeyService.ListApiKeys": nothing,
    "ApiKeyService.RenameApiKey": {
      request: async () => ({ apiKeyId: (await api.key()).id, name: "Renamed" }),
      entries: "API_KEY_RENAMED",
    },
    "ApiKeyService.SetApiKeyQuotas": {
      request: async () => ({ apiKeyId: (await api.key()).id, quotas: { webhooks: 3 } }),
      entries: "API_KEY_QUOTAS_CHANGED",
      forApps: Code.PermissionDenied,
      again: "another",
    },
    "ApiKeyService.RevokeApiKey": {
      async request() {
        const { id } = await api.key();
        return { apiKeyId: id, webhooks: { case: "transferToKeyId", value: (await api.key()).id } };
      },
      others: async () => [
        { apiKeyId: (await api.key()).id, webhooks: { case: "deleteWebhooks", value: {} } },
      ],
      entries: "API_KEY_REVOKED",
      again: Code.FailedPrecondition,
    },
    "ApiKeyService.RotateApiKey": { ...aboutKey, entries: "API_KEY_ROTATED", again: "another" },
    "ApiKeyService.DeleteApiKey": {
      request: after(({ apiKeyId }) => api.revoke(apiKeyId), aboutKey),
      entries: "API_KEY_DELETED",
      again: Code.NotFound,
    },
    "ApiKeyService.CreateInstalledApp": {
      request: async () => ({ name: "app" }),
      entries: (_, { installedApp }) => ({ INSTALLED_APP_CREATED: [installedApp.id] }),
      forApps: Code.PermissionDenied,
      again: "another",
    },
    "ApiKeyService.DeleteInstalledApp": {
      request: async () => ({ installedApplicationId: await api.app() }),
      entries: "INSTALLED_APP_DELETED",
      forApps: Code.PermissionDenied,
      again: Code.NotFound,
    },
    "ApiKeyService.ListInstalledApps": nothing,
    "DeliveryService.ListDeliveries": {
      ...filter,
      request: async () => ({ ...(await filter.request()), deliveryId: randomUUID() }),
    },
    "DeliveryService.SendAgain": {
      request: async () => ({ deliveryId: (await failed(await webhookId())).deliveryId }),
      entries: "DELIVERY_SENT_AGAIN",
      again: Code.FailedPrecondition,
    },
    "DeliveryService.SendAgainMany": {
      async request() {
        const id = await webhookId();
        return { webhookId: id, eventId: (await failed(id)).eventId, process: 1 };
      },
      entries: "DELIVERIES_SENT_AGAIN",
      unknown: filter.unknown,
    },
    "DeliveryService.GetDelivery": {
      request: async () => ({ deliveryId: (await published(await webhookId())).deliveryId }),
    },
    "DeliveryService.GetEvent": {
      request: async () => ({ eventId: (await published(await webhookId())).eventId }),
    },
    "DeliveryService.ListFailureReasons": filter,
    "DeliveryService.ExportDeliveries": {
      ...filter,
      request: async () => ({ ...(await filter.request()), from: HOUR_AGO, payloadText: "text" }),
    },
    "StatsService.GetOverview": nothing,
    "StatsService.WatchOverview": nothing,
    "StatsService.GetHistory": nothing,
    "StatsService.ListWebhookStats": nothing,
    "StatsService.GetWebhookStats": { ...about, unknown: { "webhook_id, deleted": "accepted" } },
    "StatsService.ListWebhookHistory": nothing,
    "StatsService.ListDispatchRuns": { ...nothing, forApps: Code.PermissionDenied },
    "StatsService.DispatchNow": {
      ...nothing,
      entries: () => ({ DISPATCH_REQUESTED: [""] }),
      forApps: Code.PermissionDenied,
      again: "another",
    },
    "AuditService.ListAuditEntries": {
      request: async () => ({ apiKeyId: (await api.key()).id, targetId: "4711" }),
      unknown: { api_key_id: "accepted" },
    },
    "AuditService.ExportAuditEntries": {
      request: async () => ({ apiKeyId: (await api.key()).id, targetId: "4711", format: 2 }),
      unknown: { api_key_id: "accepted" },
    },
    "ReplayService.StartReplay": {
      request: async () => ({
        idempotencyKey: randomUUID(),
        what: { case: "resend", value: { webhookId: await webhookId(), eventId: randomUUID(), process: 1 } },
      }),
      others: async () => [
        { what: { case: "backfill", value: { webhookId: await webhookId(), from: FROM_YEAR_2000 } } },
      ],
      entries: (_, { replay }) => ({ REPLAY_STARTED: [replay.id] }),
      unknown: { "resend.event_id": "accepted" },
    },
    "IncidentService.ListIncidents": {
      request: async () => ({ ...(await about.request()), host: "shop.example" }),
      unknown: { webhook_id: "accepted" },
    },
    "IncidentService.GetIncident": { request: async () => ({ incidentId: await incidentId() }) },
    "ReplayService.GetReplay": aboutReplay,
    "ReplayService.ListReplays": { ...about, unknown: { webhook_id: "accepted" } },
    "ReplayService.PauseReplay": { ...aboutReplay, entries: "REPLAY_PAUSED" },
    "ReplayService.ResumeReplay": {
      request: after(replays.pauseReplay, aboutReplay),
      entries: "REPLAY_RESUMED",
    },
    "ReplayService.CancelReplay": { ...aboutReplay, entries: "REPLAY_CANCELLED" },
    "EndpointService.CreateEndpoint": {
      request: async () => ({ processes: [1, 2], url: freshUrl(), name: "Shop" }),
      entries: (_, { endpoint }) => ({ ENDPOINT_CREATED: [endpoint.id], WEBHOOK_CREATED: idsOf(endpoint) }),
      again: Code.AlreadyExists,
    },
    "EndpointService.GetEndpoint": aboutEndpoint,
    "EndpointService.UpdateEndpoint": {
      async request() {
        return { target: { case: "endpointId", value: await endpointId() }, addProcesses: [3] };
      },
      others: async () => [{ target: { case: "webhookId", value: await webhookId() }, addProcesses: [2] }],
      entries: ({ target }, { endpoint }) => ({
        ENDPOINT_UPDATED: [target.value],
        WEBHOOK_CREATED: [idsOf(endpoint).at(-1) as string],
      }),
    },
    "EndpointService.DeleteEndpoint": {
      ...aboutEndpoint,
      entries: (request, answer) => ({
        ENDPOINT_DELETED: [request.endpointId],
        WEBHOOK_DELETED: idsOf(answer),
      }),
      again: Code.NotFound,
    },
    "EventTypeService.RegisterEventTypes": {
      request: async () => ({ fileDescriptorSet: fileDescriptorSet(), dryRun: false }),
      entries: (_, { revision }) => ({ EVENT_TYPES_REGISTERED: [String(revision)] }),
      forApps: Code.PermissionDenied,
    },
    "EventTypeService.ListEventTypes": nothing,
    "EventTypeService.DeprecateEventType": {
      request: async () => ({ eventType: { case: "process", value: (await registeredType()).process } }),
      others: async () => [{ eventType: { case: "name", value: (await registeredType()).name } }],
      entries: (_, { change }) => ({ EVENT_TYPE_DEPRECATED: [String(change.process)] }),
      forApps: Code.PermissionDenied,
    },
    "CustomerService.ListCustomers": { ...nothing, forApps: Code.PermissionDenied },
    "CustomerService.GetCustomer": aboutCustomer,
    "CustomerService.UpdateCustomer": {
      request: async () => ({
        customer: await customer(),
        displayName: "Shop",
        metadata: { entries: { plan: "gold" } },
        quotas: { webhooks: 7, eventsPerSecond: 8, pendingDeliveries: 9 },
      }),
      entries: "CUSTOMER_UPDATED",
      forApps: Code.PermissionDenied,
    },
    "CustomerService.PauseCustomer": { ...aboutCustomer, entries: "CUSTOMER_PAUSED" },
    "CustomerService.ResumeCustomer": {
      ...aboutCustomer,
      request: after(api.customers.pauseCustomer, aboutCustomer),
      entries: "CUSTOMER_RESUMED",
    },
    "CustomerService.EraseCustomer": { ...aboutCustomer, entries: "CUSTOMER_ERASED" },
  };
}
