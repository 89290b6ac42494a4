import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { type Db, rows } from "../../../src/lib/pg/database.ts";
import { changeReplay, getReplay, insertReplay, type ReplayFilter } from "../../../src/replays/replays.ts";
import { endReplay, keepReplay, type RunningReplay } from "../../../src/replays/running.ts";
import { findReady, listWebhooksOf, stepWebhook } from "../../../src/replays/steps.ts";
import { canBeSentAgain, startsRound } from "./ending-steps.ts";
import type { Fault } from "./faults.ts";
import { type Effect, isFor, type ModelReplay, NO_EFFECT, type StorageModel } from "./model.ts";
import type { Place } from "./snapshot.ts";
import { type Chance, pick, steps } from "./step.ts";

/** Events count as stored at once. */
const LIMITS = { retentionDays: 30, settledMs: -60_000 };
const MAX_OPEN = 2;

const open = (model: StorageModel) => model.replays.filter(({ state }) => state !== "ended");
const hasRoom = (model: StorageModel) => open(model).length < MAX_OPEN;

/** Starts a replay of what there is until a second from now. */
async function start(model: StorageModel, kind: ModelReplay["kind"], filter: ReplayFilter, fault: Fault) {
  const replay = { apiKeyId: model.apiKeyId, idempotencyKey: randomUUID(), kind, filter };
  const until = new Date(Date.now() + 1_000);
  const insert = (db: Db) => insertReplay(db, "everything", replay, LIMITS.retentionDays, until);
  // Who hears no answer starts it again.
  const { id, duplicate, same } = await model.callUntilAnswered(fault, insert);
  expect({ duplicate, same }).toEqual({ duplicate: fault === "answer lost", same: true });
  const { places } = model.now;
  const nothing = { queued: new Set<string>(), changed: new Set<string>() };
  model.replays.push({ id, kind, filter, state: "running", places, ...nothing });
  return NO_EFFECT;
}

const STATES = [["failed"], ["filtered"], ["delivered", "failed", "cancelled", "filtered"]] as const;

const chosenStates = ({ m }: Chance) => pick(STATES, m) as (typeof STATES)[number];

const startResend = steps(
  1,
  (chance) => `replay ${chosenStates(chance).join(" and ")} deliveries of some or all webhooks`,
  (model, { n }) => (hasRoom(model) ? pick(model.webhooks, n) : undefined),
  (model, { id: webhookId }, chance) => {
    const states = chosenStates(chance);
    return start(model, "resend", chance.n % 3 === 0 ? { states } : { states, webhookId }, chance.fault);
  },
);

const startBackfill = steps(
  1,
  ({ n }) => `replay missed events of webhook ${n}`,
  (model, { n, m }) => {
    if (!hasRoom(model)) return undefined;
    // Rather the latest one, which has missed most; not two of one webhook, which the API refuses.
    const chosen = m % 2 === 0 ? model.liveWebhooks.at(-1) : pick(model.liveWebhooks, n);
    const isTaken = open(model).some(
      ({ kind, filter }) => kind === "backfill" && filter.webhookId === chosen?.id,
    );
    return isTaken ? undefined : chosen;
  },
  (model, { id: webhookId }, { fault }) => start(model, "backfill", { states: [], webhookId }, fault),
);

const isIn = ({ id }: Place, { fromId, toId }: RunningReplay) => id >= fromId && id < toId;

/** Whether a replay is for an ended delivery. */
const concerns = (place: Place, { filter }: ModelReplay) =>
  filter.states.some((state) => state === place.outcome) &&
  (filter.webhookId === undefined || filter.webhookId === place.webhookId);

/** What a step of one webhook queues: each delivery once, in a new round. */
const resends =
  (model: StorageModel, replay: ModelReplay, webhookId: bigint): Effect["may"] =>
  (before, after) =>
    before !== null &&
    before.webhookId === webhookId &&
    concerns(before, replay) &&
    canBeSentAgain(model, before) &&
    !replay.queued.has(before.id) &&
    startsRound(before, after);

/** What a step of a backfill queues: events of which the webhook has no delivery, and gets none by fan-out. */
const backfills =
  (model: StorageModel, webhookId: bigint): Effect["may"] =>
  (before, after) => {
    if (before !== null || after?.table !== "queue" || after.webhookId !== webhookId) return false;
    const webhook = model.webhook(webhookId);
    const event = model.eventOf(after);
    return (
      webhook.live &&
      isFor(event, webhook) &&
      !event.test &&
      !event.erased &&
      !event.recipients.has(webhookId)
    );
  };

async function work(model: StorageModel, replay: ModelReplay, { n, fault }: Chance): Promise<Effect> {
  const on = model.db;
  const running = (await keepReplay(on, replay.id)) as RunningReplay;
  expect(running).toMatchObject({ id: replay.id, kind: replay.kind, filter: replay.filter });
  if (running.listedTo !== null) await model.callUntilAnswered(fault, (db) => listWebhooksOf(db, running));
  // The pause since the last step is over.
  const [now] = await rows<{ at: string }>(on, "select now()::text as at");
  const pause = { id: replay.id, overAt: now?.at };
  await on.raw("update replay_webhooks set due = :overAt::timestamptz where replay_id = :id::uuid", pause);
  const { ready } = await findReady(on, replay.id);
  const webhookId = pick(ready, n);
  if (webhookId !== undefined) {
    const { heard, done, answer } = await model.call(fault, (db) =>
      stepWebhook(db, running, webhookId, LIMITS),
    );
    // However long the checks take, the next step is not due before they end. After a step that has queued something it must
    // not have been due at once.
    await on.raw(
      `update replay_webhooks set due = due + interval '1 hour' where replay_id = :id::uuid
        and due > :overAt::timestamptz + make_interval(secs => case when after_step > before_step then 0.25 else 0 end)`,
      pause,
    );
    await model.check({
      may: replay.kind === "resend" ? resends(model, replay, webhookId) : backfills(model, webhookId),
      note(_before, after) {
        const { id, webhookId, eventId } = after as Place;
        replay.queued.add(id);
        model.eventOf({ eventId }).recipients.add(webhookId);
      },
      changes: heard || !done ? (answer?.queued ?? 0) : undefined,
    });
    // Whose answer is lost steps again, which does nothing before the next pause is over.
    if (done && !heard) expect(await stepWebhook(on, running, webhookId, LIMITS)).toBeUndefined();
  }
  const unlessLost = fault === "answer lost" ? null : fault;
  const ended = await model.callUntilAnswered(unlessLost, (db) => endReplay(db, replay.id));
  const state = ended ? "completed" : "running";
  const stored = await getReplay(on, "everything", replay.id);
  expect(stored).toMatchObject({ queued: BigInt(replay.queued.size), state });
  if (ended) {
    replay.state = "ended";
    expectComplete(model, replay, running);
  }
  return NO_EFFECT;
}

/** A completed replay has left nothing that it could have queued since it started. */
function expectComplete(model: StorageModel, replay: ModelReplay, running: RunningReplay): void {
  model.count(`${replay.kind} completed`);
  if (replay.kind === "resend") {
    const left = model.places.filter(
      (place) =>
        concerns(place, replay) &&
        isIn(place, running) &&
        canBeSentAgain(model, place) &&
        replay.places.has(place.id) &&
        !replay.changed.has(place.id),
    );
    expect(left, "deliveries left by a replay").toEqual([]);
    return;
  }
  const webhook = model.webhook(replay.filter.webhookId as bigint);
  if (!webhook.live) return;
  const missed = [...model.events.values()].filter(
    (event) =>
      isFor(event, webhook) &&
      !event.test &&
      !event.erased &&
      event.id < running.toId &&
      [...replay.places.values()].some(({ eventId }) => eventId === event.id) &&
      !event.recipients.has(webhook.id),
  );
  expect(missed, "events left by a backfill").toEqual([]);
}

const workOn = steps(
  4,
  ({ n }) => `work on replay ${n}`,
  (model, { m }) => pick(model.replays, m, ({ state }) => state === "running"),
  work,
);

const CHANGES = ["pause", "resume", "cancel"] as const;
const chosenChange = ({ m }: Chance) => pick(CHANGES, m) as (typeof CHANGES)[number];

const change = steps(
  1,
  (chance) => `${chosenChange(chance)} replay ${chance.n}`,
  (model, chance) =>
    chosenChange(chance) === "cancel" && chance.m % 2 === 0 ? undefined : pick(open(model), chance.n),
  async (model, replay, chance) => {
    const to = chosenChange(chance);
    const { heard, done, answer } = await model.call(chance.fault, (db) =>
      db.transaction((trx) => changeReplay(trx, "everything", replay.id, to)),
    );
    if (heard) expect(answer).toBe(to === "cancel" || (to === "pause") === (replay.state === "running"));
    if (!done) return NO_EFFECT;
    replay.state = ({ pause: "paused", resume: "running", cancel: "ended" } as const)[to];
    const kept = await keepReplay(model.db, replay.id);
    expect(kept !== undefined).toBe(replay.state === "running");
    return NO_EFFECT;
  },
);

/** Replays start, queue deliveries step by step, and end. */
export const replaySteps = [...startResend, ...startBackfill, ...workOn, ...change];
