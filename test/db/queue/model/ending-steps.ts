import fc from "fast-check";
import { expect } from "vitest";
import { sendManyAgain } from "../../../../src/db/deliveries/send-again.ts";
import { endBeyond, endExpired } from "../../../../src/db/queue/endings.ts";
import { call } from "./faults.ts";
import { type Effect, ends, NO_EFFECT, type StorageModel } from "./model.ts";
import type { Place } from "./snapshot.ts";
import { fault, inWords, number, often, pick, type Step, step } from "./step.ts";

const byId = (one: Place, other: Place) => (one.id < other.id ? -1 : 1);

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

const sendAgain = fc
  .record({ n: number, states: fc.constantFrom(...STATES), limit: fc.integer({ min: 1, max: 3 }), fault })
  .map(({ n, states, limit, fault }) =>
    step(
      `send ${limit} ${states.join(" or ")} deliveries of webhook ${n} again${inWords(fault)}`,
      (model) => pick(model.webhooks, n),
      async (model, on, { id: webhookId }) => {
        const examined = model.places
          .filter((place) => place.webhookId === webhookId && states.some((state) => state === place.outcome))
          .sort(byId)
          .reverse()
          .slice(0, limit);
        const again = examined.filter((place) => canBeSentAgain(model, place));
        const filter = { webhookId, states };
        const heard = await call(on, fault, (db) =>
          sendManyAgain(db, "everything", filter, { limit, retentionDays: 30 }),
        );
        if (heard)
          expect(heard.answer).toMatchObject({
            sent: again.length,
            skipped: examined.length - again.length,
          });
        if (!heard && fault !== "answer lost") return NO_EFFECT;
        return {
          may: (before, after) => again.some(({ id }) => id === before?.id) && startsRound(before, after),
          changes: again.length,
        };
      },
    ),
  );

const expire = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(
    `expire what is older than delivery ${n}${inWords(fault)}`,
    (model) => (n % 5 > 0 ? undefined : pick(model.places, n)),
    async (model, on, { id: bound }) => {
      const most = 2;
      const chosen = (["queue", "retries"] as const).flatMap((table) =>
        model.places
          .filter((place) => place.table === table && place.id < bound && !model.isHeld(place))
          .sort(byId)
          .slice(0, most),
      );
      const heard = await call(on, fault, (db) => endExpired(db, bound, most));
      if (heard) expect(heard.answer).toBe(chosen.length);
      return heard || fault === "answer lost" ? ends(chosen, "expired") : NO_EFFECT;
    },
  ),
);

const failBeyond = fc
  .record({ n: number, max: fc.integer({ min: 1, max: 3 }), limit: fc.integer({ min: 1, max: 4 }), fault })
  .map(({ n, max, limit, fault }) =>
    step(
      `fail ${limit} beyond ${max} pending deliveries per webhook${inWords(fault)}`,
      () => (n % 3 === 0 ? true : undefined),
      async (model, on) => {
        const queues = Map.groupBy(
          model.places.filter(({ table }) => table === "queue").sort(byId),
          ({ webhookId }) => webhookId,
        );
        const isTest = ({ id, webhookId }: Place) => model.now.webhooks.get(webhookId)?.testDelivery === id;
        const beyond = [...queues.values()].flatMap((queue) =>
          queue
            .slice(max)
            .filter((place) => !model.isHeld(place) && !isTest(place))
            .reverse()
            .slice(0, limit),
        );
        const heard = await call(on, fault, (db) => endBeyond(db, max, limit));
        const changes = Math.min(limit, beyond.length);
        if (heard) expect(heard.answer).toBe(changes);
        return heard || fault === "answer lost" ? { ...ends(beyond, "queue full"), changes } : NO_EFFECT;
      },
    ),
  );

/** Deliveries end without an attempt, and are sent again. */
export const endingSteps: fc.Arbitrary<Step>[] = [...often(3, sendAgain), expire, failBeyond];
