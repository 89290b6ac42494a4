import { randomUUID } from "node:crypto";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { AuditAction, AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { type Endpoint, EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let endpoints: Client<typeof EndpointService>;
let webhooks: Client<typeof WebhookService>;
beforeAll(async () => {
  api = await startTestApi({ limits: { maxWebhooks: 200 } });
  endpoints = createClient(EndpointService, grpc(api));
  webhooks = createClient(WebhookService, grpc(api));
});
afterAll(() => api.stop());

const freshUrl = () => `https://receiver.example/${randomUUID()}`;
const ofEndpoint = (endpointId: string) => ({ case: "endpointId" as const, value: endpointId });
const ofWebhook = (webhookId: bigint) => ({ case: "webhookId" as const, value: webhookId });
const types = (endpoint: Endpoint | undefined) =>
  endpoint?.webhooks.map(({ webhookProcess }) => webhookProcess);

async function created(processes: WebhookProcess[], url = freshUrl()): Promise<Endpoint> {
  const { endpoint } = await endpoints.createEndpoint({ processes, url, name: "Shop" });
  return endpoint as Endpoint;
}

async function secretOf(webhookId: bigint): Promise<string> {
  return (await webhooks.getWebhookSecret({ webhookId })).secret;
}

/** A webhook as REST lists it. */
async function restWebhook(id: bigint) {
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  return envelope.Data.find(({ Id }: { Id: number }) => BigInt(Id) === id);
}

describe("an endpoint", () => {
  test("is created for several event types, which share its secret, and is found by each of its webhooks", async () => {
    const endpoint = await created([2, 1]);
    expect(types(endpoint)).toEqual([1, 2]);
    const [first, second] = endpoint.webhooks;
    expect([first?.endpointId, second?.endpointId, first?.name]).toEqual([endpoint.id, endpoint.id, "Shop"]);
    expect(await secretOf(first?.id as bigint)).toBe(await secretOf(second?.id as bigint));
    const { webhook } = await webhooks.getWebhook({ webhookId: second?.id as bigint });
    const found = await endpoints.getEndpoint({ endpointId: webhook?.endpointId as string });
    expect(found.endpoint).toEqual(endpoint);
  });

  test("works over Connect with JSON, event types by name", async () => {
    const url = freshUrl();
    const processes = ["WEBHOOK_PROCESS_ORDER_DISPATCHED", "WEBHOOK_PROCESS_DOCUMENT_CREATED"];
    const response = await fetch(`${api.url}/webhook.v1.EndpointService/CreateEndpoint`, {
      method: "POST",
      headers: { "X-Service-Key": api.adminKey, "Content-Type": "application/json" },
      body: JSON.stringify({ processes, url }),
    });
    const answer = (await response.json()) as { endpoint: { webhooks: Record<string, string>[] } };
    expect(answer.endpoint.webhooks.map((webhook) => [webhook.url, webhook.webhookProcess])).toEqual(
      processes.map((process) => [url, process]),
    );
  });

  test("§2.1, §4.1, §4.3: REST lists each event type as a webhook with the six fields, and deletes one of them only", async () => {
    const { id, webhooks: made } = await created([1, 2]);
    const [first, second] = made.map((webhook) => webhook.id) as [bigint, bigint];
    expect(await restWebhook(first)).toEqual({
      Id: Number(first),
      Created: expect.any(String),
      Modified: expect.any(String),
      WebhookProcess: "OrderDispatched",
      Url: made[0]?.url,
      Application: null,
    });
    const deleted = await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(first) } });
    expect(deleted.envelope).toMatchObject({ Success: true, Data: { Id: Number(first) } });
    expect([await restWebhook(first), (await restWebhook(second))?.Id]).toEqual([undefined, Number(second)]);
    expect(types((await endpoints.getEndpoint({ endpointId: id })).endpoint)).toEqual([2]);
    await api.rest("DELETE", "/api/webhook", { query: { webhookId: String(second) } });
    const gone = await failure(endpoints.getEndpoint({ endpointId: id }));
    expect([gone?.code, gone?.rawMessage]).toEqual([Code.NotFound, expect.stringContaining(id)]);
  });

  test("§4.2.1: REST returns an event type of an endpoint unchanged, and registers another one without an endpoint", async () => {
    const { webhooks: made } = await created([1]);
    const [webhook] = made;
    const existing = await api.rest("POST", "/api/webhook", { json: { process: 1, url: webhook?.url } });
    expect(BigInt(existing.envelope.Data.Id)).toBe(webhook?.id);
    const other = await api.rest("POST", "/api/webhook", { json: { process: 2, url: webhook?.url } });
    const webhookId = BigInt(other.envelope.Data.Id);
    expect((await webhooks.getWebhook({ webhookId })).webhook?.endpointId).toBeUndefined();
    expect(await secretOf(webhookId)).not.toBe(await secretOf(webhook?.id as bigint));
  });

  test("is refused if a webhook has one of its event types and its URL, in any spelling; the error names the webhook", async () => {
    const webhookId = await api.register();
    const { Url: url } = await restWebhook(webhookId);
    const refused = await failure(
      endpoints.createEndpoint({
        processes: [1, 2],
        url: url.replace("receiver.example", "RECEIVER.example:443"),
      }),
    );
    expect(refused?.code).toBe(Code.AlreadyExists);
    expect(refused?.rawMessage).toContain(`OrderDispatched (webhook ${webhookId})`);
    // Nothing was made of it.
    const { envelope } = await api.rest("GET", "/api/webhook/list");
    expect(envelope.Data.filter((each: { Url: string }) => each.Url.endsWith(url.slice(-36)))).toHaveLength(
      1,
    );
  });

  test("needs event types that exist and that the key may subscribe to, and an allowed URL", async () => {
    const refuse = async (request: Parameters<typeof endpoints.createEndpoint>[0]) =>
      (await failure(endpoints.createEndpoint(request)))?.rawMessage;
    expect(await refuse({ url: freshUrl() })).toContain(
      "processes is required and must not be empty; allowed: WEBHOOK_PROCESS_ORDER_DISPATCHED, ",
    );
    expect(await refuse({ processes: [1, 99 as WebhookProcess], url: freshUrl() })).toContain(
      "99 is not an event type",
    );
    expect(await refuse({ processes: [1], url: "http://receiver.example/" })).toContain("https://");
    expect(await refuse({ processes: [1], url: freshUrl(), name: "x".repeat(101) })).toContain("100");
    const narrow = await api.key({ allowedProcesses: [1] });
    const narrowly = createClient(EndpointService, grpc(api, narrow.secret));
    const refused = await failure(narrowly.createEndpoint({ processes: [1, 2], url: freshUrl() }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.PermissionDenied,
      expect.stringContaining("may not subscribe to DocumentCreated"),
    ]);
    const reader = createClient(
      EndpointService,
      grpc(api, (await api.key({ permissions: ONLY.read })).secret),
    );
    const { id } = await created([1]);
    expect(types((await reader.getEndpoint({ endpointId: id })).endpoint)).toEqual([1]);
    for (const call of [
      () => reader.createEndpoint({ processes: [1], url: freshUrl() }),
      () => reader.updateEndpoint({ target: ofEndpoint(id), addProcesses: [2] }),
      () => reader.deleteEndpoint({ endpointId: id }),
    ]) {
      expect((await failure(call()))?.code).toBe(Code.PermissionDenied);
    }
  });

  test("is deleted with all of its webhooks, once", async () => {
    const { id } = await created([1, 2, 3]);
    const deleted = await endpoints.deleteEndpoint({ endpointId: id });
    expect(deleted.webhooks.map(({ webhookProcess }) => webhookProcess)).toEqual([1, 2, 3]);
    for (const { id: webhookId } of deleted.webhooks) expect(await restWebhook(webhookId)).toBeUndefined();
    for (const call of [
      () => endpoints.deleteEndpoint({ endpointId: id }),
      () => endpoints.updateEndpoint({ target: ofEndpoint(id), addProcesses: [1] }),
      () => endpoints.getEndpoint({ endpointId: randomUUID() }),
    ]) {
      expect((await failure(call()))?.code).toBe(Code.NotFound);
    }
    expect((await failure(endpoints.getEndpoint({ endpointId: "12" })))?.rawMessage).toContain(
      "endpoint_id must be the id of an endpoint, a UUID",
    );
  });
});

test("deleting an endpoint by its id in upper case leaves an audit entry that its id finds", async () => {
  const { id } = await created([1, 2]);
  await endpoints.deleteEndpoint({ endpointId: id.toUpperCase() });
  const { entries } = await createClient(AuditService, grpc(api)).listAuditEntries({ targetId: id });
  expect(entries.map(({ action }) => action)).toEqual([
    AuditAction.ENDPOINT_DELETED,
    AuditAction.ENDPOINT_CREATED,
  ]);
});

describe("the event types of an endpoint", () => {
  test("are added and removed; what is added shares secret and settings", async () => {
    const { id, webhooks: made } = await created([1, 2]);
    const [first] = made.map((webhook) => webhook.id) as [bigint];
    await webhooks.updateWebhook({ webhookId: first, rateLimit: 5, paused: true });
    const { endpoint } = await endpoints.updateEndpoint({
      target: ofEndpoint(id),
      addProcesses: [3, 1],
      removeProcesses: [2, 10001],
    });
    expect(types(endpoint)).toEqual([1, 3]);
    const added = endpoint?.webhooks[1];
    expect(added).toMatchObject({ endpointId: id, rateLimit: 5, name: "Shop", url: made[0]?.url });
    expect(added?.paused).toBeDefined();
    expect(await secretOf(added?.id as bigint)).toBe(await secretOf(first));
    expect(await restWebhook(made[1]?.id as bigint)).toBeUndefined();
  });

  test("are added to a webhook of REST, which becomes an endpoint and keeps its id and its secret", async () => {
    const webhookId = await api.register();
    const [before, secret] = [await restWebhook(webhookId), await secretOf(webhookId)];
    const { endpoint } = await endpoints.updateEndpoint({ target: ofWebhook(webhookId), addProcesses: [2] });
    expect(types(endpoint)).toEqual([1, 2]);
    expect(await restWebhook(webhookId)).toEqual({ ...before, Modified: expect.any(String) });
    expect(await secretOf(endpoint?.webhooks[1]?.id as bigint)).toBe(secret);
    // By whichever of its webhooks.
    const target = ofWebhook(endpoint?.webhooks[1]?.id as bigint);
    const again = await endpoints.updateEndpoint({ target, addProcesses: [3] });
    expect([again.endpoint?.id, types(again.endpoint)]).toEqual([endpoint?.id, [1, 2, 3]]);
  });

  test("belong to the key and the app of the others, whoever adds them, within that key's quota and event types", async () => {
    const keys = createClient(ApiKeyService, grpc(api));
    const { installedApp } = await keys.createInstalledApp({ name: "Shop" });
    const owner = await api.key({
      installedAppId: installedApp?.id as string,
      allowedProcesses: [1, 2],
      quotas: { webhookQuota: 2, eventsPerSecond: null },
      name: "Shop key",
    });
    const url = freshUrl();
    const { webhook } = await createClient(WebhookService, grpc(api, owner.secret)).createWebhook({
      process: 1,
      url,
    });
    const target = ofWebhook(webhook?.id as bigint);
    const { endpoint } = await endpoints.updateEndpoint({ target, addProcesses: [2] });
    expect(endpoint?.webhooks[1]).toMatchObject({ apiKeyId: owner.id, application: installedApp?.id });
    const refused = await failure(endpoints.updateEndpoint({ target, addProcesses: [3] }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.PermissionDenied,
      expect.stringContaining("“Shop key” that owns the endpoint may not subscribe to StockLevelChanged"),
    ]);
    await keys.setApiKeyQuotas({ apiKeyId: owner.id, quotas: { webhooks: 1 } });
    await webhooks.deleteWebhook({ webhookId: endpoint?.webhooks[1]?.id as bigint });
    const full = await failure(endpoints.updateEndpoint({ target, addProcesses: [2] }));
    expect([full?.code, full?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("may own 1 webhooks, and would own 2"),
    ]);
    // The webhooks go with the endpoint's key.
    await keys.setApiKeyQuotas({ apiKeyId: owner.id });
    await endpoints.updateEndpoint({ target, addProcesses: [2] });
    const fate = { case: "transferToKeyId", value: api.adminKeyId } as const;
    expect(await keys.revokeApiKey({ apiKeyId: owner.id, webhooks: fate })).toMatchObject({
      webhooksTransferred: 2,
    });
    const later = await endpoints.updateEndpoint({ target, addProcesses: [3] });
    expect(later.endpoint?.webhooks.map(({ apiKeyId }) => apiKeyId)).toEqual(Array(3).fill(api.adminKeyId));
    expect(later.endpoint?.webhooks[2]?.application).toBe(installedApp?.id);
    await keys.deleteApiKey({ apiKeyId: owner.id });
    expect(types((await endpoints.getEndpoint({ endpointId: endpoint?.id as string })).endpoint)).toEqual([
      1, 2, 3,
    ]);
  });

  test("are refused in unclear requests, and beyond MAX_WEBHOOKS", async () => {
    const { id } = await created([1, 2]);
    const refuse = async (request: Parameters<typeof endpoints.updateEndpoint>[0]) =>
      failure(endpoints.updateEndpoint(request));
    const target = ofEndpoint(id);
    expect((await refuse({ addProcesses: [3] }))?.rawMessage).toContain("target is required");
    expect((await refuse({ target }))?.rawMessage).toContain(
      "add_processes is empty, and so is remove_processes",
    );
    expect((await refuse({ target, addProcesses: [3], removeProcesses: [3] }))?.rawMessage).toContain(
      "holds StockLevelChanged, as does add_processes",
    );
    expect((await refuse({ target, addProcesses: [99 as WebhookProcess] }))?.rawMessage).toContain(
      "99 is not an event type",
    );
    const none = await refuse({ target, removeProcesses: [1, 2] });
    expect([none?.code, none?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("DeleteEndpoint"),
    ]);
    const full = await startTestApi({ limits: { maxWebhooks: 2 } });
    try {
      const client = createClient(EndpointService, grpc(full));
      const url = freshUrl();
      const three = await failure(client.createEndpoint({ processes: [1, 2, 3], url }));
      expect([three?.code, three?.rawMessage]).toEqual([
        Code.FailedPrecondition,
        expect.stringMatching(/3 more are too many; .* MAX_WEBHOOKS/),
      ]);
      const { endpoint } = await client.createEndpoint({ processes: [1, 2], url });
      const more = {
        target: ofEndpoint(endpoint?.id as string),
        addProcesses: [WebhookProcess.STOCK_LEVEL_CHANGED],
      };
      expect((await failure(client.updateEndpoint(more)))?.code).toBe(Code.FailedPrecondition);
      expect(types((await client.updateEndpoint({ ...more, removeProcesses: [1] })).endpoint)).toEqual([
        2, 3,
      ]);
    } finally {
      await full.stop();
    }
  });
});

describe("a call about one webhook of an endpoint", () => {
  test("changes all of them: settings, state, key pairs, request settings and secrets", async () => {
    const { webhooks: made } = await created([1, 2]);
    const [first, second] = made.map((webhook) => webhook.id) as [bigint, bigint];
    const seen = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
    await webhooks.updateWebhook({ webhookId: first, name: "Orders", url: freshUrl(), rateLimit: 9 });
    const [one, other] = [await seen(first), await seen(second)];
    expect([other?.name, other?.url, other?.rateLimit]).toEqual(["Orders", one?.url, 9]);
    await webhooks.setWebhookRateLimit({ webhookId: second });
    expect((await seen(first))?.rateLimit).toBeUndefined();
    await webhooks.pauseWebhook({ webhookId: first });
    expect((await seen(second))?.paused).toBeDefined();
    await webhooks.resumeWebhook({ webhookId: second });
    expect((await seen(first))?.paused).toBeUndefined();
    await webhooks.updateWebhook({ webhookId: second, circuitBreaker: { enabled: true, failures: 7 } });
    expect((await seen(first))?.circuitBreaker?.settings?.failures).toBe(7);

    const pairs = async (webhookId: bigint) => (await webhooks.getWebhookKeyPairs({ webhookId })).keyPairs;
    await webhooks.rotateWebhookKeyPair({ webhookId: first });
    expect(await pairs(second)).toEqual(await pairs(first));
    expect(await pairs(second)).toHaveLength(1);
    await webhooks.deleteWebhookKeyPairs({ webhookId: second });
    expect(await pairs(first)).toEqual([]);

    const settings = { headers: [{ name: "X-Tenant", value: "4711" }] };
    await webhooks.setWebhookRequestSettings({ webhookId: first, settings });
    const masked = await webhooks.getWebhookRequestSettings({ webhookId: second });
    expect(masked.settings?.headerNames).toEqual(["X-Tenant"]);

    await webhooks.rotateWebhookSecret({ webhookId: second });
    const secrets = async (webhookId: bigint) => (await webhooks.getWebhookSecret({ webhookId })).secrets;
    expect(await secrets(first)).toEqual(await secrets(second));
    expect(await secrets(first)).toHaveLength(2);
    await webhooks.rotateWebhookSecret({ webhookId: first, revokeOldSecrets: true });
    expect(await secrets(second)).toHaveLength(1);
  });

  test("is refused to a key of an app that may not subscribe to all of its event types; it sees its own ones", async () => {
    const { installedApp } = await createClient(ApiKeyService, grpc(api)).createInstalledApp({ name: "App" });
    const installedAppId = installedApp?.id as string;
    const wide = await api.key({ installedAppId });
    const { endpoint } = await createClient(EndpointService, grpc(api, wide.secret)).createEndpoint({
      processes: [1, 2],
      url: freshUrl(),
    });
    const narrow = await api.key({ installedAppId, allowedProcesses: [1] });
    const [own, other] = (endpoint?.webhooks ?? []).map(({ id }) => id) as [bigint, bigint];
    const client = createClient(WebhookService, grpc(api, narrow.secret));
    const narrowly = createClient(EndpointService, grpc(api, narrow.secret));
    const endpointId = endpoint?.id as string;
    expect(types((await narrowly.getEndpoint({ endpointId })).endpoint)).toEqual([1]);
    expect((await client.getWebhook({ webhookId: own })).webhook?.endpointId).toBe(endpointId);
    const calls: ((webhookId: bigint) => Promise<unknown>)[] = [
      (webhookId) => client.getWebhookSecret({ webhookId }),
      (webhookId) => client.rotateWebhookSecret({ webhookId }),
      (webhookId) => client.rotateWebhookKeyPair({ webhookId }),
      (webhookId) => client.deleteWebhookKeyPairs({ webhookId }),
      (webhookId) => client.setWebhookRequestSettings({ webhookId }),
      (webhookId) => client.pauseWebhook({ webhookId }),
      (webhookId) => client.resumeWebhook({ webhookId }),
      (webhookId) => client.setWebhookRateLimit({ webhookId, rateLimit: 1 }),
      (webhookId) => client.updateWebhook({ webhookId, name: "x" }),
      (webhookId) => narrowly.updateEndpoint({ target: ofWebhook(webhookId), removeProcesses: [1] }),
    ];
    for (const call of calls) {
      const refused = await failure(call(own));
      expect([refused?.code, refused?.rawMessage]).toEqual([
        Code.PermissionDenied,
        expect.stringContaining("shares its secret and its settings with other event types"),
      ]);
      expect((await failure(call(other)))?.code).toBe(Code.NotFound);
    }
    expect((await failure(narrowly.deleteEndpoint({ endpointId })))?.code).toBe(Code.PermissionDenied);
    const filter = 'user_id == "u"';
    expect((await client.updateWebhook({ webhookId: own, filter })).webhook?.filter).toBe(filter);
    // The contract (4.3) lets each key delete any webhook.
    await client.deleteWebhook({ webhookId: other });
    expect((await client.getWebhookSecret({ webhookId: own })).secrets).toHaveLength(1);
  });
});
