import { randomUUID } from "node:crypto";
import { type DescMethod, toJsonString } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel, timestampDate, timestampFromDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import {
  AuditAction,
  AuditActionSchema,
  type AuditEntry,
  AuditEntrySchema,
  AuditService,
} from "../../../../gen/webhook/v1/audit_pb.ts";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { type Endpoint, EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { ReplayService } from "../../../../gen/webhook/v1/replay_pb.ts";
import { SessionService } from "../../../../gen/webhook/v1/session_pb.ts";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { SERVICES } from "../../../../src/api/routes.ts";
import { deleteOldAuditEntries } from "../../../../src/db/audit/audit-log.ts";
import { count, rows } from "../../../../src/db/database.ts";
import { createAdminKey, ensureFirstAdmin } from "../../../../src/startup/first-admin.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let audit: Client<typeof AuditService>;
let webhooks: Client<typeof WebhookService>;
let keys: Client<typeof ApiKeyService>;
let replays: Client<typeof ReplayService>;
let endpoints: Client<typeof EndpointService>;
beforeAll(async () => {
  api = await startTestApi({
    dispatchNow: async () => {},
    tryRequest: async () => ({
      accepted: true,
      status: 200,
      error: null,
      responseStart: null,
      durationMs: 1,
    }),
  });
  audit = createClient(AuditService, grpc(api));
  webhooks = createClient(WebhookService, grpc(api));
  keys = createClient(ApiKeyService, grpc(api));
  replays = createClient(ReplayService, grpc(api));
  endpoints = createClient(EndpointService, grpc(api));
});
afterAll(() => api.stop());

const all = async () => (await audit.listAuditEntries({ pageSize: 1_000 })).entries;
const ofTarget = async (targetId: string) => (await audit.listAuditEntries({ targetId })).entries;
const nameOf = (action: AuditAction) => AuditActionSchema.value[action]?.localName;
const short = ({ action, changes }: AuditEntry) => [
  nameOf(action),
  Object.fromEntries(changes.map(({ field, before, after }) => [field, [before, after]])),
];

/** The entries that a call adds, oldest first. */
async function added(call: () => Promise<unknown>): Promise<AuditEntry[]> {
  const before = new Set((await all()).map(({ id }) => id));
  await call();
  return (await all()).filter(({ id }) => !before.has(id)).reverse();
}

/** A replay of everything that failed. */
async function startedReplay(): Promise<string> {
  const { replay } = await replays.startReplay({ what: { case: "resend", value: {} } });
  return replay?.id as string;
}

/** An endpoint for two event types, at an address of its own. */
async function newEndpoint(): Promise<Endpoint> {
  const url = `https://receiver.example/${randomUUID()}`;
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url });
  return endpoint as Endpoint;
}

/** A failed delivery of a webhook. */
async function failedDelivery(webhookId: bigint): Promise<string> {
  const { rows: made } = await api.context.db.raw("select new_event_id() as id");
  const eventId = made[0].id as string;
  await count(
    api.context.db,
    `insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
      values (:eventId::uuid, :keyId::uuid, :key, 1, 'erasable', now(), 1, '{}')`,
    { eventId, keyId: api.adminKeyId, key: randomUUID() },
  );
  const [id] = await storeDeliveries(api.context.db, [{ webhookId, eventId, state: "failed" }]);
  return id as string;
}

/** A call of each method that changes something, and the actions that it leaves. */
const CHANGES: Record<string, { call: () => Promise<unknown>; actions: AuditAction[] }> = {
  CreateWebhook: {
    call: () => webhooks.createWebhook({ process: 1, url: `https://receiver.example/${randomUUID()}` }),
    actions: [AuditAction.WEBHOOK_CREATED],
  },
  DeleteWebhook: {
    call: async () => webhooks.deleteWebhook({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_DELETED],
  },
  SetWebhookRateLimit: {
    call: async () => webhooks.setWebhookRateLimit({ webhookId: await api.register(), rateLimit: 7 }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_UPDATED],
  },
  UpdateWebhook: {
    call: async () => webhooks.updateWebhook({ webhookId: await api.register(), name: "Shop", rateLimit: 7 }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_UPDATED],
  },
  PauseWebhook: {
    call: async () => webhooks.pauseWebhook({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_PAUSED],
  },
  ResumeWebhook: {
    call: async () => {
      const webhookId = await api.register();
      await webhooks.pauseWebhook({ webhookId });
      await webhooks.resumeWebhook({ webhookId });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_PAUSED, AuditAction.WEBHOOK_RESUMED],
  },
  CreateEndpoint: {
    call: () => newEndpoint(),
    actions: [AuditAction.ENDPOINT_CREATED, AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_CREATED],
  },
  UpdateEndpoint: {
    call: async () => {
      const target = { case: "webhookId" as const, value: await api.register() };
      await endpoints.updateEndpoint({ target, addProcesses: [2] });
      await endpoints.updateEndpoint({ target, removeProcesses: [2] });
      // There is nothing left to change.
      await endpoints.updateEndpoint({ target, addProcesses: [1], removeProcesses: [2] });
    },
    actions: [
      AuditAction.WEBHOOK_CREATED,
      AuditAction.ENDPOINT_CREATED,
      AuditAction.WEBHOOK_UPDATED,
      AuditAction.WEBHOOK_CREATED,
      AuditAction.ENDPOINT_UPDATED,
      AuditAction.WEBHOOK_DELETED,
    ],
  },
  DeleteEndpoint: {
    call: async () => endpoints.deleteEndpoint({ endpointId: (await newEndpoint()).id }),
    actions: [
      AuditAction.ENDPOINT_CREATED,
      AuditAction.WEBHOOK_CREATED,
      AuditAction.WEBHOOK_CREATED,
      AuditAction.ENDPOINT_DELETED,
      AuditAction.WEBHOOK_DELETED,
      AuditAction.WEBHOOK_DELETED,
    ],
  },
  SendTestEvent: {
    call: async () => webhooks.sendTestEvent({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.TEST_EVENT_SENT],
  },
  GetWebhookSecret: {
    call: async () => webhooks.getWebhookSecret({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_SECRET_READ],
  },
  RotateWebhookSecret: {
    call: async () => webhooks.rotateWebhookSecret({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_SECRET_ROTATED],
  },
  RotateWebhookKeyPair: {
    call: async () => webhooks.rotateWebhookKeyPair({ webhookId: await api.register() }),
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_UPDATED],
  },
  DeleteWebhookKeyPairs: {
    call: async () => {
      const webhookId = await api.register();
      await webhooks.rotateWebhookKeyPair({ webhookId });
      await webhooks.deleteWebhookKeyPairs({ webhookId });
      // There is nothing left to delete.
      await webhooks.deleteWebhookKeyPairs({ webhookId });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_UPDATED, AuditAction.WEBHOOK_UPDATED],
  },
  SetWebhookRequestSettings: {
    call: async () => {
      const webhookId = await api.register();
      const settings = { headers: [{ name: "X-Tenant", value: "whk_a-value-like-a-key-1" }] };
      await webhooks.setWebhookRequestSettings({ webhookId, settings });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.WEBHOOK_UPDATED],
  },
  TryWebhookRequest: {
    call: async () => {
      const webhookId = await api.register();
      const settings = { headers: [{ name: "X-Tenant", value: "whk_a-value-like-a-key-2" }] };
      await webhooks.tryWebhookRequest({ webhookId, settings });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.REQUEST_TRIED],
  },
  SendAgain: {
    call: async () => {
      const deliveryId = await failedDelivery(await api.register());
      await createClient(DeliveryService, grpc(api)).sendAgain({ deliveryId });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.DELIVERY_SENT_AGAIN],
  },
  SendAgainMany: {
    call: async () => {
      const webhookId = await api.register();
      await failedDelivery(webhookId);
      await failedDelivery(webhookId);
      await createClient(DeliveryService, grpc(api)).sendAgainMany({ webhookId });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.DELIVERIES_SENT_AGAIN],
  },
  StartReplay: {
    call: async () => {
      const webhookId = await api.register();
      const request = {
        idempotencyKey: randomUUID(),
        what: { case: "resend" as const, value: { webhookId } },
      };
      await replays.startReplay(request);
      await replays.startReplay(request);
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.REPLAY_STARTED],
  },
  PauseReplay: {
    call: async () => {
      const replayId = await startedReplay();
      await replays.pauseReplay({ replayId });
      await replays.pauseReplay({ replayId });
    },
    actions: [AuditAction.REPLAY_STARTED, AuditAction.REPLAY_PAUSED],
  },
  ResumeReplay: {
    call: async () => {
      const replayId = await startedReplay();
      await replays.pauseReplay({ replayId });
      await replays.resumeReplay({ replayId });
    },
    actions: [AuditAction.REPLAY_STARTED, AuditAction.REPLAY_PAUSED, AuditAction.REPLAY_RESUMED],
  },
  CancelReplay: {
    call: async () => replays.cancelReplay({ replayId: await startedReplay() }),
    actions: [AuditAction.REPLAY_STARTED, AuditAction.REPLAY_CANCELLED],
  },
  ErasePayloads: {
    call: async () => {
      await failedDelivery(await api.register());
      await createClient(EventService, grpc(api)).erasePayloads({ userId: "erasable" });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.PAYLOADS_ERASED],
  },
  CreateApiKey: {
    call: () => keys.createApiKey({ name: "new", permissions: [Permission.PUBLISH_EVENTS] }),
    actions: [AuditAction.API_KEY_CREATED],
  },
  RotateApiKey: {
    call: async () => keys.rotateApiKey({ apiKeyId: (await api.key()).id }),
    actions: [AuditAction.API_KEY_ROTATED],
  },
  SetApiKeyQuotas: {
    call: async () => keys.setApiKeyQuotas({ apiKeyId: (await api.key()).id, quotas: { webhooks: 3 } }),
    actions: [AuditAction.API_KEY_QUOTAS_CHANGED],
  },
  RevokeApiKey: {
    call: async () => {
      const { id, secret } = await api.key();
      const url = `https://receiver.example/${randomUUID()}`;
      await createClient(WebhookService, grpc(api, secret)).createWebhook({ process: 1, url });
      await keys.revokeApiKey({
        apiKeyId: id,
        webhooks: { case: "transferToKeyId", value: api.adminKeyId },
      });
    },
    actions: [AuditAction.WEBHOOK_CREATED, AuditAction.API_KEY_REVOKED, AuditAction.WEBHOOK_TRANSFERRED],
  },
  DeleteApiKey: {
    call: async () => {
      const { id, secret } = await api.key();
      const url = `https://receiver.example/${randomUUID()}`;
      await createClient(WebhookService, grpc(api, secret)).createWebhook({ process: 1, url });
      await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
      await keys.deleteApiKey({ apiKeyId: id });
    },
    actions: [
      AuditAction.WEBHOOK_CREATED,
      AuditAction.API_KEY_REVOKED,
      AuditAction.WEBHOOK_DELETED,
      AuditAction.API_KEY_DELETED,
    ],
  },
  CreateInstalledApp: {
    call: () => keys.createInstalledApp({ name: "app" }),
    actions: [AuditAction.INSTALLED_APP_CREATED],
  },
  DeleteInstalledApp: {
    call: async () => {
      const { installedApp } = await keys.createInstalledApp({ name: "app" });
      await keys.deleteInstalledApp({ installedApplicationId: installedApp?.id as string });
    },
    actions: [AuditAction.INSTALLED_APP_CREATED, AuditAction.INSTALLED_APP_DELETED],
  },
  DispatchNow: {
    call: () => createClient(StatsService, grpc(api)).dispatchNow({}),
    actions: [AuditAction.DISPATCH_REQUESTED],
  },
};

/** Events are the service's traffic, not changes of it; watching changes nothing. */
const NOT_AUDITED = ["PublishEvent", "PublishEvents", "PublishEventBatch", "WatchOverview"];

test("every method that changes something or reads a secret is known here", () => {
  const changing = (method: DescMethod) =>
    method.idempotency !== MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS ||
    method.name === "GetWebhookSecret";
  const methods = SERVICES.flatMap((service) => service.methods.filter(changing)).map(({ name }) => name);
  expect([...Object.keys(CHANGES), ...NOT_AUDITED].sort()).toEqual(methods.sort());
});

test.each(Object.keys(CHANGES))("%s leaves an entry with its caller, and never a secret", async (name) => {
  const { call, actions } = CHANGES[name] as (typeof CHANGES)[string];
  const entries = await added(call);
  // The order within a transaction is that of the ids, which have the same millisecond.
  expect(entries.map(({ action }) => action).sort()).toEqual(actions.toSorted());
  for (const entry of entries) {
    expect(entry.byOperator).toBe(false);
    expect(entry.actor?.apiKeyName).toMatch(/^(admin|test)$/);
    expect(entry.actor?.address).toBe("127.0.0.1");
    expect(Math.abs(timestampDate(entry.time as never).getTime() - Date.now())).toBeLessThan(60_000);
    expect(toJsonString(AuditEntrySchema, entry)).not.toMatch(/whsec_|whk_[\w-]{9}/);
  }
});

test("an entry says what was before and what is after", async () => {
  const webhookId = await api.register();
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 7 });
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 9 });
  await webhooks.setWebhookRateLimit({ webhookId });
  const entries = await ofTarget(String(webhookId));
  expect(entries.map(short).reverse().slice(1)).toEqual([
    ["WEBHOOK_UPDATED", { rate_limit: [undefined, "7"] }],
    ["WEBHOOK_UPDATED", { rate_limit: ["7", "9"] }],
    ["WEBHOOK_UPDATED", { rate_limit: ["9", undefined] }],
  ]);
  expect(entries[0]).toMatchObject({ webhookProcess: 1, targetName: expect.stringContaining("https://") });
});

test("a change of an endpoint's settings leaves an entry for each of its webhooks, one of its event types names them", async () => {
  const { id, webhooks: made } = await newEndpoint();
  const webhookId = made[0]?.id as bigint;
  const entries = await added(async () => {
    await webhooks.updateWebhook({ webhookId, rateLimit: 7, filter: 'user_id == "u"' });
    await webhooks.rotateWebhookSecret({ webhookId });
  });
  expect(entries.map((entry) => [entry.targetId, ...short(entry)])).toEqual([
    [
      String(webhookId),
      "WEBHOOK_UPDATED",
      { rate_limit: [undefined, "7"], filter: [undefined, 'user_id == "u"'] },
    ],
    [String(made[1]?.id), "WEBHOOK_UPDATED", { rate_limit: [undefined, "7"] }],
    [String(webhookId), "WEBHOOK_SECRET_ROTATED", { old_secrets_revoked: [undefined, "false"] }],
    [String(made[1]?.id), "WEBHOOK_SECRET_ROTATED", { old_secrets_revoked: [undefined, "false"] }],
  ]);
  const target = { case: "endpointId" as const, value: id };
  await endpoints.updateEndpoint({ target, addProcesses: [3], removeProcesses: [1] });
  const [entry] = await ofTarget(id.toUpperCase());
  expect(entry && [...short(entry), entry.webhookProcess, entry.targetName]).toEqual([
    "ENDPOINT_UPDATED",
    {
      webhook_processes: ["OrderDispatched, DocumentCreated", "DocumentCreated, StockLevelChanged"],
    },
    0,
    made[0]?.url,
  ]);
});

test("a call that changes nothing, or that is refused, leaves no entry", async () => {
  const webhookId = await api.register();
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const { Url: url } = envelope.Data.find(({ Id }: { Id: number }) => BigInt(Id) === webhookId);
  await webhooks.pauseWebhook({ webhookId });
  const entries = await added(async () => {
    await webhooks.pauseWebhook({ webhookId });
    await webhooks.setWebhookRateLimit({ webhookId });
    await webhooks.createWebhook({ process: 1, url });
    await failure(webhooks.deleteWebhook({ webhookId: 4_711n }));
    await failure(webhooks.sendTestEvent({ webhookId: 4_711n }));
    await failure(keys.deleteApiKey({ apiKeyId: api.adminKeyId }));
    await createClient(EventService, grpc(api)).erasePayloads({ userId: "nobody" });
  });
  expect(entries).toEqual([]);
});

test("§4: what REST creates and deletes is audited like every other call", async () => {
  const key = await api.key({ name: "Shop" });
  const entries = await added(async () => {
    const created = await api.rest("POST", "/api/webhook", {
      key: key.secret,
      json: { process: 2, url: "https://receiver.example/audited" },
    });
    const webhookId = String(created.envelope.Data.Id);
    await api.rest("DELETE", "/api/webhook", { key: key.secret, query: { webhookId } });
  });
  expect(entries.map(short)).toEqual([
    [
      "WEBHOOK_CREATED",
      {
        name: [undefined, undefined],
        url: [undefined, "https://receiver.example/audited"],
        webhook_process: [undefined, "DocumentCreated"],
        api_key_id: [undefined, key.id],
        rate_limit: [undefined, undefined],
        paused: [undefined, undefined],
      },
    ],
    ["WEBHOOK_DELETED", expect.objectContaining({ url: ["https://receiver.example/audited", undefined] })],
  ]);
  for (const { actor } of entries) {
    expect(actor).toMatchObject({ apiKeyId: key.id, apiKeyName: "Shop" });
    expect(actor?.address).toMatch(/^(127\.0\.0\.1|::1)$/);
    expect(actor?.sessionId).toBeUndefined();
  }
});

test("a change on the settings page names the session, which the database can find and nobody can use", async () => {
  const origin = api.url;
  const signIn = await fetch(`${origin}/${SessionService.typeName}/SignIn`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Settings-Page": "1", Origin: origin },
    body: JSON.stringify({ apiKey: api.adminKey }),
  });
  const cookie = signIn.headers.get("Set-Cookie")?.split(";")[0] as string;
  const browser = createConnectTransport({
    baseUrl: origin,
    httpVersion: "1.1",
    interceptors: [
      (next) => (request) => {
        request.header.set("Cookie", cookie);
        request.header.set("X-Settings-Page", "1");
        request.header.set("Origin", origin);
        return next(request);
      },
    ],
  });
  const [entry] = await added(() =>
    createClient(ApiKeyService, browser).createInstalledApp({ name: "by page" }),
  );
  const sessionId = entry?.actor?.sessionId as string;
  expect(sessionId).toMatch(/^[0-9a-f]{16}$/);
  expect(cookie).not.toContain(sessionId);
  const found = await rows(
    api.context.db,
    "select 1 from sessions where encode(token_sha256, 'hex') like :prefix",
    { prefix: `${sessionId}%` },
  );
  expect(found).toHaveLength(1);
});

test("keys that the operator makes are entries without a key", async () => {
  const { db } = api.context;
  const config = { adminKey: "chosen-by-an-operator-4711-4711-4711", dataDir: "", database: {} as never };
  const made = await added(async () => {
    await createAdminKey(db, "by hand");
    await ensureFirstAdmin(db, config);
    await ensureFirstAdmin(db, config);
    await db("api_keys").where("prefix", "chos").update({ revoked: new Date() });
    await ensureFirstAdmin(db, config);
  });
  expect(made.map(({ action, byOperator, actor }) => [nameOf(action), byOperator, actor])).toEqual([
    ["API_KEY_CREATED", true, undefined],
    ["API_KEY_CREATED", true, undefined],
    ["API_KEY_RESTORED", true, undefined],
  ]);
  expect(short(made[2] as AuditEntry)[1]).toEqual({ revoked: ["true", "false"] });
});

test("an entry is written with its change or not at all", async () => {
  const { db } = api.context;
  await db.raw("alter table audit_log add constraint refuses check (action <> 'webhook_created') not valid");
  try {
    const url = "https://receiver.example/not-without-its-entry";
    expect((await failure(webhooks.createWebhook({ process: 1, url })))?.code).toBe(Code.Internal);
    const { webhooks: listed } = await webhooks.listWebhooks({});
    expect(listed.filter((webhook) => webhook.url === url)).toEqual([]);
  } finally {
    await db.raw("alter table audit_log drop constraint refuses");
  }
});

describe("the list", () => {
  test("has pages, newest first", async () => {
    const entries = await all();
    const read: string[] = [];
    for (let pageToken = ""; ; ) {
      const page = await audit.listAuditEntries({ pageSize: 7, pageToken });
      read.push(...page.entries.map(({ id }) => id));
      pageToken = page.nextPageToken;
      if (pageToken === "") break;
    }
    expect(read).toEqual(entries.map(({ id }) => id));
    expect(read).toEqual(read.toSorted().reverse());
    expect(read.length).toBeGreaterThan(20);
  });

  test("can be restricted to actions, a key, what was changed, and a time", async () => {
    const key = await api.key({ name: "filtered" });
    const client = createClient(WebhookService, grpc(api, key.secret));
    const { webhook } = await client.createWebhook({ process: 1, url: "https://receiver.example/filtered" });
    const webhookId = webhook?.id as bigint;
    await client.pauseWebhook({ webhookId });
    await webhooks.resumeWebhook({ webhookId });
    const actions = async (filter: Parameters<typeof audit.listAuditEntries>[0]) =>
      (await audit.listAuditEntries(filter)).entries.map(({ action }) => nameOf(action));
    expect(await actions({ apiKeyId: key.id })).toEqual(["WEBHOOK_PAUSED", "WEBHOOK_CREATED"]);
    expect(await actions({ targetId: String(webhookId) })).toEqual([
      "WEBHOOK_RESUMED",
      "WEBHOOK_PAUSED",
      "WEBHOOK_CREATED",
    ]);
    const filter = { apiKeyId: key.id, actions: [AuditAction.WEBHOOK_CREATED] };
    expect(await actions(filter)).toEqual(["WEBHOOK_CREATED"]);
    const at = (await audit.listAuditEntries(filter)).entries[0]?.time as never;
    const next = timestampFromDate(new Date(timestampDate(at).getTime() + 1));
    expect(await actions({ ...filter, from: at, to: next })).toEqual(["WEBHOOK_CREATED"]);
    expect(await actions({ ...filter, to: at })).toEqual([]);
    expect(await actions({ ...filter, from: next })).toEqual([]);
  });

  test("refuses what it does not know, and names what is allowed", async () => {
    const refusals = [
      await failure(audit.listAuditEntries({ pageSize: 1_001 })),
      await failure(audit.listAuditEntries({ pageToken: "no token" })),
      await failure(audit.listAuditEntries({ apiKeyId: "no key" })),
      await failure(audit.listAuditEntries({ actions: [4_711 as AuditAction] })),
    ];
    expect(refusals.map((refused) => [refused?.code, refused?.rawMessage])).toEqual([
      [Code.InvalidArgument, expect.stringContaining("page_size must be from 1 to 1000")],
      [Code.InvalidArgument, expect.stringContaining("page_token must be")],
      [Code.InvalidArgument, expect.stringContaining("api_key_id must be")],
      [Code.InvalidArgument, expect.stringContaining("1 (AUDIT_ACTION_WEBHOOK_CREATED)")],
    ]);
  });

  test("needs the permission that lists keys", async () => {
    for (const permissions of [ONLY.read, ONLY.write, ONLY.publish]) {
      const { secret } = await api.key({ permissions });
      const client = createClient(AuditService, grpc(api, secret));
      expect((await failure(client.listAuditEntries({})))?.code).toBe(Code.PermissionDenied);
    }
  });

  test("shows a key of an app the entries of its app, without keys outside the app", async () => {
    const { installedApp } = await keys.createInstalledApp({ name: "own" });
    const installedAppId = installedApp?.id as string;
    const key = await api.key({ name: "of the app", installedAppId });
    const client = createClient(WebhookService, grpc(api, key.secret));
    const { webhook } = await client.createWebhook({ process: 1, url: "https://receiver.example/own" });
    await webhooks.pauseWebhook({ webhookId: webhook?.id as bigint });
    const { entries } = await createClient(AuditService, grpc(api, key.secret)).listAuditEntries({});
    expect(
      entries.map(({ action, actor, byOperator }) => [nameOf(action), actor?.apiKeyName, byOperator]),
    ).toEqual([
      ["WEBHOOK_PAUSED", undefined, false],
      ["WEBHOOK_CREATED", "of the app", false],
      ["INSTALLED_APP_CREATED", undefined, false],
    ]);
    const byAdmin = await createClient(AuditService, grpc(api, key.secret)).listAuditEntries({
      apiKeyId: api.adminKeyId,
    });
    expect(byAdmin.entries).toEqual([]);
  });
});

describe("the table", () => {
  test("is append-only, also for the service's own role", async () => {
    const { db } = api.context;
    await api.register();
    for (const statement of [
      "update audit_log set action = 'webhook_paused'",
      "delete from audit_log",
      "truncate audit_log",
      // Even a transaction that names the retention deletes nothing of the last seven days.
      "select set_config('webhook_service.audit_retention_days', '0', false); delete from audit_log",
      "set session_replication_role = replica; delete from audit_log",
    ]) {
      const before = (await all()).length;
      await expect(
        db.transaction((trx) => trx.raw(statement)),
        statement,
      ).rejects.toMatchObject({
        code: "42501",
      });
      expect((await all()).length).toBe(before);
    }
  });

  test("loses what is older than the retention, and nothing else", async () => {
    const { db } = api.context;
    const age = (days: number) =>
      count(
        db,
        `insert into audit_log (id, action, target_id, written)
          values (overlay(new_event_id()::text placing '0000000' from 1 for 7)::uuid, 'webhook_paused', :target,
            now() - make_interval(days => :days::int))`,
        { days, target: `aged ${days}` },
      );
    for (const days of [29, 31, 400]) await age(days);
    const aged = async () =>
      (
        await rows<{ target: string }>(
          db,
          "select target_id as target from audit_log where target_id like 'aged%' order by written",
        )
      ).map(({ target }) => target);
    const others = (await all()).filter(({ targetId }) => !targetId.startsWith("aged")).length;
    expect(await deleteOldAuditEntries(db, 30)).toBe(2);
    expect(await aged()).toEqual(["aged 29"]);
    expect(await deleteOldAuditEntries(db, 30)).toBe(0);
    expect((await all()).filter(({ targetId }) => !targetId.startsWith("aged")).length).toBe(others);
  });
});
