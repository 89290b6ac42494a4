import { afterEach, expect, test } from "vitest";
import { type Reply, startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import type { Resolver } from "../../src/delivery/http/name-resolver.ts";
import { Pacer } from "../../src/delivery/http/pacer.ts";
import { systemClock } from "../../src/process/clock.ts";
import { trustedAuthority } from "../support/test-service.ts";
import { freshRun, queueFor, startEngine } from "./engine-parts.ts";

/** The hosts that close each connection, and the deliveries of each. */
const [CLOSING, EVENTS] = [Array.from({ length: 20 }, (_, n) => `${n}.closing.example`), 6];
const HEALTHY = "healthy.example";
/** As many connections as requests start at first, 64, would wait longer than the timeout. */
const [PACE, TIMEOUT] = [{ atOnce: 1, perSecond: 25 }, "2s"];

/** Looks up each name as this machine. */
const resolver: Resolver = {
  resolve: async () => [{ address: "127.0.0.1", family: 4 }],
  close() {},
};

const ends: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

test("hosts that close each connection fail neither attempts of their own nor of another by the wait for new connections", async () => {
  const authority = await trustedAuthority();
  const receiverOf = async (names: string[], reply?: Reply) => {
    const receiver = await startReceiver(await authority.issue(names), reply);
    ends.push(receiver.close);
    return receiver;
  };
  const closing = await receiverOf(CLOSING, (_request, response) => {
    response.writeHead(200, { connection: "close" }).end();
    return undefined;
  });
  let before = Number.NaN;
  const healthy = await receiverOf([HEALTHY], () => {
    before = closing.received.length;
    return 200;
  });
  const handshakes = new Pacer(PACE, systemClock);
  const parts = await startEngine({ DELIVERY_TIMEOUT: TIMEOUT }, { resolver, handshakes });
  ends.push(parts.end);
  const { db, engine } = parts;

  for (const name of CLOSING)
    await queueFor(parts, `https://${name}:${closing.port}`, { webhooks: 1, events: EVENTS });
  const stop = new AbortController();
  const pumped = engine.pumps.run(await freshRun(db), { lingers: true, forMs: 600_000 }, stop.signal);
  await closing.until((received) => received.length > 0);
  await queueFor(parts, `https://${HEALTHY}:${healthy.port}`, { webhooks: 1, events: 1 });
  engine.pumps.wake();

  const attempts = "select count(*)::int as made, count(error)::int as failed from all_attempts";
  const deliveries = CLOSING.length * EVENTS + 1;
  await expect
    .poll(async () => (await rows<{ made: number }>(db, attempts))[0]?.made, { timeout: 30_000 })
    .toBe(deliveries);
  expect(await rows(db, attempts)).toEqual([{ made: deliveries, failed: 0 }]);
  expect(before).toBeLessThan(CLOSING.length * EVENTS);
  stop.abort();
  await pumped;
});
