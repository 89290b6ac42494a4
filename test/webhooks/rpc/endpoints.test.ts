import { Code } from "@connectrpc/connect";
import { describe, expect, onTestFinished, test } from "vitest";
import { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import type { Endpoint } from "../../../gen/webhook/v1/endpoint_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { SignatureForm } from "../../../gen/webhook/v1/webhook_pb.ts";
import { expectRefused } from "../../support/refusals.ts";
import { CONTRACT_FIELDS, freshUrl, startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { endpoints, webhooks, keys } = api;

/** Event types that a call adds to an endpoint and removes from it. */
type Types = { addProcesses?: WebhookProcess[]; removeProcesses?: WebhookProcess[] };
const ofEndpoint = (endpointId: string) => ({ case: "endpointId" as const, value: endpointId });
const ofWebhook = (webhookId: bigint) => ({ case: "webhookId" as const, value: webhookId });
const types = (endpoint: Endpoint | undefined) =>
  endpoint?.webhooks.map(({ webhookProcess }) => webhookProcess);
const found = async (endpointId: string) => (await endpoints.getEndpoint({ endpointId })).endpoint;
const secretOf = async (webhookId: bigint) => (await webhooks.getWebhookSecret({ webhookId })).secret;

/** Creates an endpoint for event types; answers it and the ids of its webhooks. */
async function created(processes: WebhookProcess[], on = endpoints): Promise<[Endpoint, bigint[]]> {
  const { endpoint } = await on.createEndpoint({ processes, url: freshUrl(), name: "Shop" });
  return [endpoint as Endpoint, endpoint?.webhooks.map(({ id }) => id) ?? []];
}

/** A webhook as REST lists it. */
async function restWebhook(id: bigint | undefined) {
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  return envelope.Data.find(({ Id }: { Id: number }) => BigInt(Id) === id);
}

describe("an endpoint", () => {
  test("is created for several event types, which share its secret, and is found by each of its webhooks", async () => {
    const [endpoint, ids] = await created([2, 1]);
    expect(endpoint.webhooks).toMatchObject(
      [1, 2].map((webhookProcess) => ({ webhookProcess, endpointId: endpoint.id, name: "Shop" })),
    );
    const [first, second] = await Promise.all(ids.map(secretOf));
    expect(first).toBe(second);
    const { webhook } = await webhooks.getWebhook({ webhookId: ids[1] as bigint });
    expect(await found(webhook?.endpointId as string)).toEqual(endpoint);
  });

  test("§2.1, §4.1, §4.3: REST lists each event type as a webhook with the six fields, and deletes one of them only", async () => {
    const [{ id, webhooks: made }, ids] = await created([1, 2]);
    const listed = await restWebhook(ids[0]);
    expect(Object.keys(listed)).toEqual(CONTRACT_FIELDS);
    expect(listed).toMatchObject({ WebhookProcess: "OrderDispatched", Url: made[0]?.url, Application: null });
    const remove = (webhookId: bigint | undefined) =>
      api.rest("DELETE", "/api/webhook", { query: { webhookId: String(webhookId) } });
    expect((await remove(ids[0])).envelope).toMatchObject({ Success: true, Data: { Id: Number(ids[0]) } });
    expect([await restWebhook(ids[0]), (await restWebhook(ids[1]))?.Id]).toEqual([undefined, Number(ids[1])]);
    expect(types(await found(id))).toEqual([2]);
    await remove(ids[1]);
    await expectRefused(found(id), Code.NotFound, id);
  });

  test("§4.2.1: REST returns an event type of an endpoint unchanged, and registers another one without an endpoint", async () => {
    const [{ webhooks: made }, [first]] = await created([1]);
    const register = async (process: number) =>
      (await api.rest("POST", "/api/webhook", { json: { process, url: made[0]?.url } })).envelope.Data.Id;
    expect(await register(1)).toBe(Number(first));
    const webhookId = BigInt(await register(2));
    expect((await webhooks.getWebhook({ webhookId })).webhook?.endpointId).toBeUndefined();
    expect(await secretOf(webhookId)).not.toBe(await secretOf(first as bigint));
  });

  test("needs an allowed URL, and event types that the key may subscribe to", async () => {
    const insecure = endpoints.createEndpoint({ processes: [1], url: "http://receiver.example/" });
    await expectRefused(insecure, Code.InvalidArgument, "https://");
    const narrow = created([1, 2], api.as((await api.key({ allowedProcesses: [1] })).secret).endpoints);
    await expectRefused(narrow, Code.PermissionDenied, "may not subscribe to DocumentCreated");
  });

  test("is deleted with all of its webhooks, by its id in any case, and its id finds the audit entries", async () => {
    const [{ id: endpointId }] = await created([1, 2, 3]);
    const deleted = await endpoints.deleteEndpoint({ endpointId: endpointId.toUpperCase() });
    expect(deleted.webhooks.map(({ webhookProcess }) => webhookProcess).sort()).toEqual([1, 2, 3]);
    for (const { id } of deleted.webhooks) expect(await restWebhook(id)).toBeUndefined();
    const target = ofEndpoint(endpointId);
    await expectRefused(endpoints.deleteEndpoint({ endpointId }), Code.NotFound);
    await expectRefused(endpoints.updateEndpoint({ target, addProcesses: [1] }), Code.NotFound);
    const { entries } = await api.audit.listAuditEntries({ targetId: endpointId });
    expect(entries.map(({ action }) => action)).toEqual([
      AuditAction.ENDPOINT_DELETED,
      AuditAction.ENDPOINT_CREATED,
    ]);
  });
});

describe("the event types of an endpoint", () => {
  const OWN = {
    rateLimit: 5,
    ratePeriodSeconds: 60,
    timeoutMs: 2_000,
    firstRetrySeconds: 1,
    secondRetrySeconds: 2,
    thirdRetrySeconds: 3,
    signatureForm: SignatureForm.HEX,
    signatureHeader: "X-Signature",
    signaturePrefix: "sha256=",
  };

  test("are added and removed; what is added shares secret and settings", async () => {
    const [{ id, webhooks: made }, [first, second]] = await created([1, 2]);
    await webhooks.updateWebhook({
      webhookId: first as bigint,
      ...OWN,
      paused: true,
    });
    const change: Types = { addProcesses: [3, 1], removeProcesses: [2, 10001] };
    const { endpoint } = await endpoints.updateEndpoint({ target: ofEndpoint(id), ...change });
    expect(types(endpoint)).toEqual([1, 3]);
    const added = endpoint?.webhooks[1];
    expect(added).toMatchObject({
      endpointId: id,
      ...OWN,
      name: "Shop",
      url: made[0]?.url,
    });
    expect(added?.paused).toBeDefined();
    expect(await secretOf(added?.id as bigint)).toBe(await secretOf(first as bigint));
    expect(await restWebhook(second)).toBeUndefined();
  });

  test("are added to a webhook of REST, which becomes an endpoint and keeps its id and its secret", async () => {
    const webhookId = await api.register();
    const [before, secret] = [await restWebhook(webhookId), await secretOf(webhookId)];
    const { endpoint } = await endpoints.updateEndpoint({ target: ofWebhook(webhookId), addProcesses: [2] });
    expect(types(endpoint)).toEqual([1, 2]);
    expect(await restWebhook(webhookId)).toEqual({ ...before, Modified: expect.any(String) });
    const other = endpoint?.webhooks[1]?.id as bigint;
    expect(await secretOf(other)).toBe(secret);
    // By whichever of its webhooks.
    const again = await endpoints.updateEndpoint({ target: ofWebhook(other), addProcesses: [3] });
    expect([again.endpoint?.id, types(again.endpoint)]).toEqual([endpoint?.id, [1, 2, 3]]);
  });

  test("belong to the key and the app of the others, whoever adds them, within that key's quota and event types", async () => {
    const application = await api.app();
    const quotas = { webhookQuota: 2, eventsPerSecond: null };
    const rights = { installedAppId: application, allowedProcesses: [1, 2], quotas };
    const owner = await api.key({ ...rights, name: "Own" });
    const target = ofWebhook(await api.register({ key: owner.secret }));
    const add = async (process: WebhookProcess) =>
      (await endpoints.updateEndpoint({ target, addProcesses: [process] })).endpoint?.webhooks ?? [];
    const [, second] = await add(2);
    expect(second).toMatchObject({ apiKeyId: owner.id, application });
    const notAllowed = "“Own” that owns the endpoint may not subscribe to StockLevelChanged";
    await expectRefused(add(3), Code.PermissionDenied, notAllowed);
    await keys.setApiKeyQuotas({ apiKeyId: owner.id, quotas: { webhooks: 1 } });
    await webhooks.deleteWebhook({ webhookId: second?.id as bigint });
    await expectRefused(add(2), Code.FailedPrecondition, "may own 1 webhooks, and would own 2");
    // The webhooks go with the endpoint's key.
    await keys.setApiKeyQuotas({ apiKeyId: owner.id });
    await add(2);
    const webhooksOf = { case: "transferToKeyId", value: api.adminKeyId } as const;
    const revoked = await keys.revokeApiKey({ apiKeyId: owner.id, webhooks: webhooksOf });
    expect(revoked.webhooksTransferred).toBe(2);
    const later = await add(3);
    expect(later.map(({ apiKeyId }) => apiKeyId)).toEqual(Array(3).fill(api.adminKeyId));
    expect(later[2]?.application).toBe(application);
  });

  test("are refused to a key of an app without the name of the operator's key or the id of the operator's webhook", async () => {
    const installedAppId = await api.app();
    const [first, second] = [await api.key({ installedAppId }), await api.key({ installedAppId })];
    const target = ofWebhook(await api.register({ key: first.secret }));
    const quotas = { webhookQuota: 1, eventsPerSecond: null };
    const owner = await api.key({ name: "Hidden", allowedProcesses: [1, 2], quotas });
    const transferred = { case: "transferToKeyId", value: owner.id } as const;
    await keys.revokeApiKey({ apiKeyId: first.id, webhooks: transferred });
    const url = freshUrl();
    await api.register({ url });
    const { updateEndpoint, createEndpoint } = api.as(second.secret).endpoints;
    for (const [call, code, text] of [
      [
        () => updateEndpoint({ target, addProcesses: [3] }),
        Code.PermissionDenied,
        "the API key that owns the endpoint may not subscribe to StockLevelChanged",
      ],
      [
        () => updateEndpoint({ target, addProcesses: [2] }),
        Code.FailedPrecondition,
        "the API key that owns the webhook may own 1 webhooks",
      ],
      [
        () => createEndpoint({ processes: [1], url }),
        Code.AlreadyExists,
        "OrderDispatched (a webhook that your key cannot access)",
      ],
    ] as const)
      await expectRefused(call(), code, text);
  });

  test("are refused in unclear requests", async () => {
    const target = ofEndpoint((await created([1, 2]))[0].id);
    const { InvalidArgument, FailedPrecondition } = Code;
    const both: Types = { addProcesses: [3], removeProcesses: [3] };
    for (const [request, code, message] of [
      [{}, InvalidArgument, "add_processes is empty, and so is remove_processes"],
      [both, InvalidArgument, "holds StockLevelChanged, as does add_processes"],
      [{ removeProcesses: [1, 2] } as Types, FailedPrecondition, "DeleteEndpoint"],
    ] as const)
      await expectRefused(endpoints.updateEndpoint({ target, ...request }), code, message);
  });

  test("are refused beyond MAX_WEBHOOKS", async () => {
    const full = await startTestApi({ limits: { maxWebhooks: 2 } });
    onTestFinished(() => full.stop());
    const client = full.endpoints;
    const many = created([1, 2, 3], client);
    await expectRefused(many, Code.FailedPrecondition, /3 more are too many; .* MAX_WEBHOOKS/);
    const [{ id }] = await created([1, 2], client);
    const more = { target: ofEndpoint(id), addProcesses: [3] as WebhookProcess[] };
    await expectRefused(client.updateEndpoint(more), Code.FailedPrecondition);
    expect(types((await client.updateEndpoint({ ...more, removeProcesses: [1] })).endpoint)).toEqual([2, 3]);
  });
});

describe("a call about one webhook of an endpoint", () => {
  /** What the webhooks of an endpoint share. */
  async function shared(webhookId: bigint | undefined) {
    const of = { webhookId: webhookId as bigint };
    const { webhook } = await webhooks.getWebhook(of);
    const { name, url, rateLimit, timeoutMs, thirdRetrySeconds, signatureForm, paused, circuitBreaker } =
      webhook ?? {};
    const numbers = { rateLimit, timeoutMs, thirdRetrySeconds, signatureForm };
    const { keyPairs } = await webhooks.getWebhookKeyPairs(of);
    const { settings } = await webhooks.getWebhookRequestSettings(of);
    const { secrets } = await webhooks.getWebhookSecret(of);
    const breaker = circuitBreaker?.settings;
    return { name, url, ...numbers, paused, breaker, keyPairs, settings, secrets };
  }
  type Change = (of: { webhookId: bigint }) => Promise<unknown>;
  const circuitBreaker = { enabled: true, failures: 7 };
  const settings = { headers: [{ name: "X-Tenant", value: "4711" }] };

  test.each<[string, Change]>([
    ["name", (of) => webhooks.updateWebhook({ ...of, name: "Orders" })],
    ["URL", (of) => webhooks.updateWebhook({ ...of, url: "https://moved.example/" })],
    ["circuit breaker", (of) => webhooks.updateWebhook({ ...of, circuitBreaker })],
    ["request settings, by an update", (of) => webhooks.updateWebhook({ ...of, requestSettings: settings })],
    ["request settings", (of) => webhooks.setWebhookRequestSettings({ ...of, settings })],
    ["timeout", (of) => webhooks.updateWebhook({ ...of, timeoutMs: 1_000 })],
    ["retry delay", (of) => webhooks.updateWebhook({ ...of, thirdRetrySeconds: 9 })],
    ["second signature", (of) => webhooks.updateWebhook({ ...of, signatureForm: SignatureForm.SVIX })],
    ["rate limit", (of) => webhooks.setWebhookRateLimit({ ...of, rateLimit: 9 })],
    ["pause", webhooks.pauseWebhook],
    ["key pairs", webhooks.rotateWebhookKeyPair],
    ["secret", webhooks.rotateWebhookSecret],
  ])("changes all of them: %s", async (_, change) => {
    const [, [first, second]] = await created([1, 2]);
    const before = await shared(second);
    await change({ webhookId: first as bigint });
    const after = await shared(second);
    expect(after).toEqual(await shared(first));
    expect(after).not.toEqual(before);
  });

  test("ends a pause and revokes key pairs and secrets that another call made for all of them", async () => {
    const [, [first, second]] = await created([1, 2]);
    const [begun, ended] = [{ webhookId: first as bigint }, { webhookId: second as bigint }];
    await webhooks.pauseWebhook(begun);
    await webhooks.resumeWebhook(ended);
    await webhooks.rotateWebhookKeyPair(begun);
    await webhooks.deleteWebhookKeyPairs(ended);
    await webhooks.rotateWebhookSecret(begun);
    await webhooks.rotateWebhookSecret({ ...ended, revokeOldSecrets: true });
    const after = await shared(first);
    expect(after).toEqual(await shared(second));
    expect([after.paused, after.keyPairs.length, after.secrets.length]).toEqual([undefined, 0, 1]);
  });

  test("is refused to a key of an app that may not subscribe to all of its event types; it sees its own ones", async () => {
    const installedAppId = await api.app();
    const wide = api.as((await api.key({ installedAppId })).secret).endpoints;
    const [{ id: endpointId }, ids] = await created([1, 2], wide);
    const [own, other] = ids as [bigint, bigint];
    const { secret } = await api.key({ installedAppId, allowedProcesses: [1] });
    const [client, narrowly] = [api.as(secret).webhooks, api.as(secret).endpoints];
    expect(types((await narrowly.getEndpoint({ endpointId })).endpoint)).toEqual([1]);
    expect((await client.getWebhook({ webhookId: own })).webhook?.endpointId).toBe(endpointId);
    const { getWebhookSecret, rotateWebhookSecret, rotateWebhookKeyPair, deleteWebhookKeyPairs } = client;
    const { setWebhookRequestSettings, setWebhookRateLimit, pauseWebhook, resumeWebhook } = client;
    for (const call of [
      ...[getWebhookSecret, rotateWebhookSecret, rotateWebhookKeyPair, deleteWebhookKeyPairs],
      ...[setWebhookRequestSettings, pauseWebhook, resumeWebhook],
      (of: { webhookId: bigint }) => setWebhookRateLimit({ ...of, rateLimit: 1 }),
      (of: { webhookId: bigint }) => client.updateWebhook({ ...of, name: "x" }),
      (of: { webhookId: bigint }) =>
        narrowly.updateEndpoint({ target: ofWebhook(of.webhookId), removeProcesses: [1] }),
    ]) {
      const message = "shares its secret and its settings with other event types";
      await expectRefused(call({ webhookId: own }), Code.PermissionDenied, message);
      await expectRefused(call({ webhookId: other }), Code.NotFound);
    }
    await expectRefused(narrowly.deleteEndpoint({ endpointId }), Code.PermissionDenied);
    const filter = 'user_id == "u"';
    expect((await client.updateWebhook({ webhookId: own, filter })).webhook?.filter).toBe(filter);
    // The contract (4.3) lets each key delete any webhook.
    await client.deleteWebhook({ webhookId: other });
    expect((await client.getWebhookSecret({ webhookId: own })).secrets).toHaveLength(1);
  });
});
