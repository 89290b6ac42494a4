import { expect } from "vitest";
import { sendManyAgain } from "../../../src/log/send-again.ts";
import { endBeyond, endExpired } from "../../../src/queue/endings.ts";
import { type Effect, ends, NO_EFFECT, type StorageModel } from "./model.ts";
import type { Place } from "./snapshot.ts";
import { type Chance, pick, steps } from "./step.ts";

/** Another round of ended deliveries, under the next numbers. */
export const startsRound: Effect["may"] = (before, after) =>
  before?.table === "deliveries" &&
  after?.table === "queue" &&
  after.attempts === before.attempts &&
  after.claims === 0 &&
  after.claimedBy === null;

/** Whether an ended delivery can be sent again. */
export const canBeSentAgain = (model: StorageModel, place: Place) =>
  place.table === "deliveries" && model.webhook(place.webhookId).live && !model.eventOf(place).erased;

const STATES = [
  ["delivered", "failed", "cancelled", "filtered"],
  ["filtered"],
  ["failed", "cancelled"],
] as const;

const chosenStates = ({ m }: Chance) => pick(STATES, m) as (typeof STATES)[number];

const sendAgain = steps(
  3,
  (chance) => `send some ${chosenStates(chance).join(" or ")} deliveries of webhook ${chance.n} again`,
  (model, { n }) => pick(model.webhooks, n),
  async (model, { id: webhookId }, chance) => {
    const states = chosenStates(chance);
    const limit = 1 + (chance.m % 4);
    const examined = model.places
      .filter((place) => place.webhookId === webhookId && states.some((state) => state === place.outcome))
      .reverse()
      .slice(0, limit);
    const again = examined.filter((place) => canBeSentAgain(model, place));
    const { heard, done, answer } = await model.call(chance.fault, (db) =>
      sendManyAgain(db, "everything", { webhookId, states }, { limit, retentionDays: 30 }),
    );
    const [sent, skipped] = [again.length, examined.length - again.length];
    if (heard) expect(answer).toMatchObject({ sent, skipped });
    if (!done) return NO_EFFECT;
    return {
      may: (before, after) => again.some(({ id }) => id === before?.id) && startsRound(before, after),
      changes: sent,
    };
  },
);

const expire = steps(
  1,
  ({ n }) => `expire what is older than delivery ${n}`,
  (model, { n, m }) => (m % 5 > 0 ? undefined : pick(model.places, n)),
  async (model, { id: bound }, { fault }) => {
    const most = 2;
    const chosen = (["queue", "retries"] as const).flatMap((table) =>
      model.places
        .filter((place) => place.table === table && place.id < bound && !model.isHeld(place))
        .slice(0, most),
    );
    const { heard, done, answer } = await model.call(fault, (db) => endExpired(db, bound, most));
    if (heard) expect(answer).toBe(chosen.length);
    return done ? ends(chosen, "expired") : NO_EFFECT;
  },
);

const failBeyond = steps(
  1,
  ({ n, m }) => `fail ${1 + (m % 4)} beyond ${1 + (n % 3)} pending deliveries per webhook`,
  (_model, { m }) => (m % 3 === 0 ? true : undefined),
  async (model, _chosen, { n, m, fault }) => {
    const [max, limit] = [1 + (n % 3), 1 + (m % 4)];
    const queued = model.places.filter(({ table }) => table === "queue");
    const isTest = ({ id, webhookId }: Place) => model.now.webhooks.get(webhookId)?.testDelivery === id;
    const beyond = [...Map.groupBy(queued, ({ webhookId }) => webhookId).values()].flatMap((queue) =>
      queue
        .slice(max)
        .filter((place) => !model.isHeld(place) && !isTest(place))
        .reverse()
        .slice(0, limit),
    );
    const { heard, done, answer } = await model.call(fault, (db) => endBeyond(db, max, limit));
    const changes = Math.min(limit, beyond.length);
    if (heard) expect(answer).toBe(changes);
    return done ? { ...ends(beyond, "queue full"), changes } : NO_EFFECT;
  },
);

/** Deliveries end without an attempt, and are sent again. */
export const endingSteps = [...sendAgain, ...expire, ...failBeyond];
