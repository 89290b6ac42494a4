import { setTimeout as wait } from "node:timers/promises";
import { Webhook } from "standardwebhooks";
import { expect, type TestContext, test } from "vitest";
import { type ReceivedRequest, type Receiver, type Reply, startReceiver } from "../../../demo/receiver.ts";
import { plainArray } from "../../../src/db/array-literal.ts";
import { type Db, openDatabase, rows } from "../../../src/db/database.ts";
import { revokeApiKey } from "../../../src/db/keys/key-revocation.ts";
import { deleteKeyPairs, rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { readWebhookSecrets, rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import type { Resolver } from "../../../src/delivery/http/name-resolver.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../../support/database-gateway.ts";
import { trustedAuthority } from "../../support/test-service.ts";
import {
  type EngineOptions,
  type EngineParts,
  freshRun,
  intercepted,
  observed,
  pump,
  queueFor,
  startEngine,
} from "../engine-parts.ts";

/** What the service promises: no POST starts later than this after the change was answered, in milliseconds. */
const PROMISED_MS = 1_000;

async function start(
  { onTestFinished }: TestContext,
  reply: Reply,
  options: EngineOptions = {},
): Promise<{ parts: EngineParts; receiver: Receiver }> {
  // Each webhook gets little at a time, so that much waits.
  const parts = await startEngine({ DELIVERY_MAX_PER_WEBHOOK: "4", DELIVERY_TIMEOUT: "60s" }, options);
  const receiver = await startReceiver(await (await trustedAuthority()).issue(["localhost"]), reply);
  onTestFinished(parts.end);
  onTestFinished(receiver.close);
  // As publishing and registering would have it.
  await parts.db("processes").insert({ process: 1, revision: 1n, live: 1 });
  return { parts, receiver };
}

/** A connection as another process, the API, has it. */
function elsewhere({ onTestFinished }: TestContext, { url }: EngineParts): Db {
  const db = openDatabase(url, { max: 1 });
  onTestFinished(() => db.destroy());
  return db;
}

const claimed = async ({ db }: EngineParts) =>
  (await rows(db, "select from queue where claimed_by is not null")).length;

async function slowly(): Promise<number> {
  await wait(20);
  return 200;
}

/** Answers slowly; after some requests not before `goOn` is called, so that much still waits then on any machine. */
function untilChanged(): { reply: Reply; goOn: () => void } {
  const changed = Promise.withResolvers<void>();
  let requests = 0;
  const reply = async () => {
    requests += 1;
    if (requests > 60) await changed.promise;
    return slowly();
  };
  return { reply, goOn: changed.resolve };
}

/**
 * When each recorded attempt started, in milliseconds since 1970, by the delivery's id. On a busy machine, a request reaches its
 * receiver later.
 */
async function starts({ db }: EngineParts): Promise<Map<string, number>> {
  const attempts = await rows<{ id: string; started: Date }>(
    db,
    "select delivery_id as id, started from all_attempts",
  );
  return new Map(attempts.map(({ id, started }) => [id, started.getTime()]));
}

const changes: [string, (db: Db, id: bigint) => Promise<unknown>, string][] = [
  ["it was paused", (db, id) => updateWebhook(db, "everything", id, { paused: true }), "pending"],
  ["it was deleted", (db, id) => deleteWebhook(db, id), "cancelled"],
  ["its key was revoked", revokeKeyOf, "cancelled"],
];

async function revokeKeyOf(db: Db, id: bigint): Promise<unknown> {
  const [key] = await db("webhooks").where("id", String(id)).pluck("api_key_id");
  return revokeApiKey(db, "everything", key as string, "delete");
}

test.for(changes)(
  "no POST to a webhook starts later than a second after %s elsewhere, with thousands of rows claimed for it",
  async ([_what, change, left], context) => {
    const deliveries = 6_000;
    const { reply, goOn } = untilChanged();
    const { parts, receiver } = await start(context, reply);
    await queueFor(parts, receiver.url, { webhooks: 1, events: deliveries });
    const engines = [parts.engine, parts.another(), parts.another()];
    const runId = await freshRun(parts.db);
    const pumped = Promise.all(engines.map((engine) => pump(engine, runId)));
    await context.expect.poll(() => claimed(parts)).toBeGreaterThan(2_000);
    await receiver.until((received) => received.length > 50);
    const api = elsewhere(context, parts);
    const [webhook] = await rows<{ id: bigint }>(api, "select id from webhooks");
    await change(api, webhook?.id as bigint);
    const answered = Date.now();
    goOn();
    const results = await pumped;
    const last = Math.max(...(await starts(parts)).values());
    expect(last - answered).toBeLessThan(PROMISED_MS);
    // What was not sent is given back, and nothing of it was lost.
    expect(await claimed(parts)).toBe(0);
    const sent = receiver.received.length;
    expect(sent).toBeLessThan(deliveries / 2);
    expect(results.reduce((sum, each) => sum + each.sent, 0)).toBe(sent);
    const states = () =>
      rows(parts.db, "select state, count(*)::int as n from all_deliveries group by 1 order by state::text");
    await context.expect.poll(states).toEqual(
      [
        { state: "delivered", n: sent },
        { state: left, n: deliveries - sent },
      ].sort((a, b) => (a.state < b.state ? -1 : 1)),
    );
  },
);

test.concurrent("what waits goes to the new address once a webhook is moved elsewhere, though the old host hangs with no room left", async (context) => {
  const deliveries = 2_000;
  const hanging: (() => void)[] = [];
  const { parts, receiver } = await start(
    context,
    () => new Promise<number>((resolve) => hanging.push(() => resolve(200))),
  );
  const target = await startReceiver(await (await trustedAuthority()).issue(["localhost"]));
  context.onTestFinished(target.close);
  await queueFor(parts, receiver.url, { webhooks: 2, events: deliveries });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  // Four fit into the window of the host, which both webhooks share.
  await context.expect.poll(() => receiver.received.length, { timeout: 10_000 }).toBe(4);
  await context.expect.poll(() => claimed(parts)).toBeGreaterThan(4);
  const api = elsewhere(context, parts);
  const [webhook, other] = await rows<{ id: bigint }>(api, "select id from webhooks order by id");
  if (!webhook || !other) throw new Error("two webhooks were to be there");
  const started = receiver.received.filter(({ path }) => path === "/1").length;
  const url = `${target.url}/moved`;
  await updateWebhook(api, "everything", webhook.id, { address: { url, targetUrl: url } });
  // All that has not started, while the other webhook's deliveries still wait for the old host.
  await target.until((received) => received.length === deliveries - started);
  expect(receiver.received).toHaveLength(4);
  await updateWebhook(api, "everything", other.id, { paused: true });
  await context.expect.poll(() => claimed(parts)).toBe(4);
  for (const answer of hanging) answer();
  await pumped;
  const delivered =
    "select count(*)::int as n from deliveries where outcome = 'delivered' and webhook_id = :id::bigint";
  expect(await rows(parts.db, delivered, { id: webhook.id })).toEqual([{ n: deliveries }]);
});

const bearer = (token: string) => ({
  headers: [],
  authentication: { kind: "bearer" as const, token },
  tls: null,
});
const replacements: [
  string,
  {
    before?: (parts: EngineParts, id: bigint) => Promise<unknown>;
    change: (parts: EngineParts, api: Db, id: bigint) => Promise<unknown>;
    /** Whether a request shows the state after the change. */
    isNew: (parts: EngineParts, id: bigint) => Promise<(request: ReceivedRequest) => boolean>;
  },
][] = [
  [
    "its secret was revoked",
    {
      change: ({ secrets }, api, id) => rotateWebhookSecret(api, secrets, [id], true),
      async isNew({ db, secrets }, id) {
        const [newest] = (await readWebhookSecrets(db, secrets, "everything", id)) ?? [];
        const webhook = new Webhook(newest?.secret.toString("base64") as string);
        return ({ body, headers }) => {
          try {
            return webhook.verify(body, headers as Record<string, string>) !== undefined;
          } catch {
            return false;
          }
        };
      },
    },
  ],
  [
    "its key pairs were deleted",
    {
      before: ({ db, secrets }, id) => rotateKeyPair(db, secrets, [id], false),
      change: (_parts, api, id) => api.transaction((trx) => deleteKeyPairs(trx, [id])),
      isNew:
        async () =>
        ({ headers }) =>
          !String(headers["webhook-signature"]).includes("v1a,"),
    },
  ],
  [
    "its credentials were replaced",
    {
      before: ({ db, secrets }, id) => writeRequestSettings(db, secrets, [id], bearer("old")),
      change: ({ secrets }, api, id) =>
        api.transaction((trx) => writeRequestSettings(trx, secrets, [id], bearer("new"))),
      isNew:
        async () =>
        ({ headers }) =>
          headers.authorization === "Bearer new",
    },
  ],
];

test.concurrent.for(replacements)(
  "no POST to a webhook shows its old state later than a second after %s elsewhere, with hundreds of rows claimed for it",
  async ([_what, { before, change, isNew }], context) => {
    const deliveries = 500;
    const { reply, goOn } = untilChanged();
    const { parts, receiver } = await start(context, reply);
    await queueFor(parts, receiver.url, { webhooks: 1, events: deliveries });
    const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks");
    const id = webhook?.id as bigint;
    await before?.(parts, id);
    const pumped = pump(parts.engine, await freshRun(parts.db));
    await receiver.until((received) => received.length > 50);
    await context.expect.poll(() => claimed(parts)).toBeGreaterThan(300);
    await change(parts, elsewhere(context, parts), id);
    const answered = Date.now();
    goOn();
    expect(await pumped).toMatchObject({ sent: deliveries, delivered: deliveries });
    // What was released is sent once.
    expect(receiver.received).toHaveLength(deliveries);
    const isOfNew = await isNew(parts, id);
    expect(isOfNew(receiver.received[0] as ReceivedRequest)).toBe(false);
    const started = await starts(parts);
    const startOf = ({ headers }: ReceivedRequest) =>
      started.get(String(headers["x-service-webhook-id"])) as number;
    const late = receiver.received.filter((request) => startOf(request) > answered + PROMISED_MS);
    expect(late.length).toBeGreaterThan(100);
    expect(late.filter((request) => !isOfNew(request))).toHaveLength(0);
  },
);

test.concurrent("deliveries are released once after a change of their webhook, though an earlier request still has no response", async (context) => {
  let [released, looked] = [0, 0];
  const hanging: (() => void)[] = [];
  const { parts, receiver } = await start(
    context,
    () => new Promise<number>((resolve) => hanging.push(() => resolve(200))),
    {
      wrap: (db) =>
        observed(db, (sql) => {
          if (sql.includes("set claims = claims - 1")) released += 1;
          if (sql.includes("w.revision <> k.revision")) looked += 1;
        }),
    },
  );
  await queueFor(parts, receiver.url, { webhooks: 1, events: 100 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await context.expect.poll(() => receiver.received.length, { timeout: 10_000 }).toBe(4);
  await context.expect.poll(() => claimed(parts)).toBeGreaterThan(4);
  const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks");
  const api = elsewhere(context, parts);
  await rotateWebhookSecret(api, parts.secrets, [webhook?.id as bigint], true);
  await context.expect.poll(() => released).toBeGreaterThan(0);
  await context.expect.poll(() => claimed(parts)).toBeGreaterThan(4);
  const look = async () => {
    const seen = looked;
    // As a change of another webhook of the event type.
    await api("processes").increment("revision", 1);
    await context.expect.poll(() => looked).toBeGreaterThan(seen);
  };
  // What was claimed during the change is released after it.
  await look();
  const [before, after] = [released, looked];
  for (let n = 0; n < 3; n += 1) await look();
  expect(looked).toBeGreaterThanOrEqual(after + 3);
  expect(released).toBe(before);
  await updateWebhook(api, "everything", webhook?.id as bigint, { paused: true });
  await context.expect.poll(() => claimed(parts)).toBe(4);
  for (const answer of hanging) answer();
  await pumped;
});

/** A database that releases claims once a claim over all webhooks has found nothing, and tells when a pump waits. */
function lateRelease(db: Db): { db: Db; waits: Promise<void> } {
  const waits = Promise.withResolvers<void>();
  const foundNothing = Promise.withResolvers<void>();
  const late = intercepted(db, (sql, bindings, query) => {
    if (sql.includes("set claims = claims - 1")) return foundNothing.promise.then(() => query);
    if (!sql.includes("with recursive waiting(webhook_id, first_id, n)")) return undefined;
    return query.then((answer) => {
      const found = (answer.rows as { id: string | null }[]).some(({ id }) => id !== null);
      const isOverAll = bindings.includes(plainArray([]));
      if (!found && isOverAll) foundNothing.resolve();
      if (!found) waits.resolve();
      return answer;
    });
  });
  return { db: late, waits: waits.promise };
}

test.concurrent("what a change of its webhook released is sent by the same pump, though that found nothing to claim just then", async (context) => {
  const hanging: ((status: number) => void)[] = [];
  let isChanged = false;
  let waits: Promise<void> | undefined;
  const { parts, receiver } = await start(
    context,
    () => (isChanged ? 200 : new Promise<number>((resolve) => hanging.push(resolve))),
    {
      wrap(db) {
        const late = lateRelease(db);
        waits = late.waits;
        return late.db;
      },
    },
  );
  await queueFor(parts, receiver.url, { webhooks: 1, events: 50 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await context.expect.poll(() => claimed(parts)).toBe(50);
  // From now on, claims leave the webhook out until it changes; or the pump has ended its claims.
  await waits;
  const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks");
  await rotateWebhookSecret(elsewhere(context, parts), parts.secrets, [webhook?.id as bigint], true);
  // Those alone whose requests have no response.
  await context.expect.poll(() => claimed(parts)).toBe(4);
  isChanged = true;
  for (const answer of hanging) answer(200);
  expect(await pumped).toMatchObject({ sent: 50, delivered: 50, end: "done" });
});

test.concurrent("another webhook's deliveries go on while one is paused", async (context) => {
  const { reply, goOn } = untilChanged();
  const { parts, receiver } = await start(context, reply);
  await queueFor(parts, receiver.url, { webhooks: 2, events: 300 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await receiver.until((received) => received.length > 20);
  const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks order by id");
  await updateWebhook(elsewhere(context, parts), "everything", webhook?.id as bigint, { paused: true });
  goOn();
  await pumped;
  const paths = receiver.received.map(({ path }) => path);
  expect(paths.filter((path) => path === "/2")).toHaveLength(300);
  expect(paths.filter((path) => path === "/1").length).toBeLessThan(300);
});

test.concurrent("nothing is sent while the change connection is cut, and all of it afterwards", async (context) => {
  let gateway: DatabaseGateway | undefined;
  const { reply, goOn } = untilChanged();
  const { parts, receiver } = await start(context, reply, {
    async changesUrl(url) {
      gateway = await startDatabaseGateway(url);
      return gateway.url;
    },
  });
  const { set, close } = gateway as unknown as DatabaseGateway;
  context.onTestFinished(close);
  await queueFor(parts, receiver.url, { webhooks: 1, events: 400 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await receiver.until((received) => received.length > 20);
  await set("hang up");
  const cut = Date.now();
  goOn();
  // Long enough for the engine to try to connect several times.
  await wait(PROMISED_MS + 1_500);
  const resumed = Date.now();
  await set("pass");
  expect(await pumped).toMatchObject({ sent: 400, delivered: 400, end: "done" });
  expect(receiver.received).toHaveLength(400);
  const times = [...(await starts(parts)).values()];
  expect(times.filter((at) => at >= cut + PROMISED_MS && at < resumed)).toEqual([]);
  expect(times.filter((at) => at >= resumed).length).toBeGreaterThan(0);
});

test.concurrent("nothing is sent to a webhook that is paused while the lookup of its host's name takes its time", async (context) => {
  const lookups: ((addresses: { address: string; family: number }[]) => void)[] = [];
  const resolver: Resolver = {
    resolve: () => new Promise((resolve) => lookups.push(resolve)),
    close() {},
  };
  const { parts, receiver } = await start(context, () => 200, { resolver });
  await queueFor(parts, receiver.url, { webhooks: 1, events: 10 });
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await context.expect.poll(() => lookups.length).toBe(4);
  const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks");
  await updateWebhook(elsewhere(context, parts), "everything", webhook?.id as bigint, { paused: true });
  await wait(PROMISED_MS);
  for (const resolve of lookups) resolve([{ address: "127.0.0.1", family: 4 }]);
  await pumped;
  expect(receiver.received).toEqual([]);
});

test.concurrent("a paused webhook's test delivery is sent, though other webhooks change while its connection is established", async (context) => {
  let [released, looked] = [0, 0];
  const lookups: ((addresses: { address: string; family: number }[]) => void)[] = [];
  const resolver: Resolver = {
    resolve: () => new Promise((resolve) => lookups.push(resolve)),
    close() {},
  };
  const { parts, receiver } = await start(context, () => 200, {
    resolver,
    wrap: (db) =>
      observed(db, (sql) => {
        if (sql.includes("set claims = claims - 1")) released += 1;
        if (sql.includes("w.revision <> k.revision")) looked += 1;
      }),
  });
  await queueFor(parts, receiver.url, { webhooks: 1, events: 2 });
  await parts.db.raw(
    "update webhooks set paused = now(), test_delivery = (select id from queue order by id limit 1)",
  );
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await context.expect.poll(() => lookups.length).toBe(1);
  for (let n = 0; n < 2; n += 1) {
    const seen = looked;
    await parts.db("processes").increment("revision", 1);
    await context.expect.poll(() => looked).toBeGreaterThan(seen);
  }
  for (const resolve of lookups) resolve([{ address: "127.0.0.1", family: 4 }]);
  await pumped;
  expect(receiver.received).toHaveLength(1);
  expect([released, lookups.length]).toEqual([0, 1]);
});

const resends = [
  ["while the receiver has the request, then closes the connection without a response", "request"],
  ["while the lookup for a new connection takes its time", "lookup"],
] as const;
test.concurrent.for(resends)(
  "a request over a reused connection is not sent again to a webhook that is paused %s",
  async ([_what, paused], context) => {
    const address = [{ address: "127.0.0.1", family: 4 }];
    const lookedUp = Promise.withResolvers<void>();
    let lookups = 0;
    const resolver: Resolver = {
      async resolve() {
        lookups += 1;
        if (lookups > 1) await lookedUp.promise;
        return address;
      },
      close() {},
    };
    const closed = Promise.withResolvers<void>();
    const { parts, receiver } = await start(
      context,
      async ({ path, attempt }, response) => {
        if (path.startsWith("/first") || attempt > 1) return 200;
        await closed.promise;
        response.socket?.destroy();
        return undefined;
      },
      { resolver },
    );
    const runId = await freshRun(parts.db);
    await queueFor(parts, `${receiver.url}/first`, { webhooks: 1, events: 1 });
    await pump(parts.engine, runId);
    await queueFor(parts, `${receiver.url}/second`, { webhooks: 1, events: 1 });
    const pumped = pump(parts.engine, runId);
    await context.expect.poll(() => receiver.received.length).toBe(2);
    if (paused === "lookup") closed.resolve();
    else lookedUp.resolve();
    await context.expect.poll(() => lookups).toBe(paused === "lookup" ? 2 : 1);
    const [webhook] = await rows<{ id: bigint }>(parts.db, "select id from webhooks order by id desc");
    await updateWebhook(elsewhere(context, parts), "everything", webhook?.id as bigint, { paused: true });
    await wait(PROMISED_MS);
    closed.resolve();
    lookedUp.resolve();
    expect(await pumped).toMatchObject({ sent: 0 });
    expect(receiver.received).toHaveLength(2);
    expect(await rows(parts.db, "select claimed_by, claims from queue")).toEqual([
      { claimed_by: null, claims: 0 },
    ]);
  },
);
