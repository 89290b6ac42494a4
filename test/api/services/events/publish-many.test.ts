import { randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Health } from "../../../../gen/health/v1/health_pb.ts";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import {
  EventService,
  type PublishEventRequestSchema,
  type PublishResult,
} from "../../../../gen/webhook/v1/event_pb.ts";
import { revokeApiKey } from "../../../../src/db/keys/key-revocation.ts";
import { queueMany } from "../../../db/queue/queue.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { waitingQueries } from "../../../support/grpc-calls.ts";
import { ONLY, startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let secret: string;
let events: Client<typeof EventService>;
beforeAll(async () => {
  api = await startTestApi();
  ({ secret } = await api.key({ permissions: ONLY.publish }));
  events = createClient(EventService, grpc(api, secret));
  await api.rest("POST", "/api/webhook", { json: { process: 2, url: "https://receiver.example/many" } });
});
afterAll(() => api.stop());

type Request = MessageInitShape<typeof PublishEventRequestSchema>;
const document = (more: object = {}, number = "D-1"): Request => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  data: {
    case: "documentCreated",
    value: { documentId: 1n, kind: 1, number, createdAt: { seconds: 1_790_000_000n } },
  },
  ...more,
});
const many = (count: number) => Array.from({ length: count }, () => document());
async function* stream(requests: Iterable<Request>) {
  for (const request of requests) yield { events: [request] };
}
const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );
const outcomes = (results: readonly PublishResult[]) =>
  results.map(({ result }) =>
    result.case === "published" ? (result.value.duplicate ? "duplicate" : "stored") : result.value?.code,
  );
const idsOf = (results: readonly PublishResult[]) =>
  results.map(({ result }) => (result.case === "published" ? result.value.eventId : null));
const storedUnder = (requests: readonly Request[]) =>
  api.context.db("events").whereIn(
    "idempotency_key",
    requests.map(({ idempotencyKey }) => idempotencyKey as string),
  );

const ways: [string, (requests: Request[]) => Promise<PublishResult[]>][] = [
  ["a stream over gRPC", async (requests) => (await events.publishEvents(stream(requests))).results],
  [
    "a stream of several events a message",
    async (requests) => {
      async function* messages() {
        for (let from = 0; from < requests.length; from += 3)
          yield { events: requests.slice(from, from + 3) };
      }
      return (await events.publishEvents(messages())).results;
    },
  ],
  ["a batch over gRPC", async (requests) => (await events.publishEventBatch({ events: requests })).results],
  [
    "a batch over Connect, HTTP/1.1 and JSON",
    async (requests) => {
      const json = createClient(EventService, connect(api, secret, false));
      return (await json.publishEventBatch({ events: requests })).results;
    },
  ],
];

test.each(ways)("%s stores each event with its deliveries and answers in order", async (_way, publish) => {
  const requests = many(250);
  const results = await publish(requests);
  expect(outcomes(results)).toEqual(requests.map(() => "stored"));
  const rows = await storedUnder(requests);
  const byKey = new Map(rows.map((row) => [row.idempotency_key, row.id]));
  expect(idsOf(results)).toEqual(requests.map(({ idempotencyKey }) => byKey.get(idempotencyKey)));
  const deliveries = await api.context.db("queue").whereIn(
    "event_id",
    rows.map(({ id }) => id),
  );
  expect(deliveries).toHaveLength(250);
});

test.each(ways)("in %s a bad event is refused by its index and stops no other", async (_way, publish) => {
  const again = document();
  const stored = await events.publishEvent(again);
  const twice = document();
  const requests = [
    document(),
    document({ userId: "" }),
    again,
    { ...again, userId: "tenant-2" },
    twice,
    twice,
    { ...twice, userId: "tenant-2" },
    document({ data: { case: undefined } }),
    document({}, "x".repeat(262_144)),
    document(),
  ];
  const results = await publish(requests);
  const { InvalidArgument: invalid, AlreadyExists: conflict } = Code;
  expect(outcomes(results)).toEqual([
    "stored",
    invalid,
    "duplicate",
    conflict,
    "stored",
    "duplicate",
    conflict,
    invalid,
    invalid,
    "stored",
  ]);
  expect(idsOf(results)[2]).toBe(stored.eventId);
  expect(idsOf(results)[5]).toBe(idsOf(results)[4]);
  expect(results[1]?.result.value).toMatchObject({
    index: 1,
    message: "user_id is required and must not be empty",
    reason: "FIELDS_INVALID",
  });
  expect(results[8]?.result.value).toMatchObject({
    index: 8,
    message: expect.stringContaining("bytes as JSON"),
  });
});

test("publishing a whole stream again queues nothing and answers the same ids", async () => {
  const requests = many(100);
  const first = await events.publishEvents(stream(requests));
  const again = await events.publishEvents(stream(requests));
  expect(idsOf(again.results)).toEqual(idsOf(first.results));
  expect(new Set(outcomes(again.results))).toEqual(new Set(["duplicate"]));
});

test("of a stream that breaks, what was stored stays, and sending all of it again stores the rest once", async () => {
  const requests = many(60);
  const abort = new AbortController();
  let arrived: () => void = () => {};
  const halfway = new Promise<void>((resolve) => {
    arrived = resolve;
  });
  async function* breaking() {
    yield { events: requests.slice(0, 30) };
    await halfway;
    abort.abort();
    yield { events: requests.slice(30) };
  }
  const broken = failure(events.publishEvents(breaking(), { signal: abort.signal }));
  await expect.poll(async () => (await storedUnder(requests)).length).toBe(30);
  arrived();
  expect((await broken)?.code).toBe(Code.Canceled);
  const { results } = await events.publishEvents(stream(requests));
  expect(outcomes(results)).toEqual(requests.map((_, index) => (index < 30 ? "duplicate" : "stored")));
  expect(await storedUnder(requests)).toHaveLength(60);
});

test("a stream ends with UNAUTHENTICATED once its key is revoked", async () => {
  const key = await api.key({ permissions: ONLY.publish });
  const caller = createClient(EventService, grpc(api, key.secret));
  const requests = many(2);
  let revoked: () => void = () => {};
  const revocation = new Promise<void>((resolve) => {
    revoked = resolve;
  });
  async function* lasting() {
    yield { events: requests.slice(0, 1) };
    await revocation;
    yield { events: requests.slice(1) };
  }
  const call = failure(caller.publishEvents(lasting()));
  await expect.poll(async () => (await storedUnder(requests)).length).toBe(1);
  await revokeApiKey(api.context.db, "everything", key.id, "delete");
  revoked();
  expect((await call)?.code).toBe(Code.Unauthenticated);
  expect(await storedUnder(requests)).toHaveLength(1);
});

test("a stream that is open has the quota of its key as it is now", async () => {
  const { id, secret } = await api.key({ permissions: ONLY.publish });
  const keys = createClient(ApiKeyService, grpc(api));
  const requests = many(12);
  const turns = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  async function* lasting() {
    yield { events: requests.slice(0, 2) };
    await turns[0].promise;
    yield { events: requests.slice(2, 7) };
    await turns[1].promise;
    yield { events: requests.slice(7) };
  }
  const call = createClient(EventService, grpc(api, secret)).publishEvents(lasting());
  const stored = async () => (await storedUnder(requests)).length;
  await expect.poll(stored).toBe(2);
  await keys.setApiKeyQuotas({ apiKeyId: id, quotas: { eventsPerSecond: 1 } });
  turns[0].resolve();
  await expect.poll(stored).toBeGreaterThan(2);
  await keys.setApiKeyQuotas({ apiKeyId: id, quotas: {} });
  turns[1].resolve();
  const found = outcomes((await call).results);
  expect(found.slice(2, 7)).toEqual(["stored", ...Array(4).fill(Code.ResourceExhausted)]);
  expect(found.slice(7)).toEqual(Array(5).fill("stored"));
});

test("many at once take the permission Publish_Events", async () => {
  const reader = createClient(EventService, grpc(api, (await api.key({ permissions: ONLY.read })).secret));
  expect((await failure(reader.publishEvents(stream(many(1)))))?.code).toBe(Code.PermissionDenied);
  expect((await failure(reader.publishEventBatch({ events: many(1) })))?.code).toBe(Code.PermissionDenied);
});

test("a batch takes 1 to 1,000 events", async () => {
  for (const count of [0, 1_001]) {
    const refused = await failure(events.publishEventBatch({ events: many(count) }));
    expect(refused?.code).toBe(Code.InvalidArgument);
    expect(refused?.rawMessage).toBe("events must be 1 to 1000 events");
  }
  expect(outcomes((await events.publishEventBatch({ events: many(1_000) })).results)).toHaveLength(1_000);
});

test("a stream of 10,000 events is taken, and one more is RESOURCE_EXHAUSTED", async () => {
  async function* messages(count: number) {
    for (let sent = 0; sent < count; sent += 500) yield { events: many(Math.min(500, count - sent)) };
  }
  const { results } = await events.publishEvents(messages(10_000));
  expect(new Set(outcomes(results))).toEqual(new Set(["stored"]));
  expect(results).toHaveLength(10_000);
  expect((await failure(events.publishEvents(messages(10_001))))?.code).toBe(Code.ResourceExhausted);
});

test("a stream is read no faster than its events are stored", async () => {
  const large = "x".repeat(250_000);
  const sent: Request[] = [];
  async function* flood() {
    for (let i = 0; i < 200; i += 1) {
      const request = document({}, large);
      sent.push(request);
      yield { events: [request] };
    }
  }
  const blocker = await api.context.db.transaction();
  await blocker.raw("lock table events in share mode");
  const call = events.publishEvents(flood());
  try {
    await expect.poll(() => sent.length).toBeGreaterThan(1);
    // Rounds of a call that does not write, on a connection of its own: time enough for more to have come, until none
    // came. How many the buffers between the two ends take is the operating system's.
    const health = createClient(Health, grpc(api));
    let before: number;
    do {
      before = sent.length;
      for (let i = 0; i < 100; i += 1) await health.check({});
    } while (sent.length > before);
    expect(sent.length).toBeLessThan(150);
  } finally {
    await blocker.rollback();
  }
  expect(outcomes((await call).results)).toHaveLength(200);
  expect(await storedUnder(sent)).toHaveLength(200);
});

test("publishes that arrive together are written together", async () => {
  const requests = many(300);
  const blocker = await api.context.db.transaction();
  await blocker.raw("lock table events in share mode");
  const calls = requests.map((request) => events.publishEvent(request));
  try {
    // The first are being written, as far as the lock lets them. The others have come once calls that came after them are
    // answered.
    await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
    const health = createClient(Health, grpc(api));
    for (let i = 0; i < 100; i += 1) await health.check({});
  } finally {
    await blocker.rollback();
  }
  await Promise.all(calls);
  const { rows } = await api.context.db.raw(
    "select count(distinct xmin::text)::int as statements from events where idempotency_key = any(?)",
    [requests.map(({ idempotencyKey }) => idempotencyKey as string)] as never,
  );
  expect(rows[0].statements).toBeLessThan(100);
});

test("publishes for many webhooks are written some thousand deliveries at a time, however many come at once", async () => {
  const { db } = api.context;
  const webhooks = 300;
  await queueMany(db, { urlPrefix: "https://receiver.example/wide/", webhooks, events: 0 });
  const publish = (n: number) =>
    events.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "tenant-1",
      data: {
        case: "orderDispatched",
        value: { orderId: BigInt(n), orderNumber: "SO", dispatchedAt: { seconds: 1n } },
      },
    });
  await publish(1);
  const blocker = await db.transaction();
  await blocker.raw("lock table events in share mode");
  const calls = Array.from({ length: 100 }, (_, n) => publish(n + 2));
  try {
    await expect.poll(() => waitingQueries(api)).toBeGreaterThan(0);
    const health = createClient(Health, grpc(api));
    for (let i = 0; i < 100; i += 1) await health.check({});
  } finally {
    await blocker.rollback();
  }
  await Promise.all(calls);
  const { rows } = await db.raw(
    `select sum(n)::int as all, max(n)::int as most from (
      select count(*) as n from queue where event_id in (select id from events where process = 1) group by xmin::text) s`,
  );
  expect(rows[0].all).toBe(101 * webhooks);
  expect(rows[0].most).toBeLessThan(10_000);
});

test("of publishes written together, one that cannot be stored fails alone", async () => {
  await api.context.db.raw(
    "alter table events add constraint no_poison check (user_id <> 'poison') not valid",
  );
  const requests = many(100).map((request, index) =>
    index === 50 ? { ...request, userId: "poison" } : request,
  );
  const calls = await Promise.all(requests.map((request) => failure(events.publishEvent(request))));
  expect(calls.map((error) => error?.code)).toEqual(
    requests.map((_, index) => (index === 50 ? Code.Internal : undefined)),
  );
  const { results } = await events.publishEvents(
    stream(requests.map((request) => ({ ...request, idempotencyKey: randomUUID() }))),
  );
  expect(outcomes(results)).toEqual(requests.map((_, index) => (index === 50 ? Code.Internal : "stored")));
  await api.context.db.raw("alter table events drop constraint no_poison");
});

test("a key that was revoked publishes nothing more, however many of its calls are under way", async () => {
  const key = await api.key({ permissions: ONLY.publish });
  const caller = createClient(EventService, grpc(api, key.secret));
  let revoked = false;
  const afterwards: (Code | undefined)[] = [];
  const callers = Array.from({ length: 20 }, async () => {
    for (;;) {
      const late = revoked;
      const error = await failure(caller.publishEvent(document()));
      if (late) afterwards.push(error?.code);
      if (error) return;
    }
  });
  await expect.poll(() => api.context.db("events").where("api_key_id", key.id)).not.toEqual([]);
  await revokeApiKey(api.context.db, "everything", key.id, "delete");
  revoked = true;
  await Promise.all(callers);
  afterwards.push((await failure(caller.publishEvent(document())))?.code);
  expect(new Set(afterwards)).toEqual(new Set([Code.Unauthenticated]));
});
