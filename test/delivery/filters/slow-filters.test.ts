import { expect, test } from "vitest";
import { count, rows } from "../../../src/lib/pg/database.ts";
import { updateWebhook } from "../../../src/webhooks/webhook-update.ts";
import { SLOWEST_FILTER } from "../../filters/attacks.ts";
import { aReceiver } from "../../support/receivers.ts";
import { type EngineParts, freshRun, pump, queueFor, states, useEngine } from "../engine-parts.ts";

const SLOW = 3;
const EVENTS = 10;

/** Webhooks with a slow filter, and then one without a filter and one with a usual one. */
async function queueBesideSlow(parts: EngineParts, url: string): Promise<void> {
  const ids = await queueFor(parts, url, { webhooks: SLOW + 2, events: EVENTS });
  await parts.db.raw(`update events set payload = replace(payload, '"N"', '"OrderId"')`);
  const slow = ids.slice(0, SLOW);
  await count(parts.db, "update webhooks set filter = :filter where id = any(:slow::bigint[])", {
    filter: SLOWEST_FILTER,
    slow: slow.map(String),
  });
  await count(parts.db, "update webhooks set filter = 'event.order_id > 5' where id = :last::bigint", {
    last: ids.at(-1),
  });
}

test("filters that take too long delay the deliveries of their own webhooks alone, whose events are sent", async () => {
  const parts = await useEngine();
  const { url, received } = await aReceiver();
  await queueBesideSlow(parts, url);
  const [none, usual] = [`/${SLOW + 1}`, `/${SLOW + 2}`];
  const firstSlow: string[] = [];
  const pumped = pump(parts.engine, await freshRun(parts.db));
  await expect
    .poll(() => received.filter(({ path }) => path === none || path === usual).length)
    .toBe(EVENTS + EVENTS / 2);
  firstSlow.push(...received.map(({ path }) => path).filter((path) => path !== none && path !== usual));
  expect(firstSlow.length).toBeLessThan((SLOW * EVENTS) / 2);
  await pumped;
  expect(await states(parts)).toEqual({
    "delivered 1": (SLOW + 1) * EVENTS + EVENTS / 2,
    "filtered 0 filter not matched": EVENTS / 2,
  });
});

test("ten slow evaluations in succession switch the filter off until a user sets one; the audit log and a notice say so", async () => {
  const parts = await useEngine();
  const { db, engine } = parts;
  const { url, received } = await aReceiver();
  const [id] = (await queueFor(parts, url, { webhooks: 1, events: 9 })) as [bigint];
  const [subscriber] = (await queueFor(parts, `${url}/notices`, { webhooks: 1, events: 0 })) as [bigint];
  await count(db, "update webhooks set process = 10005 where id = :subscriber::bigint", { subscriber });
  await db.raw(`update events set payload = replace(payload, '"N"', '"OrderId"')`);
  await updateWebhook(db, "everything", id, { filter: SLOWEST_FILTER });
  const read = async () => {
    const [row] = await rows<{ slow: Date | null; stopped: Date | null }>(
      db,
      "select filter_slow as slow, filter_stopped as stopped from webhooks where id = :id::bigint",
      { id },
    );
    return row;
  };
  await pump(engine, await freshRun(db));
  expect(received).toHaveLength(9);
  await expect.poll(read).toMatchObject({ slow: expect.any(Date), stopped: null });

  await queueAgain(parts, id);
  await pump(engine, await freshRun(db));
  await expect.poll(read).toMatchObject({ slow: expect.any(Date), stopped: expect.any(Date) });
  const audit = await rows<{ action: string }>(db, "select action from audit_log where target_id = :id", {
    id: String(id),
  });
  expect(audit.map(({ action }) => action)).toContain("webhook_filter_stopped");
  const notices = await rows<{ payload: string }>(db, "select payload from events where process = 10005");
  expect(notices.map(({ payload }) => JSON.parse(payload))).toMatchObject([
    { Webhook: { Id: Number(id) }, Filter: SLOWEST_FILTER },
  ]);

  await updateWebhook(db, "everything", id, { filter: "false" });
  expect(await read()).toEqual({ slow: null, stopped: null });
  const before = received.filter(({ path }) => path === "/1").length;
  await queueAgain(parts, id);
  await pump(engine, await freshRun(db));
  expect(received.filter(({ path }) => path === "/1")).toHaveLength(before);
});

/** Queues an event for a webhook again. */
async function queueAgain({ db }: EngineParts, id: bigint): Promise<void> {
  await count(
    db,
    `insert into queue (id, event_id, webhook_id)
      select new_delivery_id(e.id), e.id, :id::bigint from events e where e.process = 1 order by e.id limit 1`,
    { id },
  );
}

test("a slow filter that is removed costs nothing from the next evaluation on", async () => {
  const parts = await useEngine();
  const { db, engine } = parts;
  const { url, received } = await aReceiver();
  const [id] = (await queueFor(parts, url, { webhooks: 1, events: 300 })) as [bigint];
  await updateWebhook(db, "everything", id, { filter: SLOWEST_FILTER });
  const pumped = pump(engine, await freshRun(db));
  await expect.poll(() => received.length).toBeGreaterThan(0);
  await updateWebhook(db, "everything", id, { filter: null });
  await pumped;
  expect(received).toHaveLength(300);
  expect((await rows(db, "select from webhooks where filter_stopped is not null")).length).toBe(0);
});
