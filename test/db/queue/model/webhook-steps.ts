import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { expect } from "vitest";
import type { Db } from "../../../../src/db/database.ts";
import { updateWebhook, type WebhookChanges } from "../../../../src/db/webhooks/webhook-update.ts";
import { cancelOfDeleted, createWebhook, deleteWebhook } from "../../../../src/db/webhooks/webhooks.ts";
import { call, callUntilAnswered, type Fault } from "./faults.ts";
import { FILTERS } from "./filters.ts";
import { type Effect, ends, type ModelWebhook, NO_EFFECT, type StorageModel } from "./model.ts";
import { always, fault, inWords, number, often, pick, type Step, step } from "./step.ts";

const MAX_LIVE = 8;

const process = fc.integer({ min: 1, max: 2 });
const liveOne = (n: number) => (model: StorageModel) => pick(model.liveWebhooks, n);

/** Updates a webhook, and `note`s what has changed; a call that fails changes nothing. */
async function update(
  on: Db,
  { id }: ModelWebhook,
  changes: WebhookChanges,
  fault: Fault,
  note: () => void,
): Promise<Effect> {
  const heard = await call(on, fault, (broken) => updateWebhook(broken, "everything", id, changes));
  if (heard || fault === "answer lost") note();
  return NO_EFFECT;
}

/** Open deliveries of some webhooks that nobody holds. */
const openOf = (model: StorageModel, isOne: (webhook: ModelWebhook) => boolean) =>
  model.places.filter(
    (place) => place.table !== "deliveries" && isOne(model.webhook(place.webhookId)) && !model.isHeld(place),
  );

const create = fc.record({ process, fault }).map(({ process, fault }) =>
  step(
    `create a webhook of type ${process}${inWords(fault)}`,
    (model) => (model.liveWebhooks.length < MAX_LIVE ? true : undefined),
    async (model, on) => {
      const url = `https://receiver.example/${randomUUID()}`;
      const registration = { process, url, targetUrl: url, apiKeyId: model.apiKeyId };
      const register = (db: Db) => createWebhook(db, model.secrets, registration, 1_000);
      // Who hears no answer registers it again, and gets the same one.
      const made =
        fault === "answer lost"
          ? await callUntilAnswered(on, fault, register)
          : (await call(on, fault, register))?.answer;
      if (made)
        model.webhooks.push({ id: made.webhook.id, process, url, live: true, paused: false, filter: null });
      return NO_EFFECT;
    },
  ),
);

const remove = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(`delete webhook ${n}${inWords(fault)}`, liveOne(n), async (model, on, webhook) => {
    const free = openOf(model, ({ id }) => id === webhook.id);
    const heard = await call(on, fault, (broken) => deleteWebhook(broken, webhook.id));
    if (!heard && fault !== "answer lost") return NO_EFFECT;
    expect(await deleteWebhook(on, webhook.id)).toBeNull();
    webhook.live = false;
    return ends(free, "webhook deleted");
  }),
);

const cancelLeft = fault.map((fault) =>
  step(`cancel what is left of deleted webhooks${inWords(fault)}`, always, async (model, on) => {
    const left = openOf(model, ({ live }) => !live);
    const heard = await call(on, fault, cancelOfDeleted);
    if (heard) expect(heard.answer).toBe(left.length);
    // Its first statement only finds webhooks.
    return heard || fault === "answer lost" ? ends(left, "webhook deleted") : NO_EFFECT;
  }),
);

const age = number.map(() =>
  step(
    "ten minutes pass since webhooks were deleted",
    (model) => (model.webhooks.some(({ live }) => !live) ? true : undefined),
    async (_model, on) => {
      await on.raw("update webhooks set deleted = deleted - interval '10 minutes' where deleted is not null");
      return NO_EFFECT;
    },
  ),
);

const pause = fc.record({ n: number, paused: fc.boolean(), fault }).map(({ n, paused, fault }) =>
  step(`${paused ? "pause" : "resume"} webhook ${n}${inWords(fault)}`, liveOne(n), (_model, on, webhook) =>
    update(on, webhook, { paused }, fault, () => {
      webhook.paused = paused;
    }),
  ),
);

const resume = number.map((n) =>
  step(
    `resume paused webhook ${n}`,
    (model) =>
      pick(
        model.liveWebhooks.filter(({ paused }) => paused),
        n,
      ),
    (_model, on, webhook) =>
      update(on, webhook, { paused: false }, null, () => {
        webhook.paused = false;
      }),
  ),
);

const move = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(`move webhook ${n}${inWords(fault)}`, liveOne(n), async (model, on, webhook) => {
    const others = model.webhooks.filter((other) => other !== webhook && other.process === webhook.process);
    // Sometimes to the URL of another one, which is refused while that one is live.
    const other = n % 4 === 0 ? pick(others, n) : undefined;
    const url = other?.url ?? `https://moved.example/${randomUUID()}`;
    const changes = { address: { url, targetUrl: url } };
    if (others.some(({ live, url: taken }) => live && taken === url)) {
      await expect(updateWebhook(on, "everything", webhook.id, changes)).rejects.toThrow("another webhook");
      return NO_EFFECT;
    }
    return update(on, webhook, changes, fault, () => {
      webhook.url = url;
    });
  }),
);

const filter = fc
  .record({ n: number, filter: fc.option(fc.constantFrom(...FILTERS), { freq: 2 }), fault })
  .map(({ n, filter, fault }) =>
    step(
      `${filter ? `set the filter ${filter.expression}` : "remove the filter"} of webhook ${n}${inWords(fault)}`,
      liveOne(n),
      (_model, on, webhook) =>
        update(on, webhook, { filter: filter?.expression ?? null }, fault, () => {
          webhook.filter = filter;
        }),
    ),
  );

const breaker = fc.record({ n: number, fault }).map(({ n, fault }) =>
  step(
    `${n % 7 === 0 ? "remove" : "set"} the circuit breaker of webhook ${n}${inWords(fault)}`,
    liveOne(n),
    (_model, on, webhook) => {
      const settings = {
        failures: 1 + (n % 2),
        failingSeconds: 60,
        probeSeconds: 60,
        disableSeconds: n % 3 === 0 ? 60 : 432_000,
        disableOnGone: false,
        resendFailed: n % 2 === 0,
      };
      return update(on, webhook, { breaker: n % 7 === 0 ? null : settings }, fault, () => {});
    },
  ),
);

/** Webhooks are created, changed and deleted. */
export const webhookSteps: fc.Arbitrary<Step>[] = [
  ...often(2, create),
  remove,
  cancelLeft,
  age,
  pause,
  ...often(2, resume),
  move,
  filter,
  breaker,
];

/** Filters are set, changed and removed. */
export const filterSteps: fc.Arbitrary<Step>[] = often(4, filter);

/** Webhooks have circuit breakers. */
export const breakerSettingSteps: fc.Arbitrary<Step>[] = often(2, breaker);
