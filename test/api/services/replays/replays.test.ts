import { randomUUID } from "node:crypto";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { afterEach, describe, expect, test } from "vitest";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { AuditAction, AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import type { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { ReplayService, ReplayState } from "../../../../gen/webhook/v1/replay_pb.ts";
import { failure } from "../../../support/failure.ts";
import { waitingQueries } from "../../../support/grpc-calls.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const replays = api.client(ReplayService);
afterEach(() => api.context.db.raw("truncate replays cascade"));

const FAILED_OF = (webhookId?: bigint) => ({
  case: "resend" as const,
  value: webhookId === undefined ? {} : { webhookId },
});
const HOUR_AGO = timestampFromDate(new Date(Date.now() - 3_600_000));

test("a replay that was started is running, with what was requested, and is listed newest first", async () => {
  const webhookId = await api.register();
  const { replay, duplicate } = await replays.startReplay({ what: FAILED_OF(webhookId) });
  expect([replay?.state, duplicate, replay?.webhooks, replay?.progress]).toEqual([
    ReplayState.RUNNING,
    false,
    1,
    0,
  ]);
  expect(replay?.what).toMatchObject({
    case: "resend",
    value: { webhookId, states: [DeliveryState.FAILED], search: "" },
  });
  const second = await replays.startReplay({
    what: { case: "backfill", value: { webhookId, from: HOUR_AGO } },
  });
  expect(second.replay?.what).toMatchObject({ case: "backfill", value: { webhookId, from: HOUR_AGO } });
  const { replays: listed } = await replays.listReplays({});
  expect(listed.map(({ id }) => id)).toEqual([second.replay?.id, replay?.id]);
  expect((await replays.getReplay({ replayId: replay?.id ?? "" })).replay).toEqual(replay);
});

test("a list has pages, and can be restricted to a webhook and to open replays", async () => {
  const [webhookId, other] = [await api.register(), await api.register()];
  const ids: string[] = [];
  for (const each of [webhookId, other, webhookId])
    ids.unshift((await replays.startReplay({ what: FAILED_OF(each) })).replay?.id as string);
  await replays.cancelReplay({ replayId: ids[0] as string });
  const first = await replays.listReplays({ pageSize: 2 });
  expect(first.replays.map(({ id }) => id)).toEqual(ids.slice(0, 2));
  const next = await replays.listReplays({ pageSize: 2, pageToken: first.nextPageToken });
  expect([next.replays.map(({ id }) => id), next.nextPageToken]).toEqual([ids.slice(2), ""]);
  const ofOne = await replays.listReplays({ webhookId });
  expect(ofOne.replays.map(({ id }) => id)).toEqual([ids[0], ids[2]]);
  const open = await replays.listReplays({ webhookId, open: true });
  expect(open.replays.map(({ id }) => id)).toEqual([ids[2]]);
});

test("a repeated idempotency key starts nothing; with another request it is refused", async () => {
  const webhookId = await api.register();
  const request = { idempotencyKey: randomUUID(), what: FAILED_OF(webhookId) };
  const calls = await Promise.all([1, 2, 3].map(() => replays.startReplay(request)));
  expect(new Set(calls.map(({ replay }) => replay?.id)).size).toBe(1);
  expect(calls.map(({ duplicate }) => duplicate).sort()).toEqual([false, true, true]);
  const refused = await failure(
    replays.startReplay({ ...request, what: { case: "backfill", value: { webhookId, from: HOUR_AGO } } }),
  );
  expect(refused?.code).toBe(Code.AlreadyExists);
  expect(refused?.rawMessage).toContain("use a new key for a new replay");
  // The idempotency keys of another API key are separate.
  const { secret } = await api.key();
  const { duplicate } = await api.client(ReplayService, secret).startReplay(request);
  expect(duplicate).toBe(false);
});

test("a replay is paused, resumed and cancelled, each once, with an entry in the audit log", async () => {
  const { replay } = await replays.startReplay({ what: FAILED_OF(await api.register()) });
  const replayId = replay?.id as string;
  const states = [
    await replays.pauseReplay({ replayId }),
    await replays.pauseReplay({ replayId }),
    await replays.resumeReplay({ replayId }),
    await replays.resumeReplay({ replayId }),
    await replays.cancelReplay({ replayId }),
    await replays.cancelReplay({ replayId }),
  ].map(({ replay: after }) => after?.state);
  const { RUNNING, PAUSED, CANCELLED } = ReplayState;
  expect(states).toEqual([PAUSED, PAUSED, RUNNING, RUNNING, CANCELLED, CANCELLED]);
  for (const call of [replays.pauseReplay, replays.resumeReplay]) {
    const refused = await failure(call({ replayId }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("is cancelled; start another one"),
    ]);
  }
  const { entries } = await api.client(AuditService).listAuditEntries({ targetId: replayId });
  expect(entries.map(({ action }) => action)).toEqual([
    AuditAction.REPLAY_CANCELLED,
    AuditAction.REPLAY_RESUMED,
    AuditAction.REPLAY_PAUSED,
    AuditAction.REPLAY_STARTED,
  ]);
});

test("invalid requests are refused, and the error names the field", async () => {
  const webhookId = await api.register();
  const later = timestampFromDate(new Date());
  const requests: [object, RegExp][] = [
    [{}, /what/],
    [{ what: { case: "resend", value: { states: [DeliveryState.PENDING] } } }, /resend\.states/],
    [{ what: { case: "resend", value: { from: later, to: HOUR_AGO } } }, /resend\.to/],
    [{ what: { case: "resend", value: { process: 99 as WebhookProcess } } }, /process/],
    [{ what: { case: "resend", value: { eventId: "x" } } }, /event_id/],
    [{ what: { case: "resend", value: { search: "x".repeat(301) } } }, /search/],
    [{ what: { case: "backfill", value: { webhookId } } }, /backfill\.from/],
    [{ what: { case: "backfill", value: { from: HOUR_AGO } } }, /backfill\.webhook_id/],
    [{ what: { case: "backfill", value: { webhookId, from: later, to: HOUR_AGO } } }, /backfill\.to/],
    [{ what: FAILED_OF(), idempotencyKey: "x".repeat(201) }, /idempotency_key/],
  ];
  for (const [request, field] of requests) {
    const refused = await failure(replays.startReplay(request));
    expect(refused?.code, JSON.stringify(refused?.rawMessage)).toBe(Code.InvalidArgument);
    expect(refused?.rawMessage).toMatch(field);
  }
  const calls = [
    failure(replays.getReplay({ replayId: "x" })),
    failure(replays.listReplays({ pageSize: 1_001 })),
    failure(replays.listReplays({ pageToken: "x" })),
  ];
  for (const refused of await Promise.all(calls)) expect(refused?.code).toBe(Code.InvalidArgument);
  const unknown = await failure(replays.pauseReplay({ replayId: randomUUID() }));
  expect([unknown?.code, unknown?.rawMessage]).toEqual([
    Code.NotFound,
    expect.stringMatching(/there is no replay .*; list the replays/),
  ]);
  expect((await replays.listReplays({})).replays).toEqual([]);
});

test("a webhook has one open backfill, and one of notices or of another's webhook has none", async () => {
  const webhookId = await api.register();
  const backfill = (of: bigint) => ({
    what: { case: "backfill" as const, value: { webhookId: of, from: HOUR_AGO } },
  });
  const { replay } = await replays.startReplay(backfill(webhookId));
  const refused = await failure(replays.startReplay(backfill(webhookId)));
  expect([refused?.code, refused?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    expect.stringContaining("another backfill of webhook"),
  ]);
  await replays.cancelReplay({ replayId: replay?.id as string });
  await replays.startReplay(backfill(webhookId));
  expect((await failure(replays.startReplay(backfill(2n ** 62n))))?.code).toBe(Code.NotFound);

  const { envelope } = await api.rest("POST", "/api/webhook", {
    json: { process: 10_001, url: "https://receiver.example/notices" },
  });
  const notice = await failure(replays.startReplay(backfill(BigInt(envelope.Data.Id))));
  expect([notice?.code, notice?.rawMessage]).toEqual([
    Code.FailedPrecondition,
    expect.stringContaining("notices are not delivered later"),
  ]);
});

describe("of open replays there are", () => {
  const insertOpen = (count: number, appId: string | null) =>
    api.context.db.raw(
      `insert into replays (api_key_id, installed_app_id, processes, kind, filter, from_id, to_id)
        select gen_random_uuid(), ?::uuid, '{}', 'resend', '{}', gen_random_uuid(), gen_random_uuid() from generate_series(1, ?::int)`,
      [appId, count],
    );

  test("at most 20 of keys without an app, and 5 of each app", async () => {
    const appId = randomUUID();
    await api.context.db("installed_apps").insert({ id: appId, name: "app" });
    const { secret } = await api.key({ installedAppId: appId });
    const ofApp = api.client(ReplayService, secret);
    await insertOpen(20, null);
    const refused = await failure(replays.startReplay({ what: FAILED_OF() }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("20 replays of keys without an app are running or paused"),
    ]);
    for (let n = 0; n < 5; n += 1) await ofApp.startReplay({ what: FAILED_OF() });
    const alsoRefused = await failure(ofApp.startReplay({ what: FAILED_OF() }));
    expect(alsoRefused?.rawMessage).toContain("5 replays of your app are running or paused");
    expect((await api.context.db("replays").count())[0]?.count).toBe(25n);
  });

  test("no more than that if many are started at once", async () => {
    const appId = randomUUID();
    await api.context.db("installed_apps").insert({ id: appId, name: "app" });
    const { secret } = await api.key({ installedAppId: appId });
    const ofApp = api.client(ReplayService, secret);
    const refused = await Promise.all(
      Array.from({ length: 50 }, () => failure(ofApp.startReplay({ what: FAILED_OF() }))),
    );
    const reasons = refused.flatMap((error) => error?.findDetails(ErrorInfoSchema)[0]?.reason ?? []);
    expect(reasons).toEqual(Array(45).fill("STATE_NOT_FIT"));
    expect((await replays.listReplays({ open: true })).replays).toHaveLength(5);
  });

  test("none of a revoked key", async () => {
    const { id, secret } = await api.key();
    const { replay } = await api.client(ReplayService, secret).startReplay({
      what: FAILED_OF(),
    });
    await api.client(ApiKeyService).revokeApiKey({
      apiKeyId: id,
      webhooks: { case: "deleteWebhooks", value: {} },
    });
    const found = await replays.getReplay({ replayId: replay?.id as string });
    expect(found.replay?.state).toBe(ReplayState.CANCELLED);
    const { entries } = await api.client(AuditService).listAuditEntries({ targetId: id });
    expect(entries[0]?.changes).toContainEqual(
      expect.objectContaining({ field: "replays_cancelled", after: "1" }),
    );
  });

  test("none of a key that is being revoked", async () => {
    const { db } = api.context;
    const { id, secret } = await api.key();
    const ofKey = api.client(ReplayService, secret);
    const calls = await db.transaction(async (trx) => {
      // Both calls are authenticated before the revocation goes on.
      await trx("api_keys").select("id").where({ id }).forUpdate();
      const revoked = api.client(ApiKeyService).revokeApiKey({
        apiKeyId: id,
        webhooks: { case: "deleteWebhooks", value: {} },
      });
      await expect.poll(() => waitingQueries(api)).toBe(1);
      const started = failure(ofKey.startReplay({ what: FAILED_OF() }));
      await expect.poll(() => waitingQueries(api)).toBe(2);
      return { revoked, started };
    });
    await calls.revoked;
    const refused = await calls.started;
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.Unauthenticated,
      "the API key was revoked; use another key",
    ]);
    expect((await replays.listReplays({ open: true })).replays).toEqual([]);
  });
});

test("replays are changed with Write_Administrative_Data, and read with Read_Administrative_Data", async () => {
  const { replay } = await replays.startReplay({ what: FAILED_OF(await api.register()) });
  const replayId = replay?.id as string;
  const as = async (permissions: readonly Permission[]) =>
    api.client(ReplayService, (await api.key({ permissions })).secret);
  const [reader, writer] = [await as(ONLY.read), await as(ONLY.write)];
  await reader.getReplay({ replayId });
  await reader.listReplays({});
  await writer.pauseReplay({ replayId });
  const refused = await Promise.all([
    failure(reader.startReplay({ what: FAILED_OF() })),
    failure(reader.pauseReplay({ replayId })),
    failure(reader.resumeReplay({ replayId })),
    failure(reader.cancelReplay({ replayId })),
    failure(writer.getReplay({ replayId })),
    failure(writer.listReplays({})),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.PermissionDenied));
});
