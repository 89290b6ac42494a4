import { Code, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { Health } from "../../../../gen/health/v1/health_pb.ts";
import { EventService, type PublishResult } from "../../../../gen/webhook/v1/event_pb.ts";
import { rows } from "../../../../src/db/database.ts";
import { revokeApiKey } from "../../../../src/db/keys/key-revocation.ts";
import { queueMany } from "../../../db/queue/queue.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { anOrder, lock, orderEvent } from "../../../support/grpc-calls.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

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

test.each(ways)("in %s a bad event is refused by its index and stops no other", async (_way, publish) => {
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
  const message = "user_id is required and must not be empty";
  expect(results[1]?.result.value).toMatchObject({ index: 1, message, reason: "FIELDS_INVALID" });
  const tooLarge = expect.stringContaining("bytes as JSON");
  expect(results[8]?.result.value).toMatchObject({ index: 8, message: tooLarge });
});

test("of a stream that breaks, what was stored stays, and sending all of it again stores the rest once", async () => {
  const requests = many(60);
  const abort = new AbortController();
  const halfway = Promise.withResolvers<void>();
  async function* breaking() {
    yield { events: requests.slice(0, 30) };
    await halfway.promise;
    abort.abort();
    yield { events: requests.slice(30) };
  }
  const broken = failure(events.publishEvents(breaking(), { signal: abort.signal }));
  await expect.poll(async () => (await storedUnder(requests)).length).toBe(30);
  halfway.resolve();
  expect((await broken)?.code).toBe(Code.Canceled);
  const { results } = await events.publishEvents(stream(requests));
  expect(outcomes(results)).toEqual(requests.map((_, index) => (index < 30 ? "duplicate" : "stored")));
  const again = await events.publishEvents(stream(requests));
  expect([outcomes(again.results), idsOf(again.results)]).toEqual([
    Array(60).fill("duplicate"),
    idsOf(results),
  ]);
});

test("a stream ends with UNAUTHENTICATED once its key is revoked", async () => {
  const key = await api.key({ permissions: ONLY.publish });
  const requests = many(2);
  const revocation = Promise.withResolvers<void>();
  async function* lasting() {
    yield { events: requests.slice(0, 1) };
    await revocation.promise;
    yield { events: requests.slice(1) };
  }
  const call = failure(api.as(key.secret).events.publishEvents(lasting()));
  await expect.poll(async () => (await storedUnder(requests)).length).toBe(1);
  await revokeApiKey(db, "everything", key.id, "delete");
  revocation.resolve();
  expect((await call)?.code).toBe(Code.Unauthenticated);
  expect(await storedUnder(requests)).toHaveLength(1);
});

test("a stream that is open has the quota of its key as it is now", async () => {
  const { id: apiKeyId, secret: own } = await api.key({ permissions: ONLY.publish });
  const keys = api.keys;
  const requests = many(12);
  const turns = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;
  async function* lasting() {
    yield { events: requests.slice(0, 2) };
    await turns[0].promise;
    yield { events: requests.slice(2, 7) };
    await turns[1].promise;
    yield { events: requests.slice(7) };
  }
  const call = api.as(own).events.publishEvents(lasting());
  const stored = async () => (await storedUnder(requests)).length;
  await expect.poll(stored).toBe(2);
  await keys.setApiKeyQuotas({ apiKeyId, quotas: { eventsPerSecond: 1 } });
  turns[0].resolve();
  await expect.poll(stored).toBeGreaterThan(2);
  await keys.setApiKeyQuotas({ apiKeyId, quotas: {} });
  turns[1].resolve();
  const found = outcomes((await call).results);
  expect(found.slice(2, 7)).toEqual(["stored", ...Array(4).fill(Code.ResourceExhausted)]);
  expect(found.slice(7)).toEqual(Array(5).fill("stored"));
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

/** Rounds of a call that does not write, after which calls that were made before have arrived. */
async function othersHaveArrived(): Promise<void> {
  for (let n = 0; n < 100; n += 1) await api.client(Health).check({});
}

test("a stream is read no faster than its events are stored", async () => {
  const sent: Request[] = [];
  async function* flood() {
    for (let n = 0; n < 100; n += 1) {
      const request = anOrder({ orderNumber: "x".repeat(250_000) });
      sent.push(request);
      yield { events: [request] };
    }
  }
  const release = await lock(api, "events");
  // On a connection of its own, which other calls do not share.
  const call = createClient(EventService, grpc(api, secret)).publishEvents(flood());
  onTestFinished(release);
  await expect.poll(() => sent.length).toBeGreaterThan(1);
  // Until no more come. How many the buffers between the two ends take is the operating system's.
  for (let before = 0; sent.length > before; await othersHaveArrived()) before = sent.length;
  expect(sent.length).toBeLessThan(90);
  await release();
  expect(outcomes((await call).results)).toHaveLength(100);
  expect(await storedUnder(sent)).toHaveLength(100);
});

/**
 * Publishes fewer events than a connection has streams while nothing can be written, until all have arrived. The first
 * are being written, as far as the lock lets them.
 */
async function publishTogether(requests: readonly Request[]): Promise<(Code | undefined)[]> {
  const release = await lock(api, "events");
  onTestFinished(release);
  const calls = requests.map((request) => failure(events.publishEvent(request)));
  await othersHaveArrived();
  await release();
  return (await Promise.all(calls)).map((error) => error?.code);
}

test("publishes that arrive together are written together", async () => {
  const requests = many(80);
  await publishTogether(requests);
  const [found] = await rows<{ statements: number }>(
    db,
    "select count(distinct xmin::text)::int as statements from events where idempotency_key = any(:keys::text[])",
    { keys: keysOf(requests) },
  );
  expect(found?.statements).toBeLessThan(27);
});

test("publishes for many webhooks are written some thousand deliveries at a time, however many come at once", async () => {
  const webhooks = 300;
  await queueMany(db, { urlPrefix: "https://receiver.example/wide/", webhooks, events: 0 });
  // After the first one it is known how many deliveries an event has.
  const requests = many(41);
  await events.publishEvent(requests[0] as Request);
  await publishTogether(requests.slice(1));
  const [found] = await rows<{ all: number; most: number }>(
    db,
    `select sum(n)::int as all, max(n)::int as most from (
      select count(*) as n from queue where event_id in (select id from events where idempotency_key = any(:keys::text[]))
      group by xmin::text) s`,
    { keys: keysOf(requests) },
  );
  expect(found?.all).toBe(41 * (webhooks + 1));
  expect(found?.most).toBeLessThan(10_000);
  await db("webhooks").whereLike("url", "%/wide/%").update({ deleted: new Date() });
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

test("a key that was revoked publishes nothing more, however many of its calls are under way", async () => {
  const key = await api.key({ permissions: ONLY.publish });
  const caller = api.as(key.secret).events;
  let revoked = false;
  const afterwards: (Code | undefined)[] = [];
  const callers = Array.from({ length: 20 }, async () => {
    for (;;) {
      const late = revoked;
      const error = await failure(caller.publishEvent(orderEvent()));
      if (late) afterwards.push(error?.code);
      if (error) return;
    }
  });
  await expect.poll(() => db("events").where("api_key_id", key.id)).not.toEqual([]);
  await revokeApiKey(db, "everything", key.id, "delete");
  revoked = true;
  await Promise.all(callers);
  afterwards.push((await failure(caller.publishEvent(orderEvent())))?.code);
  expect(new Set(afterwards)).toEqual(new Set([Code.Unauthenticated]));
});
