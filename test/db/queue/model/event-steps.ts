import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { expect } from "vitest";
import { type Db, rows } from "../../../../src/db/database.ts";
import { eraseOldPayloads, erasePayloads, finishErasures } from "../../../../src/db/events/erase.ts";
import { fanOutStep } from "../../../../src/db/events/fan-out.ts";
import { type NewEvent, publishEvents } from "../../../../src/db/events/publish.ts";
import { queueTestEvent } from "../../../../src/db/events/test-events.ts";
import { firstIdOf } from "../../../../src/db/partitions.ts";
import { call, callUntilAnswered } from "./faults.ts";
import { USERS } from "./filters.ts";
import { type Effect, ends, NO_EFFECT, type StorageModel } from "./model.ts";
import { always, fault, inWords, number, often, pick, type Step, step } from "./step.ts";

/** Few, so that histories reach every branch: events for more webhooks are fanned out, so many in a step. */
const MAX_INLINE = 3;
const FAN_OUT_STEP = 2;

const userId = fc.constantFrom(...USERS);
const process = fc.integer({ min: 1, max: 2 });

/** New rows of the queue, of the model's events. */
const queues =
  (model: StorageModel, eventIds: ReadonlySet<string>): Effect["may"] =>
  (before, after) =>
    before === null &&
    after?.table === "queue" &&
    eventIds.has(after.eventId) &&
    after.attempts === 0 &&
    after.claims === 0 &&
    after.claimedBy === null &&
    model.eventOf(after).recipients.has(after.webhookId);

const publish = fc
  .record({ events: fc.array(fc.record({ process, userId }), { minLength: 1, maxLength: 2 }), fault })
  .map(({ events, fault }) =>
    step(
      `publish ${events.map((event) => `an event of type ${event.process} of ${event.userId}`).join(" and ")}${inWords(fault)}`,
      always,
      async (model, on) => {
        const wanted = events.map(
          (event): NewEvent => ({
            ...event,
            apiKeyId: model.apiKeyId,
            idempotencyKey: randomUUID(),
            requestSha256: "00",
            occurred: null,
            payload: "{}",
          }),
        );
        const heard = await call(on, fault, (broken) => publishEvents(broken, wanted, MAX_INLINE));
        // Who hears no answer publishes again, and who hears one may.
        const again = await publishEvents(on, wanted, MAX_INLINE);
        const isStored = heard !== null || fault === "answer lost";
        const eventIds = new Set<string>();
        let inline = 0;
        for (const [index, made] of again.entries()) {
          const { process, userId } = wanted[index] as NewEvent;
          if ("firstEventId" in made) throw new Error("the idempotency key is another event's");
          expect(made.duplicate).toBe(isStored);
          const recipients = model.liveWebhooks.filter((webhook) => webhook.process === process);
          const queued = heard ? heard.answer[index] : made;
          if (!isStored || heard)
            expect(queued).toMatchObject({ eventId: made.eventId, queued: recipients.length });
          const event = { id: made.eventId, process, userId, test: false, erased: false };
          model.events.set(event.id, { ...event, recipients: new Set(recipients.map(({ id }) => id)) });
          eventIds.add(made.eventId);
          if (recipients.length <= MAX_INLINE) inline += recipients.length;
        }
        return { may: queues(model, eventIds), changes: inline };
      },
    ),
  );

const publishTest = number.map((n) =>
  step(
    `send a test event to webhook ${n}`,
    (model) => pick(model.liveWebhooks, n),
    async (model, on, { id, process }) => {
      const event = { apiKeyId: model.apiKeyId, webhookId: id, process, payload: "{}" };
      const made = await queueTestEvent(on, "everything", event);
      const eventId = made?.eventId as string;
      const stored = { id: eventId, process, userId: "test", test: true, erased: false };
      model.events.set(eventId, { ...stored, recipients: new Set([id]) });
      return { may: queues(model, new Set([eventId])), changes: 1, replacesProbes: true };
    },
  ),
);

const fanOut = fault.map((fault) =>
  step(`fan out${inWords(fault)}`, always, async (model, on) => {
    const waiting = [...model.now.events.values()].filter(({ remaining }) => remaining > 0);
    const heard = await call(on, fault, (broken) => fanOutStep(broken, FAN_OUT_STEP));
    const first = waiting[0];
    const queued = Math.min(FAN_OUT_STEP, first?.remaining ?? 0);
    if (heard)
      expect(heard.answer).toEqual(
        first ? { queued, remaining: first.remaining - queued, missing: 0 } : null,
      );
    const done = heard !== null || fault === "answer lost";
    return {
      may: queues(model, new Set(waiting.slice(0, 1).map(({ id }) => id))),
      changes: done ? queued : 0,
    };
  }),
);

const erase = fc
  .record({ userId, limit: fc.integer({ min: 1, max: 3 }), fault })
  .map(({ userId, limit, fault }) =>
    step(`erase ${limit} payloads of ${userId}${inWords(fault)}`, always, async (model, on) => {
      const events = [...model.events.values()]
        .filter((event) => event.userId === userId && !event.erased)
        .sort((one, other) => (one.id < other.id ? -1 : 1))
        .slice(0, limit);
      const eventIds = new Set(events.map(({ id }) => id));
      const free = model.places.filter(
        (place) => place.table !== "deliveries" && eventIds.has(place.eventId) && !model.isHeld(place),
      );
      const heard = await call(on, fault, (broken) => erasePayloads(broken, userId, limit));
      if (heard) expect(heard.answer).toEqual({ erased: events.length, cancelled: free.length });
      if (!heard && fault !== "answer lost") return NO_EFFECT;
      for (const event of events) {
        event.erased = true;
        const queued = new Set(
          model.places.filter(({ eventId }) => eventId === event.id).map(({ webhookId }) => webhookId),
        );
        // No further deliveries are queued.
        for (const id of event.recipients) if (!queued.has(id)) event.recipients.delete(id);
      }
      await expectNoResponses(on, [...eventIds]);
      return ends(free, "payload erased");
    }),
  );

const finishErasing = fault.map((fault) =>
  step(`finish erasures${inWords(fault)}`, always, async (model, on) => {
    const open = model.places.filter((place) => place.table !== "deliveries" && model.eventOf(place).erased);
    const held = new Set(open.filter((place) => model.isHeld(place)).map(({ eventId }) => eventId));
    const free = open.filter((place) => !model.isHeld(place));
    const heard = await call(on, fault, finishErasures);
    if (heard) expect(heard.answer).toBe(free.length);
    if (!heard && fault !== "answer lost") return NO_EFFECT;
    const finished = [...model.events.values()].filter(({ id, erased }) => erased && !held.has(id));
    await expectNoResponses(
      on,
      finished.map(({ id }) => id),
    );
    return ends(free, "payload erased");
  }),
);

/** Responses may repeat the payload. */
async function expectNoResponses(on: Db, eventIds: readonly string[]): Promise<void> {
  const left = await rows(
    on,
    `select a.delivery_id, a.number from all_attempts a join all_deliveries d on d.id = a.delivery_id
      where d.event_id = any(:eventIds::uuid[]) and a.response_start is not null`,
    { eventIds },
  );
  expect(left, "responses of erased events").toEqual([]);
}

const retain = fault.map((fault) =>
  step(`erase old payloads${inWords(fault)}`, always, async (model, on) => {
    // Every payload is old.
    const tomorrow = firstIdOf(new Date(Date.now() + 86_400_000));
    await callUntilAnswered(on, typeof fault === "number" ? null : fault, async (db) => {
      while ((await eraseOldPayloads(db, tomorrow, 1_000)) > 0);
    });
    const open = new Set(
      model.places.filter(({ table }) => table !== "deliveries").map(({ eventId }) => eventId),
    );
    const erased = await rows<{ id: string }>(on, "select id from events where payload is null order by id");
    for (const { id } of erased) {
      const event = model.events.get(id);
      if (!event || event.erased) continue;
      expect(open.has(id) || (model.now.events.get(id)?.remaining ?? 0) > 0, "an open delivery").toBe(false);
      event.erased = true;
    }
    const isOpen = (id: string) => open.has(id) || (model.now.events.get(id)?.remaining ?? 0) > 0;
    const someOpen = [...model.events.keys()].some(isOpen);
    for (const event of model.events.values()) {
      // All are of the same day, or of two.
      if (isOpen(event.id)) event.kept = true;
      else if (!someOpen || !event.kept) expect(event.erased, "an old payload is erased").toBe(true);
    }
    return NO_EFFECT;
  }),
);

/** Events are published, fanned out and erased. */
export const eventSteps: fc.Arbitrary<Step>[] = [
  ...often(7, publish),
  publishTest,
  ...often(3, fanOut),
  erase,
  finishErasing,
];

/** Retention erases payloads. */
export const retentionSteps: fc.Arbitrary<Step>[] = [retain];
