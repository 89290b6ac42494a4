import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { STATES, type World } from "./isolated-world.ts";

/** Requests of one method: right ones about everything that is there, whoever's it is. */
type Requests = (world: World) => fc.Arbitrary<object>;

const none: Requests = () => fc.constant({});
const optional = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });

const webhookId = (world: World) => fc.constantFrom(...world.webhooks.map(({ id }) => id));
const deliveryId = (world: World) => fc.constantFrom(...world.webhooks.flatMap((each) => each.deliveryIds));
const eventId = (world: World) => fc.constantFrom(...world.webhooks.flatMap((each) => each.eventIds));
const keyId = (world: World) => fc.constantFrom(...world.keys.map(({ id }) => id));
const process = fc.constantFrom(1, 2);
const processes = fc.subarray([1, 2, 3]);
const endpointId = (world: World) =>
  fc.constantFrom(
    randomUUID(),
    ...world.webhooks.map((webhook) => webhook.endpointId).filter((id) => id !== null),
  );
const states = (from: number) => fc.subarray(STATES.map((_, index) => index + 1).slice(from));

const aboutWebhook: Requests = (world) => fc.record({ webhookId: webhookId(world) });
const aboutReplay: Requests = (world) =>
  fc.record({ replayId: fc.constantFrom(...world.webhooks.flatMap(({ replayIds }) => replayIds)) });
const aboutDelivery: Requests = (world) => fc.record({ deliveryId: deliveryId(world) });

/** Texts that people search for, whoever's they are; now and then one of nobody. */
const search = (world: World) =>
  fc.oneof(
    webhookId(world).map(String),
    deliveryId(world),
    eventId(world),
    fc.constantFrom(...world.webhooks.flatMap(({ searched }) => searched)),
    fc.constantFrom("receiver.example", "nobody"),
  );

/** Mostly of one restriction or none: those of several find little. */
const filter = (world: World) =>
  fc.oneof(
    fc.constant({}),
    fc.record({ webhookId: webhookId(world) }),
    fc.record({ eventId: eventId(world) }),
    fc.record({ process }),
    fc.record({ search: search(world) }),
    fc.record({ search: search(world), webhookId: webhookId(world) }),
    fc.record({ webhookId: webhookId(world), process }),
  );

const event = fc.record({
  idempotencyKey: fc.uuid(),
  userId: fc.constant("somebody"),
  data: fc.record({
    case: fc.constant("orderDispatched" as const),
    value: fc.constant({ orderId: 1n, orderNumber: "1", dispatchedAt: { seconds: 1n, nanos: 0 } }),
  }),
});

/** Right ones, and those of which a value is not stored. */
const requestSettings = fc.record({
  headers: fc.subarray([
    { name: "X-Tenant", value: "4711" },
    { name: "X-Kept", value: undefined },
  ]),
  authentication: fc.constantFrom(
    { case: undefined },
    { case: "bearer" as const, value: { token: "token" } },
    { case: "basic" as const, value: { username: "user", password: "password" } },
    {
      case: "oauth2" as const,
      value: { tokenUrl: "https://login.example/token", clientId: "id", clientSecret: "secret" },
    },
  ),
});

/** What is called, by service and method. A method without requests here fails the test. */
export const REQUESTS: Record<string, Requests> = {
  "WebhookService.ListWebhooks": none,
  "WebhookService.GetWebhook": aboutWebhook,
  "WebhookService.CreateWebhook": (world) =>
    fc.oneof(
      fc.constantFrom(...world.webhooks).map(({ process, url }) => ({ process, url })),
      fc.record({ process, url: fc.constant("https://receiver.example/new") }),
    ),
  "WebhookService.UpdateWebhook": (world) =>
    fc.record({
      webhookId: webhookId(world),
      revision: optional(fc.constantFrom(1n, 2n)),
      name: optional(fc.constantFrom("", "Shop")),
      url: optional(
        fc.oneof(
          fc.constantFrom(...world.webhooks.map(({ url }) => url)),
          fc.constant("https://receiver.example/moved"),
        ),
      ),
      rateLimit: optional(fc.integer({ min: 0, max: 100 })),
      paused: optional(fc.boolean()),
    }),
  "WebhookService.DeleteWebhook": aboutWebhook,
  "WebhookService.ListProcesses": none,
  "WebhookService.SetWebhookRateLimit": (world) =>
    fc.record({ webhookId: webhookId(world), rateLimit: optional(fc.integer({ min: 1, max: 100 })) }),
  "WebhookService.PauseWebhook": aboutWebhook,
  "WebhookService.ResumeWebhook": aboutWebhook,
  "WebhookService.SendTestEvent": (world) =>
    fc.record({
      webhookId: webhookId(world),
      process: optional(process),
      payload: optional(fc.constant('{"Test": 1}')),
    }),
  "WebhookService.GetWebhookSecret": aboutWebhook,
  "WebhookService.RotateWebhookSecret": (world) =>
    fc.record({ webhookId: webhookId(world), revokeOldSecrets: fc.boolean() }),
  "WebhookService.GetWebhookKeyPairs": aboutWebhook,
  "WebhookService.RotateWebhookKeyPair": (world) =>
    fc.record({ webhookId: webhookId(world), revokeOldKeyPairs: fc.boolean() }),
  "WebhookService.DeleteWebhookKeyPairs": aboutWebhook,
  "WebhookService.GetWebhookRequestSettings": aboutWebhook,
  "WebhookService.SetWebhookRequestSettings": (world) =>
    fc.record({ webhookId: webhookId(world), settings: optional(requestSettings) }),
  "WebhookService.TryWebhookFilter": (world) =>
    fc.record({ webhookId: webhookId(world), filter: fc.constantFrom('user_id == "u"', "event") }),
  "WebhookService.TryWebhookRequest": (world) =>
    fc.record({ webhookId: webhookId(world), settings: optional(requestSettings) }),
  "EndpointService.CreateEndpoint": (world) =>
    fc.record({
      processes: fc.subarray([1, 2, 3], { minLength: 1 }),
      url: fc.constantFrom("https://receiver.example/new", ...world.webhooks.map(({ url }) => url)),
      name: fc.constantFrom("", "Shop"),
    }),
  "EndpointService.GetEndpoint": (world) => fc.record({ endpointId: endpointId(world) }),
  "EndpointService.UpdateEndpoint": (world) =>
    fc.record({
      target: fc.oneof(
        fc.record({ case: fc.constant("endpointId"), value: endpointId(world) }),
        fc.record({ case: fc.constant("webhookId"), value: webhookId(world) }),
      ),
      addProcesses: processes,
      removeProcesses: processes,
    }),
  "EndpointService.DeleteEndpoint": (world) => fc.record({ endpointId: endpointId(world) }),
  "EventService.PublishEvent": () => event,
  "EventService.PublishEvents": () => fc.record({ events: fc.array(event, { minLength: 1, maxLength: 3 }) }),
  "EventService.PublishEventBatch": () =>
    fc.record({ events: fc.array(event, { minLength: 1, maxLength: 3 }) }),
  "EventService.ErasePayloads": () => fc.record({ userId: fc.constantFrom("u", "user-1") }),
  "ApiKeyService.CreateApiKey": ({ appA, appB }) =>
    fc.record({
      name: fc.constant("new"),
      permissions: fc.subarray([1, 2, 3, 4], { minLength: 1 }),
      allowedProcesses: fc.subarray([1, 2, 3]),
      installedApplicationId: optional(fc.constantFrom(appA.id, appB.id, randomUUID())),
      quotas: optional(fc.constant({ webhooks: 100_000 })),
    }),
  "ApiKeyService.ListApiKeys": none,
  "ApiKeyService.SetApiKeyQuotas": (world) =>
    fc.record({ apiKeyId: keyId(world), quotas: optional(fc.constant({ webhooks: 100_000 })) }),
  "ApiKeyService.RevokeApiKey": (world) =>
    fc.record({
      apiKeyId: keyId(world),
      webhooks: fc.oneof(
        fc.record({ case: fc.constant("transferToKeyId"), value: keyId(world) }),
        fc.constant({ case: "deleteWebhooks", value: {} }),
      ),
    }),
  "ApiKeyService.RotateApiKey": (world) =>
    fc.record({ apiKeyId: keyId(world), gracePeriod: optional(fc.constant({ seconds: 60n })) }),
  "ApiKeyService.DeleteApiKey": (world) => fc.record({ apiKeyId: keyId(world) }),
  "ApiKeyService.CreateInstalledApp": () => fc.constant({ name: "new" }),
  "ApiKeyService.DeleteInstalledApp": ({ appA, appB }) =>
    fc.record({ installedApplicationId: fc.constantFrom(appA.id, appB.id, randomUUID()) }),
  "ApiKeyService.ListInstalledApps": none,
  "DeliveryService.ListDeliveries": (world) =>
    fc
      .tuple(
        fc.oneof(filter(world), fc.record({ deliveryId: deliveryId(world) })),
        fc.record({ states: fc.oneof(fc.constant([]), states(0)), pageSize: fc.constantFrom(0, 3) }),
      )
      .map(([restriction, page]) => ({ ...restriction, ...page })),
  "DeliveryService.ExportDeliveries": (world) =>
    fc
      .tuple(
        filter(world),
        fc.record({
          states: fc.oneof(fc.constant([]), states(0)),
          format: fc.constantFrom(0, 1, 2),
          payloadText: fc.constantFrom("", "Order"),
          from: fc.constant({ seconds: 1n, nanos: 0 }),
        }),
      )
      .chain(([restriction, rest]) =>
        fc.boolean().map((any) => ({ ...restriction, ...rest, withPayload: any && rest.format !== 0 })),
      ),
  "DeliveryService.SendAgain": aboutDelivery,
  "DeliveryService.SendAgainMany": (world) =>
    fc.tuple(filter(world), states(3)).map(([restriction, final]) => ({ ...restriction, states: final })),
  "DeliveryService.GetDelivery": aboutDelivery,
  "DeliveryService.GetEvent": (world) => fc.record({ eventId: eventId(world) }),
  "DeliveryService.ListFailureReasons": filter,
  "StatsService.GetOverview": none,
  "StatsService.WatchOverview": none,
  "StatsService.GetHistory": () => fc.record({ buckets: fc.constantFrom(0, 3) }),
  "StatsService.ListWebhookStats": none,
  "StatsService.GetWebhookStats": (world) => fc.record({ webhookId: webhookId(world) }),
  "StatsService.ListWebhookHistory": (world) =>
    fc.record({
      webhookIds: fc.constant(world.webhooks.map(({ id }) => id)),
      hours: fc.constantFrom(0, 1, 24, 168),
    }),
  "StatsService.ListDispatchRuns": none,
  "StatsService.DispatchNow": none,
  "ReplayService.StartReplay": (world) =>
    fc.oneof(
      fc.tuple(filter(world), states(3)).map(([restriction, final]) => ({
        what: { case: "resend" as const, value: { ...restriction, states: final } },
      })),
      webhookId(world).map((id) => ({
        what: { case: "backfill" as const, value: { webhookId: id, from: { seconds: 1n, nanos: 0 } } },
      })),
    ),
  "ReplayService.GetReplay": aboutReplay,
  "ReplayService.ListReplays": (world) =>
    fc.record({ webhookId: optional(webhookId(world)), open: fc.boolean() }),
  "ReplayService.PauseReplay": aboutReplay,
  "ReplayService.ResumeReplay": aboutReplay,
  "ReplayService.CancelReplay": aboutReplay,
  "AuditService.ListAuditEntries": (world) =>
    fc.record({
      pageSize: fc.constantFrom(0, 3, 1_000),
      apiKeyId: optional(keyId(world)),
      targetId: optional(fc.oneof(webhookId(world).map(String), keyId(world), deliveryId(world))),
      actions: fc.subarray([1, 2, 3, 10, 11, 12, 13, 16, 19]),
    }),
};
