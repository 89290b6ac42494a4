import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import type { Db } from "../../../src/lib/pg/database.ts";
import { cancelFirst, cancelOfDeleted } from "../../../src/queue/deleted-webhooks.ts";
import { heedWishes } from "../../../src/queue/holds.ts";
import { deleteWebhook } from "../../../src/webhooks/webhook-deletion.ts";
import { updateWebhook, type WebhookChanges } from "../../../src/webhooks/webhook-update.ts";
import { createWebhook } from "../../../src/webhooks/webhooks.ts";
import type { Fault } from "./faults.ts";
import {
  BREAKER,
  type Effect,
  ends,
  FILTERS,
  type ModelWebhook,
  NO_EFFECT,
  OWNERS,
  type StorageModel,
} from "./model.ts";
import { always, type Chance, pick, steps } from "./step.ts";

const MAX_LIVE = 10;

const liveOne = (model: StorageModel, { n }: Chance) => pick(model.liveWebhooks, n);

/** Updates a webhook, and notes what has changed; a call that fails changes nothing. */
async function update(
  model: StorageModel,
  webhook: ModelWebhook,
  fault: Fault,
  changes: WebhookChanges,
  noted: Partial<ModelWebhook>,
): Promise<Effect> {
  const { done } = await model.call(fault, (db) => updateWebhook(db, "everything", webhook.id, changes));
  if (done) Object.assign(webhook, noted);
  return NO_EFFECT;
}

/** Open deliveries of some webhooks that nobody holds. */
const openOf = (model: StorageModel, isOne: (webhook: ModelWebhook) => boolean) =>
  model.open.filter((place) => isOne(model.webhook(place.webhookId)) && !model.isHeld(place));

const ownerOf = ({ m }: Chance) => pick(OWNERS, m) ?? null;

const create = steps(
  2,
  (chance) => `create a webhook of type ${1 + (chance.n % 2)} of ${ownerOf(chance) ?? "the operator"}`,
  (model) => (model.liveWebhooks.length < MAX_LIVE ? true : undefined),
  async (model, _chosen, chance) => {
    const { n, fault } = chance;
    const process = 1 + (n % 2);
    const customer = ownerOf(chance);
    // Sometimes the URL of another owner's webhook.
    const taken = model.liveWebhooks.filter((webhook) => webhook.process === process);
    const other = pick(taken, n);
    const isFree =
      other && taken.every(({ url, customer: owner }) => url !== other.url || owner !== customer);
    const url = isFree ? other.url : `https://receiver.example/${randomUUID()}`;
    const registration = model.registration(customer, process, url);
    const register = (db: Db) => createWebhook(db, model.secrets, registration, 1_000);
    const { done, answer } = await model.call(fault, register);
    // Who hears no answer registers it again, and gets the same one.
    const made = answer ?? (done ? await register(model.db) : undefined);
    if (made) model.addWebhook(made.webhook.id, customer, process, url);
    return NO_EFFECT;
  },
);

const remove = steps(
  1,
  ({ n }) => `delete webhook ${n}`,
  liveOne,
  async (model, webhook, { fault }) => {
    const free = openOf(model, ({ id }) => id === webhook.id);
    const { done } = await model.call(fault, (db) => deleteWebhook(db, webhook.id, cancelFirst));
    if (!done) return NO_EFFECT;
    expect(await deleteWebhook(model.db, webhook.id, cancelFirst)).toBeNull();
    webhook.live = false;
    return ends(free, "webhook deleted");
  },
);

const cancelLeft = steps(
  1,
  "cancel what is left of deleted webhooks",
  always,
  async (model, _chosen, { fault }) => {
    const left = openOf(model, ({ live }) => !live);
    const { heard, done, answer } = await model.call(fault, cancelOfDeleted);
    if (heard) expect(answer).toBe(left.length);
    // Its first statement only finds webhooks.
    return done ? ends(left, "webhook deleted") : NO_EFFECT;
  },
);

const age = steps(
  1,
  "ten minutes pass since webhooks were deleted",
  (model) => (model.webhooks.some(({ live }) => !live) ? true : undefined),
  async ({ db }) => {
    await db.raw("update webhooks set deleted = deleted - interval '10 minutes' where deleted is not null");
    return NO_EFFECT;
  },
);

const pause = steps(
  1,
  ({ n, m }) => `${m % 2 === 0 ? "pause" : "resume"} webhook ${n}`,
  liveOne,
  (model, webhook, { m, fault }) => {
    const paused = m % 2 === 0;
    return update(model, webhook, fault, { paused }, { paused });
  },
);

const resume = steps(
  2,
  ({ n }) => `resume paused webhook ${n}`,
  (model, { n }) => pick(model.liveWebhooks, n, ({ paused }) => paused),
  (model, webhook) => update(model, webhook, null, { paused: false }, { paused: false }),
);

const hold = steps(
  1,
  ({ n }) => `the receiver of webhook ${n} wants no requests`,
  liveOne,
  async (model, { id, url }, { fault }) => {
    // Longer than any history takes.
    const wish = { holdMs: 3_600_000, isRefusal: true, statedRate: null, acceptedRate: null };
    await model.call(fault, (db) => heedWishes(db, [{ ...wish, webhookId: id, targetUrl: url }]));
    return NO_EFFECT;
  },
);

const endHolds = steps(
  2,
  "receivers want requests again",
  (model) => ([...model.now.webhooks.values()].some(({ held }) => held) ? true : undefined),
  async ({ db }) => {
    await db.raw("update webhooks set held_until = now() where held_until > now()");
    return NO_EFFECT;
  },
);

const move = steps(
  1,
  ({ n }) => `move webhook ${n}`,
  liveOne,
  async (model, webhook, { m, fault }) => {
    const others = model.webhooks.filter((other) => other !== webhook && other.process === webhook.process);
    // Sometimes to the URL of another one, which is refused while that one is live.
    const other = m % 4 === 0 ? pick(others, m) : undefined;
    const url = other?.url ?? `https://moved.example/${randomUUID()}`;
    const changes = { address: { url, targetUrl: url } };
    const isTaken = others.some(
      ({ live, url: taken, customer }) => live && taken === url && customer === webhook.customer,
    );
    if (!isTaken) return update(model, webhook, fault, changes, { url });
    const moved = updateWebhook(model.db, "everything", webhook.id, changes);
    await expect(moved).rejects.toThrow("another webhook");
    return NO_EFFECT;
  },
);

const chosenFilter = ({ m }: Chance) => pick([null, ...FILTERS], m) ?? null;

const filter = (times: number) =>
  steps(
    times,
    (chance) => `set the filter ${chosenFilter(chance)?.expression ?? "none"} of webhook ${chance.n}`,
    liveOne,
    (model, webhook, chance) => {
      const filter = chosenFilter(chance);
      return update(model, webhook, chance.fault, { filter: filter?.expression ?? null }, { filter });
    },
  );

const breaker = (times: number) =>
  steps(
    times,
    ({ n, m }) => `${m % 7 === 0 ? "remove" : "set"} the circuit breaker of webhook ${n}`,
    liveOne,
    (model, webhook, { m, fault }) => {
      const disableSeconds = m % 3 === 0 ? 60 : BREAKER.disableSeconds;
      const settings = { ...BREAKER, failures: 1 + (m % 2), disableSeconds, resendFailed: m % 2 === 0 };
      return update(model, webhook, fault, { breaker: m % 7 === 0 ? null : settings }, {});
    },
  );

/** Webhooks are created, changed, held and deleted. */
export const webhookSteps = [
  ...create,
  ...remove,
  ...cancelLeft,
  ...age,
  ...pause,
  ...resume,
  ...hold,
  ...endHolds,
  ...move,
  ...filter(1),
  ...breaker(1),
];

/** Filters are set, changed and removed. */
export const filterSteps = filter(4);

/** Webhooks have circuit breakers. */
export const breakerSettingSteps = breaker(2);
