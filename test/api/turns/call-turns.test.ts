import { pbkdf2Sync } from "node:crypto";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { RetryInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { CallTurns } from "../../../src/api/turns/call-turns.ts";
import { readsMuch } from "../../../src/api/turns/heavy-methods.ts";
import { ALL_SERVICES } from "../../../src/app/services.ts";
import { ALL_PERMISSIONS } from "../../../src/keys/api-keys.ts";
import { openDatabase } from "../../../src/lib/pg/database.ts";
import { METHODS } from "../../support/any-method.ts";
import { grpc, PROTOCOLS } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { lock, orderEvent, waitingQueries } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { serviceClients } from "../../support/service-clients.ts";
import { idAt, storeDeliveries } from "../../support/stored-deliveries.ts";
import { freshUrl, ONLY, startTestApi } from "../../support/test-api.ts";

/** The statements that read much at once, of the ten connections of the test's API: in all, and of a key. */
const AT_ONCE = 3;
const OF_KEY = 2;
/** The changes of a key at once. */
const CHANGES_OF_KEY = 3;
/** The statements of a key's calls over REST at once, and its calls that may wait. */
const REST_OF_KEY = 1;
const REST_WAITING = 1_000;
/** The calls of a key that may wait. */
const WAITING = 50;
/** The exports that a key may have open. */
const EXPORTS = 20;

const api = await startTestApi();
/** Connections beside the API's. */
const beside = { context: { db: openDatabase(api.databaseUrl, { max: 2, applicationName: "test" }) } };
afterAll(async () => {
  await api.stop();
  await beside.context.db.destroy();
});
const webhookId = await api.register();
await storeDeliveries(
  api.context.db,
  Array.from({ length: 1_200 }, (_, n) => ({ id: idAt(new Date(), n), webhookId, state: "delivered" })),
);

/** Clients of a new key. */
async function aCaller(permissions: readonly number[] = ONLY.read) {
  const { secret } = await api.key({ permissions });
  return clientsOf(secret);
}

/** Clients with a separate connection: streams that nobody reads block the other streams of their connection. */
function clientsOf(secret: string) {
  const connection = new Http2SessionManager(api.grpcUrl);
  onTestFinished(() => connection.abort());
  const clients = serviceClients((service) => createClient(service, grpc(api, secret, connection)));
  return { secret, connection, ...clients };
}

/** Has all lists and exports of deliveries wait until it is called. */
async function holdReads(): Promise<() => Promise<void>> {
  const release = await lock(beside, "attempts");
  onTestFinished(release);
  return release;
}

const expectWaiting = (statements: number) => expect.poll(() => waitingQueries(beside)).toBe(statements);

async function readAll(messages: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _ of messages) count += 1;
  return count;
}

test("while reads use all of their connections, calls that read little and the contract's calls are answered", async () => {
  const busy = await aCaller();
  const [other, third] = [await aCaller(ALL_PERMISSIONS), await aCaller()];
  const release = await holdReads();
  const lists = Array.from({ length: 40 }, () => busy.deliveries.listDeliveries({ pageSize: 1_000 }));
  const exports = Array.from({ length: 10 }, () => readAll(busy.deliveries.exportDeliveries({})));
  await expectWaiting(OF_KEY);
  const others = [other, third].map(({ deliveries }) => deliveries.listDeliveries({}));
  await expectWaiting(AT_ONCE);

  expect((await other.webhooks.getWebhook({ webhookId })).webhook?.id).toBe(webhookId);
  await other.events.publishEvent(orderEvent());
  await other.webhooks.updateWebhook({ webhookId, name: "Shop" });
  const key = other.secret;
  const made = await api.rest("POST", "/api/webhook", { key, query: { process: "1", url: freshUrl() } });
  expect(made.status).toBe(200);
  const listed = await api.rest("GET", "/api/webhook/list", { key });
  expect(listed.envelope.Data).toHaveLength(2);
  const query = { webhookId: String(made.envelope.Data.Id) };
  expect((await api.rest("DELETE", "/api/webhook", { key, query })).status).toBe(200);

  expect(await waitingQueries(beside)).toBe(AT_ONCE);
  await release();
  for (const { deliveries } of await Promise.all(lists)) expect(deliveries).toHaveLength(1_000);
  for (const messages of await Promise.all(exports)) expect(messages).toBeGreaterThan(2);
  await Promise.all(others);
});

test("while a key's changes wait for each other, they leave connections to other keys and to publishing", async () => {
  const [busy, other] = [await aCaller(ALL_PERMISSIONS), await aCaller(ALL_PERMISSIONS)];
  const mine = await api.register();
  const holding = await beside.context.db.transaction();
  onTestFinished(async () => void (await holding.rollback()));
  await holding.raw("select from webhooks where id = ? for update", [String(webhookId)]);
  const changes = Array.from({ length: 40 }, (_, n) =>
    busy.webhooks.updateWebhook({ webhookId, name: `Shop ${n}` }),
  );
  await expectWaiting(CHANGES_OF_KEY);

  expect((await other.webhooks.getWebhook({ webhookId })).webhook?.id).toBe(webhookId);
  await other.webhooks.updateWebhook({ webhookId: mine, name: "Mine" });
  await busy.events.publishEvent(orderEvent());
  expect((await busy.deliveries.listDeliveries({ pageSize: 1 })).deliveries).toHaveLength(1);

  expect(await waitingQueries(beside)).toBe(CHANGES_OF_KEY);
  await holding.rollback();
  await Promise.all(changes);
});

test("a key's calls over REST leave connections to those of other keys, and wait for no calls of gRPC", async () => {
  const [busy, other] = [await aCaller(), await aCaller(ALL_PERMISSIONS)];
  const release = await lock(beside, "webhooks");
  onTestFinished(release);
  const list = (key: string) => api.rest("GET", "/api/webhook/list", { key });
  const lists = Array.from({ length: 40 }, () => list(busy.secret));
  await expectWaiting(REST_OF_KEY);
  const otherList = list(other.secret);
  await expectWaiting(2 * REST_OF_KEY);
  const reads = Array.from({ length: 5 }, () => busy.webhooks.listWebhooks({}));
  await expectWaiting(2 * REST_OF_KEY + OF_KEY);

  expect((await other.keys.listApiKeys({ pageSize: 1 })).apiKeys).toHaveLength(1);

  expect(await waitingQueries(beside)).toBe(2 * REST_OF_KEY + OF_KEY);
  await release();
  for (const { status } of await Promise.all([...lists, otherList])) expect(status).toBe(200);
  await Promise.all(reads);
});

test("a key's calls over REST beyond those that may wait are refused with the time to retry, other keys' are not", async () => {
  const turns = new CallTurns(10, readsMuch(ALL_SERVICES));
  const { signal } = new AbortController();
  const held = Promise.withResolvers<void>();
  const call = (key: string) =>
    turns.ofContract(WebhookService.method.createWebhook, key).run(() => held.promise, signal);
  const calls = Array.from({ length: REST_OF_KEY + REST_WAITING }, () => call("busy"));
  await expect(call("busy")).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED", retryAfterMs: 1_000 });
  calls.push(call("other"));
  held.resolve();
  await Promise.all(calls);
});

test("a key's calls beyond those that may wait are refused with the time to retry, other keys' are not", async () => {
  const [busy, other] = [await aCaller(), await aCaller()];
  const release = await holdReads();
  const calls = Array.from({ length: OF_KEY + WAITING + 1 }, () =>
    failure(busy.deliveries.listDeliveries({})),
  );
  const refused = await Promise.race(calls);
  await expectRefused(Promise.reject(refused), Code.ResourceExhausted, /50 reads.*retry/, "LIMIT_REACHED");
  expect(refused?.findDetails(RetryInfoSchema)).toMatchObject([{ retryDelay: { seconds: 1n } }]);
  const others = other.deliveries.listDeliveries({});
  await expectWaiting(AT_ONCE);
  await release();
  const failures = (await Promise.all(calls)).filter((error) => error !== undefined);
  expect(failures).toEqual([refused]);
  await others;
});

test.each(PROTOCOLS)(
  "an export over %s that its client closes ends its statement",
  async (_name, protocol) => {
    const { secret } = await api.key({ permissions: ONLY.read });
    const { exportDeliveries } = createClient(DeliveryService, protocol(api, secret));
    await holdReads();
    const gone = new AbortController();
    const exported = (signal: AbortSignal) => failure(readAll(exportDeliveries({}, { signal })));
    const calls = Array.from({ length: OF_KEY }, () => exported(gone.signal));
    await expectWaiting(OF_KEY);
    gone.abort();
    for (const error of await Promise.all(calls)) expect(error?.code).toBe(Code.Canceled);
    await expectWaiting(0);
    // Their turns are free.
    const later = new AbortController();
    const next = exported(later.signal);
    await expectWaiting(1);
    later.abort();
    await next;
    await expectWaiting(0);
  },
);

test("exports that their client does not read keep no turn and no connection, and a key has few of them", async () => {
  const [unread, other] = [await aCaller(), await aCaller()];
  const release = await holdReads();
  const refused: unknown[] = [];
  for (let n = 0; n < 3 * EXPORTS; n += 1) {
    const responses = unread.deliveries.exportDeliveries({})[Symbol.asyncIterator]();
    responses.next().catch((error: unknown) => refused.push(error));
  }
  await expectWaiting(OF_KEY);
  await expect.poll(() => refused.length).toBe(2 * EXPORTS);
  const text = /20 exports open, the maximum.*cancel some/;
  await expectRefused(Promise.reject(refused[0]), Code.ResourceExhausted, text, "LIMIT_REACHED");
  expect((await other.webhooks.getWebhook({ webhookId })).webhook?.id).toBe(webhookId);
  await release();
  // The key's next call comes after all of them.
  const { deliveries } = clientsOf(unread.secret);
  expect((await deliveries.listDeliveries({})).deliveries).toHaveLength(100);
  await expect.poll(() => api.context.db.client.pool.numUsed()).toBe(0);
  unread.connection.abort();
  await expect.poll(() => failure(readAll(deliveries.exportDeliveries({})))).toBeUndefined();
});

test("after a result that takes the thread long, other work has many turns before the next one", async () => {
  const turns = new CallTurns(10, readsMuch(ALL_SERVICES));
  let others = 0;
  let hasEnded = false;
  const count = () => {
    others += 1;
    if (!hasEnded) setImmediate(count);
  };
  const before: number[] = [];
  const reads = ["one", "another", "a third"].map(async (key) => {
    await turns.of(DeliveryService.method.listDeliveries, key).run(async () => {}, undefined);
    before.push(others);
    // Waits for nothing, as the conversion of 1,000 rows does.
    pbkdf2Sync("", "", 500_000, 32, "sha512");
  });
  count();
  await Promise.all(reads);
  hasEnded = true;
  const [first = 0, second = 0, third = 0] = before;
  expect(second - first).toBeGreaterThan(5);
  expect(third - second).toBeGreaterThan(5);
});

test("a statement that reads for too long is cancelled, and the error says how to ask for less", async () => {
  const hasty = await startTestApi({ databaseUrl: api.databaseUrl, maxReadMs: 100 });
  onTestFinished(() => hasty.stop());
  await holdReads();
  const list = hasty.deliveries.listDeliveries({});
  await expectRefused(
    list,
    Code.ResourceExhausted,
    /longer than 0\.1 s.*shorter time range/,
    "LIMIT_REACHED",
  );
  await expectWaiting(0);
});

test("every method that only reads and returns a list takes turns, except those that read little", () => {
  const reads = METHODS.filter(
    ([, { idempotency }]) => idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS,
  );
  const little = reads.filter(([, method]) => !readsMuch(ALL_SERVICES)(method)).map(([name]) => name);
  expect(little).toEqual([
    "WebhookService.GetWebhook",
    "WebhookService.ListProcesses",
    "WebhookService.GetWebhookSecret",
    "WebhookService.GetWebhookKeyPairs",
    "WebhookService.GetWebhookRequestSettings",
    "WebhookService.TryWebhookFilter",
    "DeliveryService.GetDelivery",
    "EndpointService.GetEndpoint",
  ]);
});
