import { Webhook } from "standardwebhooks";
import { expect, test } from "vitest";
import type { ReceivedRequest } from "../../demo/receiver.ts";
import { INITIAL_WINDOW as WINDOW } from "../../src/delivery/limits/windows.ts";
import { queueTestEvent } from "../../src/events/test-events.ts";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import { cancelFirst } from "../../src/queue/deleted-webhooks.ts";
import { createEndpoint } from "../../src/webhooks/endpoints.ts";
import { deleteWebhook } from "../../src/webhooks/webhook-deletion.ts";
import { readWebhookSecrets, rotateWebhookSecret } from "../../src/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { aKey } from "../support/builders.ts";
import { aReceiver, heldReplies } from "../support/receivers.ts";
import { until } from "../support/wait.ts";
import {
  claimed,
  type EngineParts,
  freshRun,
  observed,
  passDue,
  pump,
  queueFor,
  RELEASE,
  states,
  useEngine,
} from "./engine-parts.ts";

const DELIVERIES = 10;

test("the pumps of two processes deliver each event once, with its own payload; those that fail are retried by a pass", async () => {
  const parts = await useEngine();
  const { db, engine } = parts;
  const { url, received } = await aReceiver(({ path, attempt }) =>
    path === "/1" && attempt === 1 ? 503 : 200,
  );
  await queueFor(parts, url, { webhooks: 3, events: 4 });
  // An event with more recipients than one statement queues: these are queued by the pumps.
  await db.raw("update events set recipients = recipients + 3 where idempotency_key = '4'");
  await db.raw("delete from queue where event_id = (select id from events where idempotency_key = '4')");
  await db.raw(`insert into fan_out (event_id, process, revision, remaining, after_webhook_id)
    select id, process, 1, 3, 0 from events where idempotency_key = '4'`);
  const runId = await freshRun(db);
  const results = await Promise.all([engine, parts.another()].map((each) => pump(each, runId)));
  expect(results.map(({ end }) => end)).toEqual(["done", "done"]);
  expect(received.map(({ path, body }) => `${path} ${body}`).toSorted()).toEqual(
    [1, 2, 3].flatMap((webhook) => [1, 2, 3, 4].map((n) => `/${webhook} {"N":${n}}`)),
  );
  expect(await states(parts)).toEqual({ "delivered 1": 8, "retrying 1": 4 });
  expect(await passDue(db, engine, runId)).toMatchObject({ delivered: 4, status: { open: 0 } });
  expect(await states(parts)).toEqual({ "delivered 1": 8, "delivered 2": 4 });
});

/** Changes of a webhook by another process, with the expected states of its deliveries. */
const CHANGES: [string, (parts: EngineParts, id: bigint) => Promise<unknown>, Record<string, number>][] = [
  [
    "it was paused",
    ({ db }, id) => updateWebhook(db, "everything", id, { paused: true }),
    { "delivered 1": WINDOW, "pending 0": DELIVERIES - WINDOW },
  ],
  [
    "it was deleted",
    ({ db }, id) => deleteWebhook(db, id, cancelFirst),
    { "delivered 1": WINDOW, "cancelled 0 webhook deleted": DELIVERIES - WINDOW },
  ],
  [
    "its secret was revoked",
    ({ db, secrets }, id) => rotateWebhookSecret(db, secrets, [id], true),
    { "delivered 1": DELIVERIES },
  ],
];

test.each(CHANGES)("what waits for a webhook is given back once %s", async (_what, change, left) => {
  const released = Promise.withResolvers<void>();
  const wrap = (db: Db) =>
    observed(db, (sql) => {
      if (RELEASE.test(sql)) released.resolve();
    });
  const parts = await useEngine({}, { wrap });
  const held = heldReplies();
  const { url, received } = await aReceiver(held.reply);
  const [id] = (await queueFor(parts, url, { webhooks: 1, events: DELIVERIES })) as [bigint];
  const [old] = (await readWebhookSecrets(parts.db, parts.secrets, id)) ?? [];
  const webhook = new Webhook(old?.secret.toString("base64") as string);
  const isOfOld = ({ body, headers }: ReceivedRequest) => {
    try {
      return webhook.verify(body, headers as Record<string, string>) !== undefined;
    } catch {
      return false;
    }
  };
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await until(async () => held.waiting === WINDOW && (await claimed(parts)) === DELIVERIES);
  await change(parts, id);
  // By then, the engine knows.
  await released.promise;
  held.answer();
  await pumped;
  await expect.poll(() => states(parts)).toEqual(left);
  expect(received).toHaveLength(left["delivered 1"] as number);
  expect(received.filter(isOfOld)).toEqual(received.slice(0, WINDOW));
});

test("the event types of an endpoint share its requests in flight and take turns, and are released together when one is paused", async () => {
  const parts = await useEngine();
  const { db, secrets } = parts;
  await db("processes").insert({ process: 2, revision: 1n, live: 1 });
  const held = heldReplies();
  const { url, received } = await aReceiver(held.reply);
  const { id: apiKeyId } = await aKey().in(db);
  const wanted = { processes: [1, 2], url: `${url}/`, targetUrl: `${url}/`, apiKeyId };
  const { webhooks } = await createEndpoint(db, secrets, "everything", wanted, 100);
  await db.raw(`with e as (
      insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
      select new_event_id(), w.api_key_id, w.id || '/' || n, w.process, 'u', now(), 1, '{}'
      from generate_series(1, 8) n, webhooks w returning id, process
    )
    insert into queue (id, event_id, webhook_id)
    select new_delivery_id(e.id), e.id, w.id from e join webhooks w on w.process = e.process`);
  const pumped = pump(parts.engine, await freshRun(db));
  await until(async () => held.waiting === WINDOW && (await claimed(parts)) === 16);
  const types = received.map(({ headers }) => headers["x-service-webhook-process"]).toSorted();
  expect(types).toEqual(["DocumentCreated", "OrderDispatched"]);
  await updateWebhook(db, "everything", webhooks[0]?.id as bigint, { paused: true });
  await until(async () => (await claimed(parts)) === WINDOW);
  held.answer();
  await pumped;
  expect(await states(parts)).toEqual({ "delivered 1": WINDOW, "pending 0": 16 - WINDOW });
});

test("a run looks for a probe that the filter matches, one after the other, and ends when none is left", async () => {
  const parts = await useEngine();
  const { db, engine } = parts;
  const { url, received } = await aReceiver();
  const events = 3;
  const [id] = (await queueFor(parts, url, { webhooks: 1, events })) as [bigint];
  await db.raw(`update events set payload = replace(payload, '"N"', '"OrderId"')`);
  const breaker = { failures: 5, failingSeconds: 1, probeSeconds: 1, disableSeconds: 432_000 };
  const rest = { disableOnGone: false, resendFailed: false };
  const filter = `event.order_id == ${events}`;
  await updateWebhook(db, "everything", id, { breaker: { ...breaker, ...rest }, filter });
  await db("webhooks").update({ paused: new Date() });
  await db.raw(
    "update webhook_breakers set state = 'open', outage_since = now(), next_probe = now(), due = now()",
  );
  await until(async () => (await rows(db, "select from webhooks where test_delivery is not null")).length);
  expect(await pump(engine, await freshRun(db))).toMatchObject({ delivered: 1, end: "done" });
  expect(received.map(({ body }) => body)).toEqual([`{"OrderId":${events}}`]);
  expect(await rows(db, "select from deliveries where outcome = 'filtered'")).toHaveLength(events - 1);
});

test("while a receiver wants no requests, no process sends it any but test events, also after a restart; neighbours at its host get theirs", async () => {
  const parts = await useEngine();
  const { db, engine } = parts;
  const [events, neighbours] = [20, 2];
  const { url, received } = await aReceiver(({ path, headers }, response) => {
    if (path !== "/1" || headers["x-service-webhook-test"]) return 200;
    response.writeHead(503, { "retry-after": "7200" }).end();
    return undefined;
  });
  const [held] = (await queueFor(parts, url, { webhooks: 1 + neighbours, events })) as [bigint];
  const other = parts.another();
  const runId = await freshRun(db);
  const results = await Promise.all([engine, other].map((each) => pump(each, runId)));
  // They do not wait for an hour.
  expect(results.map(({ end }) => end)).toEqual(["done", "done"]);
  const requests = () => received.filter(({ path }) => path === "/1").length;
  const refused = requests();
  expect(refused).toBeLessThanOrEqual(2 * WINDOW);
  const left = {
    "delivered 1": neighbours * events,
    "retrying 1": refused,
    "pending 0": events - refused,
  };
  expect(await states(parts)).toEqual(left);
  const { id: apiKeyId } = await aKey().in(db);
  await queueTestEvent(db, "everything", { apiKeyId, webhookId: held, process: 1, payload: "{}" });
  const restarted = parts.another();
  for (const each of [restarted, other]) await pump(each, runId);
  expect(await passDue(db, restarted, runId)).toMatchObject({ sent: 0, status: { open: refused } });
  expect(requests()).toBe(refused + 1);
  expect(await states(parts)).toEqual({ ...left, "delivered 1": neighbours * events + 1 });
  await db.raw("update webhooks set held_until = now()");
  await pump(restarted, runId);
  // One request at a time.
  expect(requests()).toBe(refused + 2);
});
