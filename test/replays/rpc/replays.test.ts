import { randomUUID } from "node:crypto";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterEach, describe, expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { ReplayState } from "../../../gen/webhook/v1/replay_pb.ts";
import type { Scope } from "../../../src/calls/scope.ts";
import { getReplay, type ReplayRow } from "../../../src/replays/replays.ts";
import { replayMessage } from "../../../src/replays/rpc/replay-messages.ts";
import { failure } from "../../support/failure.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const { RUNNING, PAUSED, CANCELLED } = ReplayState;
const api = await useApi();
const { replays } = api;
afterEach(() => api.context.db.raw("truncate replays cascade"));

const HOUR_AGO = timestampFromDate(new Date(Date.now() - 3_600_000));
const LATER = timestampFromDate(new Date());
const resend = (value: { webhookId?: bigint; [filter: string]: unknown } = {}) => ({
  what: { case: "resend" as const, value },
});
const backfill = (webhookId: bigint, range: object = { from: HOUR_AGO }) => ({
  what: { case: "backfill" as const, value: { webhookId, ...range } },
});
const start = async (request: Parameters<typeof replays.startReplay>[0]) =>
  (await replays.startReplay(request)).replay?.id as string;

test("a replay that was started is running, with what was requested", async () => {
  const webhookId = await api.register();
  const { replay, duplicate } = await replays.startReplay(resend({ webhookId }));
  expect(duplicate).toBe(false);
  const filter = { webhookId, states: [DeliveryState.FAILED], search: "" };
  expect(replay).toMatchObject({ state: RUNNING, webhooks: 1, progress: 0, what: { value: filter } });
  expect((await replays.getReplay({ replayId: replay?.id ?? "" })).replay).toEqual(replay);
  const second = await replays.startReplay(backfill(webhookId));
  expect(second.replay?.what).toMatchObject(backfill(webhookId).what);
});

test("the operator replays the deliveries of a customer, whose keys see and control the replay; other keys cannot", async () => {
  const { secret } = await api.key({ customer: "tenant-7" });
  const customer = api.as(secret).replays;
  const request = { idempotencyKey: randomUUID(), ...resend({ customer: "tenant-7" }) };
  const { replay } = await replays.startReplay(request);
  expect(replay?.what.value).toMatchObject({ customer: "tenant-7", states: [DeliveryState.FAILED] });
  expect((await replays.startReplay(request)).duplicate).toBe(true);
  expect((await customer.listReplays({})).replays.map(({ id }) => id)).toEqual([replay?.id]);
  const stored = await getReplay(api.context.db, "everything", replay?.id ?? "");
  expect(stored).toMatchObject({ customer: "tenant-7" });
  expect((await customer.pauseReplay({ replayId: replay?.id ?? "" })).replay?.state).toBe(PAUSED);
  const refused = customer.startReplay(resend({ customer: "tenant-8" }));
  await expectRefused(refused, Code.PermissionDenied, "belongs to another customer");
  const { secret: ofApp } = await api.key({ installedAppId: await api.app() });
  const appRefused = api.as(ofApp).replays.startReplay(resend({ customer: "tenant-7" }));
  await expectRefused(appRefused, Code.PermissionDenied, "cannot access customers");
  await expectRefused(replays.startReplay(resend({ customer: " " })), Code.InvalidArgument, "customer");
});

test("a replay has a link to its workflow, which apps do not get", async () => {
  const stored = await getReplay(api.context.db, "everything", await start(resend()));
  const running = { ...(stored as ReplayRow), workflowId: "replay-1", runId: "an-execution" };
  const linkFor = (scope: Scope) => replayMessage(running, scope, (...ids) => ids.join("/")).url;
  expect(linkFor("everything")).toBe("replay-1/an-execution");
  expect(
    linkFor({ customer: null, installedAppId: randomUUID(), processes: [], permissions: [] }),
  ).toBeUndefined();
});

test("the list has pages, newest first, and can be restricted to a webhook and to open replays", async () => {
  const [webhookId, other] = [await api.register(), await api.register()];
  const ids: string[] = [];
  for (const each of [webhookId, other, webhookId]) ids.unshift(await start(resend({ webhookId: each })));
  await replays.cancelReplay({ replayId: ids[0] as string });
  const list = async (filter: Parameters<typeof replays.listReplays>[0]) => {
    const { replays: listed, nextPageToken } = await replays.listReplays(filter);
    return { ids: listed.map(({ id }) => id), nextPageToken };
  };
  const first = await list({ pageSize: 2 });
  const second = await list({ pageSize: 2, pageToken: first.nextPageToken });
  expect([first.ids, second]).toEqual([ids.slice(0, 2), { ids: ids.slice(2), nextPageToken: "" }]);
  expect(await list({ pageSize: 3 })).toEqual({ ids, nextPageToken: "" });
  expect((await list({ webhookId })).ids).toEqual([ids[0], ids[2]]);
  expect((await list({ webhookId, open: true })).ids).toEqual([ids[2]]);
});

test("a repeated idempotency key starts nothing; with another request it is refused", async () => {
  const webhookId = await api.register();
  const idempotencyKey = randomUUID();
  const request = { idempotencyKey, ...resend({ webhookId }) };
  const calls = await Promise.all([1, 2, 3].map(() => replays.startReplay(request)));
  expect(new Set(calls.map(({ replay }) => replay?.id)).size).toBe(1);
  expect(calls.map(({ duplicate }) => duplicate).sort()).toEqual([false, true, true]);
  const changed = replays.startReplay({ idempotencyKey, ...backfill(webhookId) });
  await expectRefused(changed, Code.AlreadyExists, "use a new key for a new replay");
  // The idempotency keys of another API key are separate.
  const { secret } = await api.key();
  expect((await api.as(secret).replays.startReplay(request)).duplicate).toBe(false);
});

test("a replay is paused, resumed and cancelled, each once", async () => {
  const replayId = await start(resend({ webhookId: await api.register() }));
  for (const [call, state] of [
    [replays.pauseReplay, PAUSED],
    [replays.pauseReplay, PAUSED],
    [replays.resumeReplay, RUNNING],
    [replays.resumeReplay, RUNNING],
    [replays.cancelReplay, CANCELLED],
    [replays.cancelReplay, CANCELLED],
  ] as const)
    expect((await call({ replayId })).replay?.state).toBe(state);
  for (const call of [replays.pauseReplay, replays.resumeReplay])
    await expectRefused(call({ replayId }), Code.FailedPrecondition, "is cancelled; start another one");
  const { entries } = await api.audit.listAuditEntries({ targetId: replayId });
  expect(entries).toHaveLength(4);
});

test.each([
  [resend({ states: [DeliveryState.PENDING] }), "resend.states"],
  [resend({ from: LATER, to: HOUR_AGO }), "resend.to"],
  [backfill(1n, {}), "backfill.from"],
  [backfill(1n, { from: LATER, to: HOUR_AGO }), "backfill.to"],
])("an invalid request is refused, and the error names the field", async (request, field) => {
  await expectRefused(replays.startReplay(request), Code.InvalidArgument, field);
});

test("a webhook has one open backfill, and one of notices has none", async () => {
  const webhookId = await api.register();
  const replayId = await start(backfill(webhookId));
  await expectRefused(start(backfill(webhookId)), Code.FailedPrecondition, "another backfill of webhook");
  await replays.cancelReplay({ replayId });
  await start(backfill(webhookId));
  const notice = start(backfill(await api.register({ process: 10_001 })));
  await expectRefused(notice, Code.FailedPrecondition, "notices are not delivered later");
});

describe("of open replays there are", () => {
  const ofApp = async () => api.as((await api.key({ installedAppId: await api.app() })).secret).replays;

  test("at most 20 of keys without an app, and 5 of each app, however many are started at once", async () => {
    const client = await ofApp();
    for (const [service, most, message] of [
      [replays, 20, "20 replays of keys without an app are running or paused"],
      [client, 5, "5 replays of your app are running or paused"],
    ] as const) {
      const calls = Array.from({ length: most + 10 }, () => failure(service.startReplay(resend())));
      const refused = (await Promise.all(calls)).flatMap((error) => error ?? []);
      expect(refused.map(({ code }) => code)).toEqual(Array(10).fill(Code.FailedPrecondition));
      for (const { rawMessage } of refused) expect(rawMessage).toContain(message);
    }
    expect((await client.listReplays({ open: true })).replays).toHaveLength(5);
  });

  test("none of a revoked key, also if one is started while the key is being revoked", async () => {
    const { id, secret } = await api.key();
    const { replay } = await api.as(secret).replays.startReplay(resend());
    const [revoked, started] = await api.context.db.transaction(async (trx) => {
      // Both calls are authenticated before the revocation goes on.
      await trx("api_keys").select("id").where({ id }).forUpdate();
      const calls: Promise<unknown>[] = [api.revoke(id)];
      await expect.poll(() => waitingQueries(api)).toBe(1);
      calls.push(failure(api.as(secret).replays.startReplay(resend())));
      await expect.poll(() => waitingQueries(api)).toBe(2);
      return calls.map((call) => () => call);
    });
    await revoked?.();
    const rawMessage = "the API key was revoked; use another key";
    expect(await started?.()).toMatchObject({ code: Code.Unauthenticated, rawMessage });
    expect((await replays.listReplays({})).replays).toMatchObject([{ id: replay?.id, state: CANCELLED }]);
    const { entries } = await api.audit.listAuditEntries({ targetId: id });
    const change = expect.objectContaining({ field: "replays_cancelled", after: "1" });
    expect(entries[0]?.changes).toContainEqual(change);
  });
});
