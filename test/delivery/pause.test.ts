import fc from "fast-check";
import pino from "pino";
import { expect, test } from "vitest";
import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { WebhookWatch } from "../../src/delivery/claims/webhook-watch.ts";
import { Sender, type SenderParts } from "../../src/delivery/sender.ts";
import { type Random, randomOf } from "../support/random.ts";
import { SimulatedTime } from "../support/simulation/simulated-time.ts";
import { claimsOf, DELIVERED, OWNER, senderParts } from "./sender-inputs.ts";

/** What the service promises: no POST starts later than this after the change was answered, in milliseconds. */
const PROMISED_MS = 1_000;
const UNTIL_MS = 30_000;
const WEBHOOKS = 4;

const log = pino({ level: "silent" });

/** What happens to a sender, at times in milliseconds. */
interface Story {
  seed: number;
  claims: { at: number; webhook: number; deliveries: number }[];
  pauses: { at: number; webhook: number }[];
  /** The longest that an answer of the database, a connection and a response may take. */
  databaseMs: number;
  connectMs: number;
  responseMs: number;
  /** The part of the readings that fail. */
  failing: number;
}

/** A POST of a webhook, and how long after the pause it started; undefined when it was not paused. */
interface Start {
  webhook: number;
  afterPauseMs: number | undefined;
}

/** Tells the story to a sender and a watch under a simulated clock; answers each POST that started. */
async function tell(story: Story): Promise<{ starts: Start[]; held: number }> {
  const time = new SimulatedTime();
  const { clock } = time;
  const random: Random = randomOf(story.seed);
  const pausedAt = (webhook: number) =>
    Math.min(...story.pauses.filter((pause) => pause.webhook === webhook).map(({ at }) => at));
  const isPaused = (webhook: number) => pausedAt(webhook) <= time.now;
  /** A statement sees the database as it is at some moment between its start and its answer. */
  const answer = async <T>(look: () => T): Promise<T> => {
    const ms = random() * story.databaseMs;
    const before = random() * ms;
    await clock.wait(before);
    const seen = look();
    await clock.wait(ms - before);
    return seen;
  };
  let held = 0;
  const watch = new WebhookWatch({
    clock,
    log,
    openFeed: async () => ({
      revision: async () => {
        const revision = await answer(() => story.pauses.filter(({ at }) => at <= time.now).length);
        if (random() < story.failing) throw new Error("Connection terminated unexpectedly");
        return BigInt(revision);
      },
      close: async () => {},
    }),
    loadStopped: (some) => answer(() => some.map(({ id }) => id).filter((id) => isPaused(Number(id)))),
    listener: { queued: () => {}, held: () => sender.held(), stopped: (ids) => sender.stop(ids) },
  });
  const starts: Start[] = [];
  let posted: ClaimedDelivery | undefined;
  const post: SenderParts["post"] = (_request, outcome, gate) => {
    const webhook = Number(posted?.webhook.id);
    clock.after(random() * story.connectMs, () => {
      if (!gate.maySend()) return gate.withdrawn();
      const afterPauseMs = isPaused(webhook) ? time.now - pausedAt(webhook) : undefined;
      starts.push({ webhook, afterPauseMs });
      clock.after(random() * story.responseMs, () => outcome(DELIVERED));
    });
  };
  const sender = new Sender(
    {
      ...senderParts(clock),
      post,
      watch,
      contents: {
        room: 1_000,
        hold: async (deliveries) => {
          held += deliveries.length;
          return [];
        },
        of: (delivery) => {
          posted = delivery;
          return { payload: "{}", userId: "" };
        },
        release: () => {
          held -= 1;
        },
        dropUnused: () => {},
      },
    },
    { perHost: 4, perWebhook: 4 },
  );
  watch.start();
  for (const { at, webhook, deliveries } of story.claims) {
    clock.after(at, async () => {
      const { revision } = sender;
      const claimed = await answer(() => (isPaused(webhook) ? [] : claimsOf(webhook, deliveries)));
      await sender.take(claimed, "first", OWNER, revision);
    });
  }
  await time.run(UNTIL_MS);
  sender.close();
  const closed = watch.close();
  // What the database is being asked is answered before they have closed.
  await time.run(2 * UNTIL_MS);
  await closed;
  return { starts, held };
}

const at = fc.integer({ min: 0, max: 5_000 });
const webhook = fc.integer({ min: 1, max: WEBHOOKS });
const stories: fc.Arbitrary<Story> = fc.record({
  seed: fc.integer(),
  claims: fc.array(fc.record({ at, webhook, deliveries: fc.integer({ min: 1, max: 500 }) }), {
    minLength: 1,
    maxLength: 12,
  }),
  pauses: fc.array(fc.record({ at, webhook }), { minLength: 1, maxLength: WEBHOOKS }),
  databaseMs: fc.constantFrom(1, 50, 400, 1_000, 2_000),
  connectMs: fc.constantFrom(0, 100, 2_000),
  responseMs: fc.constantFrom(10, 500),
  failing: fc.constantFrom(0, 0, 0.3),
});

test("no POST to a paused webhook starts a second after the pause, however late the database answers", async () => {
  let [started, afterPause] = [0, 0];
  await fc.assert(
    fc.asyncProperty(stories, async (story) => {
      const { starts } = await tell(story);
      started += starts.length;
      for (const { afterPauseMs } of starts) {
        if (afterPauseMs === undefined) continue;
        afterPause += 1;
        expect(afterPauseMs).toBeLessThan(PROMISED_MS);
      }
    }),
    { numRuns: 200 },
  );
  expect(started).toBeGreaterThan(1_000);
  // Some start within the second, so that the bound is tried.
  expect(afterPause).toBeGreaterThan(0);
});

test("deliveries go on to webhooks that are not paused, and all of those of paused webhooks are given back", async () => {
  const { starts, held } = await tell({
    seed: 1,
    claims: [
      { at: 0, webhook: 1, deliveries: 200 },
      { at: 0, webhook: 2, deliveries: 200 },
    ],
    pauses: [{ at: 500, webhook: 1 }],
    databaseMs: 5,
    connectMs: 5,
    responseMs: 60,
    failing: 0,
  });
  expect(starts.filter(({ webhook }) => webhook === 2)).toHaveLength(200);
  expect(starts.filter(({ webhook }) => webhook === 1).length).toBeLessThan(200);
  expect(held).toBe(0);
});
