import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { AuditAction } from "../../../../gen/webhook/v1/audit_pb.ts";
import { CircuitBreakerSettingsSchema, CircuitBreakerState } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { decideBreakers } from "../../../../src/db/circuit-breaker/decide.ts";
import { expectWithin, timed } from "../../../support/database-time.ts";
import { useApi } from "../../../support/test-api.ts";

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
const { db } = api.context;
const { webhooks } = api;

const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
const set = async (webhookId: bigint, circuitBreaker: object) =>
  (await webhooks.updateWebhook({ webhookId, circuitBreaker })).webhook;

/** A webhook whose breaker is decided on once its state has changed, as workers change it. */
async function decided(change: string, settings: object = {}): Promise<bigint> {
  const webhookId = await api.register();
  await set(webhookId, { enabled: true, ...settings });
  await db.raw(`update webhook_breakers set ${change}, due = now() where webhook_id = ?`, [
    String(webhookId),
  ]);
  await decideBreakers(db, 30);
  return webhookId;
}
const opened = () => decided("failures = 10, failing_since = now() - interval '31 minutes'");

test("a webhook has no breaker until one is chosen; numbers that are left out have their defaults", async () => {
  const webhookId = await api.register();
  expect((await get(webhookId))?.circuitBreaker).toBeUndefined();
  const webhook = await set(webhookId, { enabled: true });
  const settings = create(CircuitBreakerSettingsSchema, DEFAULTS);
  const breaker = { settings, state: CLOSED, reason: "", failedAttempts: 0 };
  expect(webhook).toMatchObject({ revision: 2n, circuitBreaker: breaker });
  expect(webhook?.circuitBreaker?.nextProbe).toBeUndefined();
  expect(await get(webhookId)).toEqual(webhook);
  // Equal settings change nothing.
  expect(await set(webhookId, DEFAULTS)).toEqual(webhook);
  const chosen = {
    enabled: true,
    failures: 3,
    failingSeconds: 60,
    probeSeconds: 5,
    disableSeconds: 86_400,
    disableOnGone: true,
    resendFailed: true,
  };
  expect((await set(webhookId, chosen))?.circuitBreaker?.settings).toMatchObject(chosen);
  expect((await set(webhookId, { enabled: false }))?.circuitBreaker).toBeUndefined();
});

test("an open breaker shows since when, why and when the next probe is sent; the webhook is not paused", async () => {
  const [webhookId, span] = await timed(db, opened);
  const webhook = await get(webhookId);
  expect(webhook?.paused).toBeUndefined();
  const breaker = webhook?.circuitBreaker;
  const reason = "10 attempts in a row have failed, over 31 minutes";
  expect(breaker).toMatchObject({ state: OPEN, reason, failedAttempts: 10 });
  expectWithin(span, breaker?.since);
  const [since, next] = [breaker?.since, breaker?.nextProbe].map((time) =>
    Number(time && timestampDate(time)),
  );
  expect((next as number) - (since as number)).toBe(60_000);
  const outsider = api.as((await api.key({ installedAppId: await api.app() })).secret).webhooks;
  const seen = (await outsider.listWebhooks({})).webhooks.find(({ id }) => id === webhookId);
  expect([seen?.id, seen?.circuitBreaker]).toEqual([webhookId, undefined]);
});

test("pausing an open webhook and resuming it end the breaker's state", async () => {
  const paused = (await webhooks.pauseWebhook({ webhookId: await opened() })).webhook;
  expect(paused).toMatchObject({ paused: expect.anything(), circuitBreaker: { state: CLOSED } });
  const resumed = (await webhooks.resumeWebhook({ webhookId: await opened() })).webhook;
  expect(resumed?.paused).toBeUndefined();
  expect(resumed?.circuitBreaker).toMatchObject({ state: CLOSED, failedAttempts: 0 });
});

test("a disabled webhook works again once it is resumed", async () => {
  const webhookId = await decided("gone = true", { disableOnGone: true });
  const disabled = { state: DISABLED, reason: "the endpoint answered 410 Gone" };
  expect((await get(webhookId))?.circuitBreaker).toMatchObject(disabled);
  const { webhook } = await webhooks.resumeWebhook({ webhookId });
  expect(webhook?.circuitBreaker?.state).toBe(CLOSED);
});

test("the audit log has the settings, each change of the breaker by the service, and the user's resume", async () => {
  const webhookId = await opened();
  await webhooks.resumeWebhook({ webhookId });
  const { entries } = await api.audit.listAuditEntries({ targetId: String(webhookId) });
  const reason = "10 attempts in a row have failed, over 31 minutes";
  const settings = expect.stringContaining("failures 10, failingSeconds 1800");
  expect(entries.map(({ action, byOperator }) => [action, byOperator])).toEqual([
    [AuditAction.WEBHOOK_RESUMED, false],
    [AuditAction.WEBHOOK_BREAKER_OPENED, true],
    [AuditAction.WEBHOOK_UPDATED, false],
    [AuditAction.WEBHOOK_CREATED, false],
  ]);
  expect(entries.slice(0, 3).map(({ changes }) => changes)).toMatchObject([
    [{ field: "circuit_breaker_state", before: "open" }],
    [
      { field: "circuit_breaker_state", before: "closed", after: "open" },
      { field: "reason", after: reason },
    ],
    [{ field: "circuit_breaker", after: settings }],
  ]);
});
