import { create } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { AuditAction } from "../../../gen/webhook/v1/audit_pb.ts";
import { CircuitBreakerSettingsSchema, CircuitBreakerState } from "../../../gen/webhook/v1/webhook_pb.ts";
import { decideBreakers } from "../../../src/breakers/decide.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { useApi } from "../../support/test-api.ts";

const { CLOSED, OPEN, DISABLED } = CircuitBreakerState;
const NUMBERS = { failures: 10, failingSeconds: 1_800, probeSeconds: 60, disableSeconds: 432_000 };
const DEFAULTS = { enabled: true, ...NUMBERS, disableOnGone: false, resendFailed: false };

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
  const row = String(webhookId);
  await db.raw(`update webhook_breakers set ${change}, due = now() where webhook_id = ?`, [row]);
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
  const numbers = { failures: 3, failingSeconds: 60, probeSeconds: 5, disableSeconds: 86_400 };
  const chosen = { enabled: true, ...numbers, disableOnGone: true, resendFailed: true };
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
  const nextProbe = breaker?.nextProbe && timestampDate(breaker.nextProbe);
  expectWithin(span, nextProbe, 60_000);
  const outsider = api.as((await api.key({ installedAppId: await api.app() })).secret).webhooks;
  const seen = (await outsider.listWebhooks({})).webhooks.find(({ id }) => id === webhookId);
  expect([seen?.id, seen?.circuitBreaker]).toEqual([webhookId, undefined]);
});

test("a pause and a resume close an open breaker; a disabled webhook works again once it is resumed", async () => {
  const paused = (await webhooks.pauseWebhook({ webhookId: await opened() })).webhook;
  expect(paused).toMatchObject({ paused: expect.anything(), circuitBreaker: { state: CLOSED } });
  const disabled = await decided("gone = true", { disableOnGone: true });
  const reason = "the endpoint answered 410 Gone";
  expect((await get(disabled))?.circuitBreaker).toMatchObject({ state: DISABLED, reason });
  for (const webhookId of [await opened(), disabled]) {
    const { webhook } = await webhooks.resumeWebhook({ webhookId });
    expect(webhook?.paused).toBeUndefined();
    expect(webhook?.circuitBreaker).toMatchObject({ state: CLOSED, failedAttempts: 0 });
  }
});

test("the audit log has the settings, each change of the breaker by the service, and the user's resume", async () => {
  const webhookId = await opened();
  await webhooks.resumeWebhook({ webhookId });
  const { entries } = await api.audit.listAuditEntries({ targetId: String(webhookId), pageSize: 3 });
  const field = "circuit_breaker_state";
  const settings = expect.stringContaining("failures 10, failingSeconds 1800");
  const reason = { field: "reason", after: "10 attempts in a row have failed, over 31 minutes" };
  const opening = [{ field, before: "closed", after: "open" }, reason];
  const { WEBHOOK_RESUMED, WEBHOOK_BREAKER_OPENED, WEBHOOK_UPDATED } = AuditAction;
  expect(entries).toMatchObject([
    { action: WEBHOOK_RESUMED, byOperator: false, changes: [{ field, before: "open" }] },
    { action: WEBHOOK_BREAKER_OPENED, byOperator: true, changes: opening },
    { action: WEBHOOK_UPDATED, changes: [{ field: "circuit_breaker", after: settings }] },
  ]);
});
