import { expect, test } from "vitest";
import { DeliveryState, WaitingFor } from "../../../gen/webhook/v1/delivery_pb.ts";
import { judgedWebhooks, REFUSED } from "../../incidents/failing.ts";
import { aWebhook } from "../../support/builders.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { deliveries } = api;

const tried = (error: string | null, status: number | null = null) => ({ tried: [{ status, error }] });
const retrying = (error: string | null, status?: number) => ({
  state: "retrying" as const,
  ...tried(error, status),
});

test("reasons of failures say why, since when, in which incident, and whether all were counted", async () => {
  const webhookId = await aWebhook()
    .having(retrying(REFUSED), retrying(REFUSED), retrying(null, 503))
    // However long each receiver asks to wait.
    .having(retrying("Retry-After: 9 s", 503))
    .having({ state: "failed", ...tried(REFUSED) }, { state: "failed", reason: "expired" })
    .in(db);
  await judgedWebhooks(db, [webhookId]);
  const [incident] = (await api.incidents.listIncidents({ webhookId })).incidents;
  const { reasons, complete, total } = await deliveries.listFailureReasons({ webhookId });
  expect([complete, total]).toEqual([true, 6n]);
  expect(reasons).toMatchObject([
    { reason: REFUSED, count: 3, cause: { code: "connection_refused" }, incidentId: incident?.id },
    { reason: "HTTP 503", count: 2, cause: { code: "http_5xx" } },
    { reason: "expired", count: 1 },
  ]);
  expect(reasons[0]?.failingSince).toEqual(incident?.since);
  expect(reasons.slice(1).map(({ incidentId }) => incidentId)).toEqual([undefined, undefined]);
  expect(reasons[2]?.cause).toBeUndefined();
});

test("reasons of more failures than are examined say how many there are", async () => {
  const many = Array(5_100).fill(retrying(null, 500));
  const webhookId = await aWebhook()
    .having(...many, { state: "failed", ...tried(null, 500) })
    .in(db);
  const all = await deliveries.listFailureReasons({ webhookId });
  expect(all).toMatchObject({ examined: 5_000, complete: false, total: 5_101n });
  const states = [DeliveryState.RETRYING];
  expect(await deliveries.listFailureReasons({ webhookId, states })).toMatchObject({ total: 5_100n });
  const from = { seconds: 1_700_000_000n };
  expect((await deliveries.listFailureReasons({ webhookId, from })).total).toBeUndefined();
});

test.each([
  [{ paused: new Date() }, null, WaitingFor.RESUME],
  [{ held_until: new Date(Date.now() + 3_600_000) }, null, WaitingFor.RECEIVER],
  [{ rate_limit: 5 }, null, WaitingFor.RATE_LIMIT],
  [{}, "no response within 30 s; the receiver must answer sooner", WaitingFor.HOST],
  [{}, REFUSED, WaitingFor.UNSPECIFIED],
  [{}, null, WaitingFor.UNSPECIFIED],
])("a pending delivery of a webhook with %o and %s waits for %i", async (columns, error, waitingFor) => {
  const later = { state: "retrying" as const, retryAt: new Date(Date.now() + 3_600_000), ...tried("x") };
  const webhookId = await aWebhook(columns).having({}, later, { state: "delivered" }).in(db);
  if (error) await judgedWebhooks(db, [webhookId], error);
  const listed = (await deliveries.listDeliveries({ webhookId })).deliveries;
  const pending = listed.find(({ state }) => state === DeliveryState.PENDING);
  expect(pending?.waitingFor).toBe(waitingFor);
  const others = listed.filter(({ id }) => id !== pending?.id);
  expect(others.map((each) => each.waitingFor)).toEqual([WaitingFor.UNSPECIFIED, WaitingFor.UNSPECIFIED]);
  const { delivery } = await deliveries.getDelivery({ deliveryId: pending?.id ?? "" });
  expect(delivery?.waitingFor).toBe(waitingFor);
});

test("each failed attempt has its cause, and its delivery the open incident of the webhook", async () => {
  const attempts = [{ status: 503 }, { status: null, error: REFUSED }, { status: 200 }];
  const webhookId = await aWebhook().having({ state: "delivered", tried: attempts }).in(db);
  const [listed] = (await deliveries.listDeliveries({ webhookId })).deliveries;
  const found = async () => deliveries.getDelivery({ deliveryId: listed?.id ?? "" });
  const { attempts: shown, incidentId } = await found();
  expect(shown.map(({ cause }) => cause?.code)).toEqual(["http_5xx", "connection_refused", undefined]);
  expect(incidentId).toBeUndefined();
  await judgedWebhooks(db, [webhookId]);
  const [incident] = (await api.incidents.listIncidents({ webhookId })).incidents;
  expect((await found()).incidentId).toBe(incident?.id);
});
