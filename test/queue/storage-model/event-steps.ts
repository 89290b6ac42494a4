import { expect } from "vitest";
import { eraseOldPayloads, erasePayloads, finishErasures } from "../../../src/events/erase.ts";
import { fanOutStep } from "../../../src/events/fan-out.ts";
import { publishEvents } from "../../../src/events/publish.ts";
import { queueTestEvent } from "../../../src/events/test-events.ts";
import { rows } from "../../../src/lib/pg/database.ts";
import { firstIdOf } from "../../../src/schema/partitions.ts";
import { anEvent } from "../../support/new-event.ts";
import { type Effect, ends, isFor, type ModelEvent, NO_EFFECT, type StorageModel, USERS } from "./model.ts";
import { always, type Chance, pick, steps } from "./step.ts";

/** Few, so that histories reach every branch: events for more webhooks are fanned out, so many in a step. */
const MAX_INLINE = 3;
const FAN_OUT_STEP = 2;

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

const userOf = (n: number) => pick(USERS, n) as string;

/** One or two events. */
const chosenEvents = ({ n, m }: Chance) =>
  [0, 1].slice(n % 2).map((k) => ({ process: 1 + ((m + k) % 2), userId: userOf(n + k) }));

const publish = steps(
  7,
  (chance) =>
    `publish ${chosenEvents(chance)
      .map(({ process, userId }) => `an event of type ${process} of ${userId}`)
      .join(" and ")}`,
  always,
  async (model, _chosen, chance) => {
    const { apiKeyId } = model;
    const chosen = chosenEvents(chance);
    const wanted = chosen.map((event) => anEvent({ ...event, apiKeyId, payload: "{}" }));
    const { heard, done, answer } = await model.call(chance.fault, (db) =>
      publishEvents(db, wanted, MAX_INLINE),
    );
    // Who hears no answer publishes again, and who hears one may.
    const again = await publishEvents(model.db, wanted, MAX_INLINE);
    const eventIds = new Set<string>();
    let inline = 0;
    for (const [index, { process, userId }] of chosen.entries()) {
      const made = again[index];
      if (!made || "firstEventId" in made) throw new Error("the idempotency key is another event's");
      expect(made.duplicate).toBe(done);
      const { eventId } = made;
      const recipients = model.liveWebhooks.filter((webhook) => isFor({ process, userId }, webhook));
      if (heard || !done)
        expect(heard ? answer[index] : made).toMatchObject({ eventId, queued: recipients.length });
      model.addEvent({ id: eventId, process, userId, test: false }, recipients);
      eventIds.add(eventId);
      if (recipients.length <= MAX_INLINE) inline += recipients.length;
    }
    return { may: queues(model, eventIds), changes: inline };
  },
);

const publishTest = steps(
  1,
  ({ n }) => `send a test event to webhook ${n}`,
  (model, { n }) => pick(model.liveWebhooks, n),
  async (model, webhook) => {
    const { id: webhookId, process, customer } = webhook;
    const event = { apiKeyId: model.apiKeyId, webhookId, process, payload: "{}" };
    const eventId = (await queueTestEvent(model.db, "everything", event))?.eventId as string;
    model.addEvent({ id: eventId, process, userId: customer ?? "test", test: true }, [webhook]);
    return { may: queues(model, new Set([eventId])), changes: 1, replacesProbes: true };
  },
);

const fanOut = steps(3, "fan out", always, async (model, _chosen, { fault }) => {
  const [first] = [...model.now.events.values()].filter(({ remaining }) => remaining > 0);
  const { heard, done, answer } = await model.call(fault, (db) => fanOutStep(db, FAN_OUT_STEP));
  const queued = Math.min(FAN_OUT_STEP, first?.remaining ?? 0);
  const told = first ? { queued, remaining: first.remaining - queued, missing: 0 } : null;
  if (heard) expect(answer).toEqual(told);
  return { may: queues(model, new Set(first ? [first.id] : [])), changes: done ? queued : 0 };
});

const erase = steps(
  1,
  ({ n, m }) => `erase ${1 + (m % 3)} payloads of ${userOf(n)}`,
  always,
  async (model, _chosen, { n, m, fault }) => {
    const userId = userOf(n);
    const limit = 1 + (m % 3);
    const events = [...model.events.values()]
      .filter((event) => event.userId === userId && !event.erased)
      .sort((one, other) => (one.id < other.id ? -1 : 1))
      .slice(0, limit);
    const eventIds = new Set(events.map(({ id }) => id));
    const free = model.open.filter((place) => eventIds.has(place.eventId) && !model.isHeld(place));
    const { heard, done, answer } = await model.call(fault, (db) => erasePayloads(db, userId, limit));
    if (heard) expect(answer).toMatchObject({ erased: events.length, cancelled: free.length });
    if (!done) return NO_EFFECT;
    for (const event of events) {
      event.erased = true;
      const places = model.places.filter(({ eventId }) => eventId === event.id);
      const queued = new Set(places.map(({ webhookId }) => webhookId));
      // No further deliveries are queued.
      for (const id of event.recipients) if (!queued.has(id)) event.recipients.delete(id);
    }
    await expectNoResponses(model, events);
    return ends(free, "payload erased");
  },
);

const finishErasing = steps(1, "finish erasures", always, async (model, _chosen, { fault }) => {
  const open = model.open.filter((place) => model.eventOf(place).erased);
  const held = new Set(open.filter((place) => model.isHeld(place)).map(({ eventId }) => eventId));
  const free = open.filter((place) => !model.isHeld(place));
  const { heard, done, answer } = await model.call(fault, finishErasures);
  if (heard) expect(answer).toBe(free.length);
  if (!done) return NO_EFFECT;
  const finished = [...model.events.values()].filter(({ id, erased }) => erased && !held.has(id));
  await expectNoResponses(model, finished);
  return ends(free, "payload erased");
});

/** Responses may repeat the payload. */
async function expectNoResponses({ db }: StorageModel, events: readonly ModelEvent[]): Promise<void> {
  const left = await rows(
    db,
    `select a.delivery_id, a.number from all_attempts a join all_deliveries d on d.id = a.delivery_id
      where d.event_id = any(:eventIds::uuid[]) and a.response_start is not null`,
    { eventIds: events.map(({ id }) => id) },
  );
  expect(left, "responses of erased events").toEqual([]);
}

const retain = steps(1, "erase old payloads", always, async (model, _chosen, { fault }) => {
  // Every payload is old.
  const tomorrow = firstIdOf(new Date(Date.now() + 86_400_000));
  await model.callUntilAnswered(typeof fault === "number" ? null : fault, async (db) => {
    while ((await eraseOldPayloads(db, tomorrow, 1_000)) > 0);
  });
  const open = new Set(model.open.map(({ eventId }) => eventId));
  const isOpen = (id: string) => open.has(id) || (model.now.events.get(id)?.remaining ?? 0) > 0;
  for (const { id } of await rows<{ id: string }>(model.db, "select id from events where payload is null")) {
    const event = model.events.get(id);
    if (!event || event.erased) continue;
    expect(isOpen(id), "an open delivery").toBe(false);
    event.erased = true;
  }
  const someOpen = [...model.events.keys()].some(isOpen);
  for (const event of model.events.values()) {
    // All are of the same day, or of two.
    if (isOpen(event.id)) event.kept = true;
    else if (!someOpen || !event.kept) expect(event.erased, "an old payload is erased").toBe(true);
  }
  return NO_EFFECT;
});

/** Events are published, fanned out and erased, by retention too. */
export const eventSteps = [...publish, ...publishTest, ...fanOut, ...erase, ...finishErasing, ...retain];
