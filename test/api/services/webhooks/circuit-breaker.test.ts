import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { AuditAction, AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import {
  CircuitBreakerSettingsSchema,
  CircuitBreakerState,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { decideBreakers } from "../../../../src/db/circuit-breaker/decide.ts";
import { createInstalledApp } from "../../../../src/db/keys/installed-apps.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const { CLOSED, OPEN, DISABLED } = CircuitBreakerState;
const DEFAULTS = {
  enabled: true,
  failures: 10,
  failingSeconds: 1_800,
  probeSeconds: 60,
  disableSeconds: 432_000,
  disableOnGone: false,
  resendFailed: false,
};

const api = await useApi();
const webhooks = api.client(WebhookService);

const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
const listed = async (webhookId: bigint) =>
  (await createClient(WebhookService, connect(api)).listWebhooks({})).webhooks.find(
    ({ id }) => id === webhookId,
  );

async function withBreaker(circuitBreaker: object = { enabled: true }): Promise<bigint> {
  const webhookId = await api.register();
  await webhooks.updateWebhook({ webhookId, circuitBreaker });
  return webhookId;
}

/** A webhook whose breaker has opened: after failures as workers note them. */
async function opened(): Promise<bigint> {
  const webhookId = await withBreaker();
  await api.context.db.raw(
    `update webhook_breakers set failures = 10, failing_since = now() - interval '31 minutes', due = now()
      where webhook_id = ?`,
    [String(webhookId)],
  );
  await decideBreakers(api.context.db, 30);
  return webhookId;
}

test("a webhook has no breaker until one is chosen; numbers that are left out have their defaults", async () => {
  const webhookId = await api.register();
  expect((await get(webhookId))?.circuitBreaker).toBeUndefined();
  const { webhook } = await webhooks.updateWebhook({ webhookId, circuitBreaker: { enabled: true } });
  expect(webhook).toMatchObject({
    revision: 2n,
    circuitBreaker: {
      settings: create(CircuitBreakerSettingsSchema, DEFAULTS),
      state: CLOSED,
      reason: "",
      failedAttempts: 0,
    },
  });
  expect(webhook?.circuitBreaker?.nextProbe).toBeUndefined();
  expect(await get(webhookId)).toEqual(webhook);
  expect(await listed(webhookId)).toEqual(webhook);
  const chosen = {
    enabled: true,
    failures: 3,
    failingSeconds: 60,
    probeSeconds: 5,
    disableSeconds: 86_400,
    disableOnGone: true,
    resendFailed: true,
  };
  const changed = await webhooks.updateWebhook({ webhookId, circuitBreaker: chosen });
  expect(changed.webhook?.circuitBreaker?.settings).toMatchObject(chosen);
  const removed = await webhooks.updateWebhook({ webhookId, circuitBreaker: { enabled: false } });
  expect(removed.webhook?.circuitBreaker).toBeUndefined();
});

test("settings that are as they were change nothing, and another revision is refused", async () => {
  const webhookId = await withBreaker();
  const before = await get(webhookId);
  expect((await webhooks.updateWebhook({ webhookId, circuitBreaker: DEFAULTS })).webhook).toEqual(before);
  const stale = webhooks.updateWebhook({ webhookId, revision: 1n, circuitBreaker: { enabled: false } });
  expect((await failure(stale))?.code).toBe(Code.Aborted);
  expect(await get(webhookId)).toEqual(before);
});

test("numbers out of range are refused together, by name, with what is allowed", async () => {
  const webhookId = await api.register();
  const refused = await failure(
    webhooks.updateWebhook({
      webhookId,
      circuitBreaker: {
        enabled: true,
        failures: 1_001,
        failingSeconds: -1,
        probeSeconds: 301,
        disableSeconds: 2_592_001,
      },
    }),
  );
  expect(refused?.code).toBe(Code.InvalidArgument);
  for (const part of [
    "circuit_breaker.failures must be 1 to 1000, or 0 for 10",
    "circuit_breaker.failing_seconds must be 1 to 86400, or 0 for 1800",
    "circuit_breaker.probe_seconds must be 1 to 300, or 0 for 60",
    "circuit_breaker.disable_seconds must be 1 to 2592000, or 0 for 432000",
  ])
    expect(refused?.rawMessage).toContain(part);
  expect((await get(webhookId))?.circuitBreaker).toBeUndefined();
});

test("an open breaker shows since when, why and when the next probe is sent; the webhook is not paused", async () => {
  const webhook = await get(await opened());
  expect(webhook?.paused).toBeUndefined();
  const breaker = webhook?.circuitBreaker;
  expect(breaker).toMatchObject({
    state: OPEN,
    reason: "10 attempts in a row have failed, over 31 minutes",
    failedAttempts: 10,
  });
  const since = breaker?.since && timestampDate(breaker.since).getTime();
  const next = breaker?.nextProbe && timestampDate(breaker.nextProbe).getTime();
  expect(Math.abs((since ?? 0) - Date.now())).toBeLessThan(60_000);
  expect((next ?? 0) - (since ?? 0)).toBe(60_000);
});

test("pausing an open webhook and resuming it end the breaker's state", async () => {
  const webhookId = await opened();
  const paused = (await webhooks.pauseWebhook({ webhookId })).webhook;
  expect(paused?.paused).toBeDefined();
  expect(paused?.circuitBreaker?.state).toBe(CLOSED);
  const again = await opened();
  const resumed = (await webhooks.resumeWebhook({ webhookId: again })).webhook;
  expect(resumed?.paused).toBeUndefined();
  expect(resumed?.circuitBreaker).toMatchObject({ state: CLOSED, failedAttempts: 0 });
});

test("a disabled webhook works again once it is resumed", async () => {
  const webhookId = await withBreaker({ enabled: true, disableOnGone: true });
  await api.context.db.raw("update webhook_breakers set gone = true, due = now() where webhook_id = ?", [
    String(webhookId),
  ]);
  await decideBreakers(api.context.db, 30);
  expect((await get(webhookId))?.circuitBreaker).toMatchObject({
    state: DISABLED,
    reason: "the endpoint answered 410 Gone",
  });
  const { webhook } = await webhooks.resumeWebhook({ webhookId });
  expect(webhook?.circuitBreaker?.state).toBe(CLOSED);
});

test("the audit log has the settings, each change of the breaker by the service, and the user's resume", async () => {
  const webhookId = await opened();
  await webhooks.resumeWebhook({ webhookId });
  const { entries } = await api.client(AuditService).listAuditEntries({
    targetId: String(webhookId),
  });
  expect(entries.map(({ action, byOperator }) => [action, byOperator])).toEqual([
    [AuditAction.WEBHOOK_RESUMED, false],
    [AuditAction.WEBHOOK_BREAKER_OPENED, true],
    [AuditAction.WEBHOOK_UPDATED, false],
    [AuditAction.WEBHOOK_CREATED, false],
  ]);
  expect(entries[0]?.changes).toMatchObject([{ field: "circuit_breaker_state", before: "open" }]);
  expect(entries[1]?.changes).toMatchObject([
    { field: "circuit_breaker_state", before: "closed", after: "open" },
    { field: "reason", after: "10 attempts in a row have failed, over 31 minutes" },
  ]);
  expect(entries[2]?.changes).toMatchObject([
    { field: "circuit_breaker", after: expect.stringContaining("failures 10, failingSeconds 1800") },
  ]);
});

test("a key of another app does not see the breaker, one without write permission cannot change it, and REST has the contract's fields", async () => {
  const webhookId = await opened();
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const found = envelope.Data.find((webhook: { Id: number }) => webhook.Id === Number(webhookId));
  expect(Object.keys(found)).toEqual(["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"]);
  const app = await createInstalledApp(api.context.db, "another");
  const outsider = createClient(
    WebhookService,
    grpc(api, (await api.key({ installedAppId: app.id })).secret),
  );
  const { webhooks: seen } = await outsider.listWebhooks({});
  expect(seen.find(({ id }) => id === webhookId)).toMatchObject({ id: webhookId });
  expect(seen.find(({ id }) => id === webhookId)?.circuitBreaker).toBeUndefined();
  const { secret } = await api.key({ permissions: ONLY.read });
  const reader = api.client(WebhookService, secret);
  const update = reader.updateWebhook({ webhookId, circuitBreaker: { enabled: false } });
  expect((await failure(update))?.code).toBe(Code.PermissionDenied);
});
