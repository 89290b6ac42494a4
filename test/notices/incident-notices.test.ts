import { expect, test } from "vitest";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { leaveForgotten } from "../../src/incidents/track.ts";
import { noticeIncidents } from "../../src/notices/incident-notices.ts";
import { useNotices } from "./notice-parts.ts";

const { INCIDENT_OPENED, INCIDENT_CLOSED } = WebhookProcess;
const { db, key, app, register, publish, attemptAll, notices, sent, admin } = await useNotices();

test("an incident causes one notice when it opens and one when it ends, however many webhooks fail", async () => {
  const opened = await register(admin(), INCIDENT_OPENED);
  const closed = await register(admin(), INCIDENT_CLOSED);
  for (let n = 0; n < 3; n += 1) await register(admin());
  await publish(admin(), 1);
  await attemptAll(503);
  expect(await sent()).toEqual([[INCIDENT_OPENED, [opened]]]);
  await publish(admin(), 1);
  await attemptAll(200);
  const found = await notices();
  expect(found.map(({ process, webhooks }) => [process, webhooks])).toEqual([
    [INCIDENT_OPENED, [opened]],
    [INCIDENT_CLOSED, [closed]],
  ]);
  const [incident] = await db("incidents");
  const about = {
    IncidentId: incident.id,
    Cause: "http_5xx",
    Summary: "the receiver answers 503 Service Unavailable",
    Remedy: "see the receiver's log for the reason",
    Subject: "shop.example",
    Webhooks: 3,
  };
  expect(found.map(({ payload }) => payload)).toMatchObject([about, { ...about, Ended: expect.any(String) }]);
});

test("a webhook of an app is told of its app's webhooks only; incidents of others cause it no notice", async () => {
  const owners = [admin(), await key(await app()), await key(await app())];
  const subscribers: bigint[] = [];
  for (const owner of owners) subscribers.push(await register(owner, INCIDENT_OPENED));
  for (const owner of owners.slice(0, 2)) await register(owner);
  await publish(admin(), 1);
  await attemptAll(503);
  const found = (await notices()).sort((a, b) => b.payload.Webhooks - a.payload.Webhooks);
  expect(found.map(({ payload, webhooks }) => [payload.Webhooks, webhooks])).toEqual([
    [2, [subscribers[0]]],
    [1, [subscribers[1]]],
  ]);
});

test("a customer is told of incidents of its own webhooks when these begin and cease to fail, whatever others do at the same host", async () => {
  const [acme, globex] = [await key(undefined, [], "acme"), await key(undefined, [], "globex")];
  const opened = await register(acme, INCIDENT_OPENED);
  const closed = await register(acme, INCIDENT_CLOSED);
  for (const owner of [acme, globex]) await register(owner);
  const attempt = async (userId: string, status: number) => {
    await publish(admin(), 1, 1, userId);
    await attemptAll(status);
    return (await sent()).map(([process, webhooks]) => [process, webhooks]);
  };
  const begun = [INCIDENT_OPENED, [opened]];
  const over = [INCIDENT_CLOSED, [closed]];
  expect(await attempt("globex", 503)).toEqual([]);
  expect(await attempt("acme", 503)).toEqual([begun]);
  expect(await attempt("acme", 200)).toEqual([begun, over]);
  expect(await attempt("globex", 200)).toEqual([begun, over]);
  const found = await notices();
  expect(found.map(({ payload }) => payload.Webhooks)).toEqual([1, 1]);
  expect(found.map(({ userId }) => userId)).toEqual(["acme", "acme"]);
  const shown = await db("incident_webhooks").where({ customer: "acme" }).pluck("shown_id");
  expect(found.map(({ payload }) => payload.IncidentId)).toEqual([...shown, ...shown]);
  expect(await db("incidents").whereIn("id", shown)).toEqual([]);
});

test("a customer's webhook is told of webhooks of its customer, its app and the event types of its key only", async () => {
  const shared = await app();
  const own = await key(undefined, [], "tenant-7");
  const subscribers = [
    own,
    await key(shared, [], "tenant-7"),
    await key(undefined, [2, INCIDENT_OPENED], "tenant-7"),
    await key(undefined, [], "other"),
    await key(shared),
  ];
  const ids: bigint[] = [];
  for (const subscriber of subscribers) ids.push(await register(subscriber, INCIDENT_OPENED));
  const failing = [
    own,
    own,
    await key(shared, [], "tenant-7"),
    admin(),
    await key(await app(), [], "tenant-7"),
  ];
  for (const owner of failing) await register(owner);
  await register(own, 2);
  for (const process of [1, 2]) await publish(admin(), 1, process);
  await attemptAll(503);
  const found = (await notices()).sort((a, b) => b.payload.Webhooks - a.payload.Webhooks);
  const told = found.flatMap(({ payload, webhooks }) => webhooks.map((id) => [id, payload.Webhooks]));
  expect(told.sort(([a], [b]) => Number(a) - Number(b))).toEqual([
    [ids[0], 5],
    [ids[1], 1],
    [ids[2], 1],
  ]);
});

test("the end of an incident by deleting its last webhook causes a notice; that of webhooks of notices does not", async () => {
  const closed = await register(admin(), INCIDENT_CLOSED);
  await register(admin());
  await publish(admin(), 1);
  await attemptAll(503);
  await notices();
  await db("webhook_health").delete();
  await db.transaction(async (trx) => noticeIncidents(trx, await leaveForgotten(trx)));
  expect(await sent()).toEqual([[INCIDENT_CLOSED, [closed]]]);
  // Otherwise the same incident would begin again.
  await db("incidents").update({ closed: new Date(0) });
  await attemptAll(503);
  await notices();
  await db("webhook_health").delete();
  await db.transaction(async (trx) => noticeIncidents(trx, await leaveForgotten(trx)));
  expect(await sent()).toHaveLength(1);
});
