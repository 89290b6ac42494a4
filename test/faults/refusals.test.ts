import { expect, test } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { assignGroups } from "../../src/queue/retry-groups.ts";
import { freshRun, pump, queueFor, states, useEngine } from "../delivery/engine-parts.ts";
import { aReceiver } from "../support/receivers.ts";
import { until } from "../support/wait.ts";
import { FULL_SIZE, tell } from "./scale.ts";

const [EVENTS, RETRY_AFTER_S] = FULL_SIZE ? [1_000, 10] : [100, 2];
const PER_SECOND = 5;
/** The attempts of a round. */
const LAST_ATTEMPT = 4;

/** Takes so many requests within each second, by its own clock. Refuses the others, and counts those that come in spite of that. */
function limitedReceiver(status: 429 | 503, retryAfter: (ms: number) => string) {
  const counts = { taken: 0, refused: 0, insideWish: 0 };
  const taken: number[] = [];
  let wishEnds = 0;
  const reply: Reply = (_request, response) => {
    const now = Date.now();
    if (now < wishEnds) counts.insideWish += 1;
    while (taken.length > 0 && (taken[0] as number) <= now - 1_000) taken.shift();
    if (taken.length < PER_SECOND && now >= wishEnds) {
      taken.push(now);
      counts.taken += 1;
      return 200;
    }
    counts.refused += 1;
    wishEnds = now + 1_000 * RETRY_AFTER_S;
    response.writeHead(status, { "retry-after": retryAfter(wishEnds) }).end();
    return undefined;
  };
  return { counts, reply };
}

test.each([
  [429, "seconds", () => String(RETRY_AFTER_S)],
  // A second later, because the date has whole seconds only.
  [503, "a date", (ends: number) => new Date(ends + 1_000).toUTCString()],
] as const)(
  "a receiver that takes 5 requests a second and answers %i with Retry-After in %s gets all deliveries of two processes, and nearly none too early",
  async (status, _form, retryAfter) => {
    const retries = { RETRY_INITIAL_DELAY: "2s", RETRY_BACKOFF_COEFFICIENT: "2" };
    const parts = await useEngine(retries);
    const { db, engine } = parts;
    const { counts, reply } = limitedReceiver(status, retryAfter);
    const { url } = await aReceiver(reply);
    await queueFor(parts, url, { webhooks: 1, events: EVENTS });
    const runId = await freshRun(db);
    const never = new AbortController().signal;
    let isPumping = true;
    const pumped = Promise.all([engine, parts.another()].map((each) => pump(each, runId))).finally(() => {
      isPumping = false;
    });
    for (;;) {
      await assignGroups(db, runId);
      const passOptions = { horizonMs: 60_000, forMs: 60_000 };
      const { status: left } = await engine.retries.run({ runId, group: 1 }, passOptions, never);
      if (left.open === 0 && !isPumping) break;
      await until(async () => !isPumping || (await rows(db, "select from retries limit 1")).length > 0);
    }
    await pumped;
    const found = await states(parts);
    const [rate] = await db("webhooks").pluck("receiver_rate");
    tell(`${status}: ${JSON.stringify({ ...counts, ...found, rate })}`);
    expect(Object.keys(found).filter((state) => !state.startsWith("delivered"))).toEqual([]);
    expect(counts.taken).toBe(EVENTS);
    // Those in flight at the first refusal, and few later ones.
    expect(counts.insideWish).toBeLessThanOrEqual(Math.max(10, EVENTS / 50));
    expect(counts.refused).toBeLessThan(10 + EVENTS / 10);
    expect(Object.keys(found)).not.toContain(`delivered ${LAST_ATTEMPT}`);
    expect(rate).toBeGreaterThan(PER_SECOND / 4);
    expect(rate).toBeLessThan(PER_SECOND * 2);
  },
);
