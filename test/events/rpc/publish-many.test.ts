import { create } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { Health } from "../../../gen/health/v1/health_pb.ts";
import {
  EventService,
  PublishEventRequestSchema,
  type PublishResult,
} from "../../../gen/webhook/v1/event_pb.ts";
import { revokeKey } from "../../../src/app/revoke-key.ts";
import type { Published } from "../../../src/events/publish.ts";
import { PublishedSeries } from "../../../src/events/rpc/published-series.ts";
import { Room } from "../../../src/events/rpc/room.ts";
import { connect } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { anOrder, lock, orderEvent } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { ONLY, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { secret } = await api.key({ permissions: ONLY.publish });
const events = api.as(secret).events;
await api.register();

type Request = ReturnType<typeof orderEvent>;
const many = (count: number): Request[] => Array.from({ length: count }, () => orderEvent());
async function* stream(requests: readonly Request[], size = 1) {
  for (let from = 0; from < requests.length; from += size)
    yield { events: requests.slice(from, from + size) };
}
const outcomes = (results: readonly PublishResult[]) =>
  results.map(({ result }) =>
    result.case === "published" ? (result.value.duplicate ? "duplicate" : "stored") : result.value?.code,
  );
const idsOf = (results: readonly PublishResult[]) =>
  results.map(({ result }) => (result.case === "published" ? result.value.eventId : null));
const keysOf = (requests: readonly Request[]) => requests.map(({ idempotencyKey }) => idempotencyKey);
const storedUnder = (requests: readonly Request[]) =>
  db("events").whereIn("idempotency_key", keysOf(requests));

const ways: [string, (requests: Request[]) => Promise<{ results: PublishResult[] }>][] = [
  ["a stream over gRPC", (requests) => events.publishEvents(stream(requests))],
  ["a stream of several events a message", (requests) => events.publishEvents(stream(requests, 3))],
  ["a batch over gRPC", (requests) => events.publishEventBatch({ events: requests })],
  [
    "a batch over Connect, HTTP/1.1 and JSON",
    (requests) =>
      createClient(EventService, connect(api, secret, false)).publishEventBatch({ events: requests }),
  ],
];

test.each(ways)("%s stores each event with its deliveries and answers in order", async (_way, publish) => {
  const requests = many(100);
  const { results } = await publish(requests);
  expect(outcomes(results)).toEqual(requests.map(() => "stored"));
  const stored = await storedUnder(requests);
  const byKey = new Map(stored.map((row) => [row.idempotency_key, row.id]));
  expect(idsOf(results)).toEqual(keysOf(requests).map((key) => byKey.get(key)));
  expect(await db("queue").whereIn("event_id", [...byKey.values()])).toHaveLength(100);
});

test.each(ways)("in %s a bad event is refused by its index and stops no other", async (way, publish) => {
  const again = orderEvent();
  const stored = await events.publishEvent(again);
  const twice = orderEvent();
  const { InvalidArgument: invalid, AlreadyExists: conflict } = Code;
  const requests: [Request, "stored" | "duplicate" | Code][] = [
    [orderEvent(), "stored"],
    [anOrder({}, { userId: "" }), invalid],
    [again, "duplicate"],
    [{ ...again, userId: "tenant-2" }, conflict],
    [twice, "stored"],
    [twice, "duplicate"],
    [{ ...twice, userId: "tenant-2" }, conflict],
    [{ ...orderEvent(), data: { case: undefined } as never }, invalid],
    [anOrder({ orderNumber: "x".repeat(262_144) }), invalid],
    [orderEvent(), "stored"],
  ];
  const { results } = await publish(requests.map(([request]) => request));
  expect(outcomes(results)).toEqual(requests.map(([, outcome]) => outcome));
  expect(idsOf(results)[2]).toBe(stored.eventId);
  expect(idsOf(results)[5]).toBe(idsOf(results)[4]);
  const message = `${way.includes("JSON") ? "userId" : "user_id"} is required and must not be empty`;
  expect(results[1]?.result.value).toMatchObject({ index: 1, message, reason: "FIELDS_INVALID" });
  const tooLarge = expect.stringContaining("bytes as JSON");
  expect(results[8]?.result.value).toMatchObject({ index: 8, message: tooLarge });
  const allBad = await publish(requests.slice(1, 2).map(([request]) => request));
  expect(outcomes(allBad.results)).toEqual([invalid]);
});

test("of a stream that breaks, what was stored stays, and sending all of it again stores the rest once", async () => {
  const requests = many(60);
  const abort = new AbortController();
  async function* breaking() {
    yield { events: requests.slice(0, 30) };
    await expect.poll(async () => (await storedUnder(requests)).length).toBe(30);
    abort.abort();
    yield { events: requests.slice(30) };
  }
  await expectRefused(events.publishEvents(breaking(), { signal: abort.signal }), Code.Canceled);
  const { results } = await events.publishEvents(stream(requests));
  expect(outcomes(results)).toEqual(requests.map((_, index) => (index < 30 ? "duplicate" : "stored")));
});

test("once the client of a batch has left, no further event is published, and none keeps its room", async () => {
  const gone = new AbortController();
  const answered = Promise.withResolvers<Published>();
  const published: string[] = [];
  const room = new Room(3_000);
  const series = new PublishedSeries({
    publish: (event) => {
      published.push(event.idempotencyKey);
      return answered.promise;
    },
    room,
    log: api.context.log,
    refusals: api.context.instruments.refusals,
    method: "PublishEventBatch",
    isJson: false,
    caller: { id: "key", customer: null },
    searchIndex: false,
    traceparent: null,
    signal: gone.signal,
    admit: async () => {},
  });
  const requests = many(3).map((request) => create(PublishEventRequestSchema, request));
  const added = failure(series.addAll(requests));
  await expect.poll(() => published).toHaveLength(1);
  gone.abort();
  answered.resolve({ eventId: "first", queued: 0, duplicate: false });
  expect((await added)?.code).toBe(Code.Canceled);
  await series.results();
  expect(published).toEqual(requests.slice(0, 1).map(({ idempotencyKey }) => idempotencyKey));
  expect(room.enter(3_000)).toBeUndefined();
});

test("a stream ends with UNAUTHENTICATED once its key is revoked", async () => {
  const key = await api.key({ permissions: ONLY.publish });
  const requests = many(2);
  async function* revoking() {
    yield { events: requests.slice(0, 1) };
    await expect.poll(async () => (await storedUnder(requests)).length).toBe(1);
    await revokeKey(db, "everything", key.id, "delete");
    yield { events: requests.slice(1) };
  }
  await expectRefused(api.as(key.secret).events.publishEvents(revoking()), Code.Unauthenticated);
  expect(await storedUnder(requests)).toHaveLength(1);
});

test("a stream that is open has the quota of its key as it is now", async () => {
  const { id: apiKeyId, secret: own } = await api.key({ permissions: ONLY.publish });
  const requests = many(12);
  const stored = async () => (await storedUnder(requests)).length;
  async function* lasting() {
    yield { events: requests.slice(0, 2) };
    await expect.poll(stored).toBe(2);
    await api.keys.setApiKeyQuotas({ apiKeyId, quotas: { eventsPerSecond: 1 } });
    yield { events: requests.slice(2, 7) };
    await expect.poll(stored).toBeGreaterThan(2);
    await api.keys.setApiKeyQuotas({ apiKeyId, quotas: {} });
    yield { events: requests.slice(7) };
  }
  const { results } = await api.as(own).events.publishEvents(lasting());
  expect(outcomes(results).slice(2)).toEqual([
    ...["stored", ...Array(4).fill(Code.ResourceExhausted)],
    ...Array(5).fill("stored"),
  ]);
});

/** Events of which only the first and the last can be stored. */
const hardlyAny = (count: number) => {
  const bad = anOrder({}, { userId: "" });
  return [orderEvent(), ...Array<Request>(count - 2).fill(bad), orderEvent()];
};

test("a batch takes 1 to 1,000 events", async () => {
  for (const refused of [[], hardlyAny(1_001)]) {
    const call = events.publishEventBatch({ events: refused });
    await expectRefused(call, Code.InvalidArgument, /^events must be 1 to 1000 events$/);
  }
  const { results } = await events.publishEventBatch({ events: hardlyAny(1_000) });
  expect([results.length, outcomes(results).at(-1)]).toEqual([1_000, "stored"]);
});

test("a stream of 10,000 events is taken, and one more is RESOURCE_EXHAUSTED", async () => {
  const { results } = await events.publishEvents(stream(hardlyAny(10_000), 500));
  expect([results.length, outcomes(results).at(-1)]).toEqual([10_000, "stored"]);
  await expectRefused(events.publishEvents(stream(hardlyAny(10_001), 500)), Code.ResourceExhausted);
});

test("events wait in order while those before them take all the memory that may be held", async () => {
  const room = new Room(3);
  const entered: string[] = [];
  expect(room.enter(2)).toBeUndefined();
  const waiting = [
    room.enter(5)?.then(() => entered.push("large")),
    room.enter(1)?.then(() => entered.push("small")),
  ];
  room.leave(2);
  await waiting[0];
  expect(entered).toEqual(["large"]);
  room.leave(5);
  await waiting[1];
  expect(entered).toEqual(["large", "small"]);
});

test("publishes for many webhooks are written some thousand deliveries at a time, however many come at once", async () => {
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, 'wide/' || n, 'wide/' || n, ?::uuid, '' from generate_series(1, 300) n`,
    [api.adminKeyId],
  );
  onTestFinished(() => db("webhooks").whereLike("url", "wide/%").update({ deleted: new Date() }));
  // After the first one it is known how many deliveries an event has.
  const requests = many(41);
  await events.publishEvent(requests[0] as Request);
  const release = await lock(api, "events");
  onTestFinished(release);
  const calls = requests.slice(1).map((request) => events.publishEvent(request));
  // 100 calls, one after the other, take long enough for the earlier calls to arrive.
  for (let n = 0; n < 100; n += 1) await api.client(Health).check({});
  await release();
  const queued = (await Promise.all(calls)).map(({ deliveriesQueued }) => deliveriesQueued);
  expect(queued).toEqual(Array(40).fill(301));
  const ids = (await storedUnder(requests)).map(({ id }) => id);
  const written = await db("queue")
    .select(db.raw("count(*)::int as n"))
    .whereIn("event_id", ids)
    .groupByRaw("xmin::text");
  expect(Math.max(...written.map(({ n }) => n))).toBeLessThan(10_000);
});

test("of publishes written together, one that cannot be stored fails alone", async () => {
  await db.raw("alter table events add constraint no_poison check (user_id <> 'poison') not valid");
  onTestFinished(() => db.raw("alter table events drop constraint no_poison"));
  const poisoned = () =>
    many(100).map((request, index) => (index === 50 ? { ...request, userId: "poison" } : request));
  const one = (good: unknown) => Array.from({ length: 100 }, (_, n) => (n === 50 ? Code.Internal : good));
  const calls = await Promise.all(poisoned().map((request) => failure(events.publishEvent(request))));
  expect(calls.map((error) => error?.code)).toEqual(one(undefined));
  expect(outcomes((await events.publishEvents(stream(poisoned()))).results)).toEqual(one("stored"));
});
