import { type Duplex, duplexPair } from "node:stream";
import fc from "fast-check";
import type { buildConnector } from "undici";
import { expect, test } from "vitest";
import { Connections } from "../../../src/delivery/http/connections.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";

/** What the service promises: a connection takes no request that begins later in its life, in milliseconds. */
const MAX_AGE_MS = 300_000;
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const END_OF_REQUEST = "\r\n\r\n{}";

/** What a receiver does with a request: answers, closes before it answers, or closes within its answer. */
type Reply = "answer" | "close" | "break off";

/** A request as the receiver sees it. */
interface Seen {
  connection: number;
  /** Which request of its connection it is, from 1. */
  request: number;
  /** The age of its connection, in milliseconds. */
  ageMs: number;
  reply: Reply;
}

/** Connections over sockets in memory, under a clock that only the test moves. */
function fakeReceivers(replies: () => Reply): {
  connections: Connections;
  seen: Seen[];
  time: { now: number };
} {
  const time = { now: 0 };
  const seen: Seen[] = [];
  let opened = 0;
  const connections = new Connections({
    maxConnections: 100,
    allowH2: false,
    now: () => time.now,
    connect(_options, callback) {
      opened += 1;
      const [ours, theirs] = duplexPair();
      serve(theirs, opened, time.now);
      // The client calls what sockets have beside streams.
      const methods = {
        setNoDelay: () => ours,
        setKeepAlive: () => ours,
        ref: () => ours,
        unref: () => ours,
      };
      const socket = Object.assign(ours, methods) as unknown as Parameters<buildConnector.Callback>[1];
      queueMicrotask(() => (callback as (error: null, socket: typeof ours) => void)(null, socket as never));
      return () => ours.destroy();
    },
  });
  function serve(socket: Duplex, connection: number, since: number): void {
    let [text, request] = ["", 0];
    socket.on("error", () => {});
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      if (!text.endsWith(END_OF_REQUEST)) return;
      text = "";
      request += 1;
      const reply = replies();
      seen.push({ connection, request, ageMs: time.now - since, reply });
      if (reply === "answer") socket.write(OK);
      else socket.end(reply === "break off" ? OK.slice(0, 30) : undefined);
    });
  }
  return { connections, seen, time };
}

function send(via: Connections, webhook: number): Promise<Outcome> {
  const request = { origin: `https://host-${webhook}.example`, path: "/", headers: [], body: "{}" };
  return new Promise((outcome) => post(via, request, 60_000, outcome));
}

const steps = fc.array(
  fc.record({
    /** Time that passes before it, in milliseconds. */
    afterMs: fc.oneof(fc.nat({ max: 4_000 }), fc.nat({ max: MAX_AGE_MS * 1.2 })),
    host: fc.nat({ max: 1 }),
    /** Requests at the same time. */
    requests: fc.integer({ min: 1, max: 4 }),
    reply: fc.constantFrom<Reply>("answer", "answer", "answer", "close", "break off"),
  }),
  { minLength: 1, maxLength: 15 },
);

test("no request begins on a connection older than five minutes, and one is repeated once where a reused connection was dead", async () => {
  let [reused, repeated] = [0, 0];
  await fc.assert(
    fc.asyncProperty(steps, async (story) => {
      let reply: Reply = "answer";
      const { connections, seen, time } = fakeReceivers(() => reply);
      for (const step of story) {
        time.now += step.afterMs;
        reply = step.reply;
        const before = seen.length;
        const outcomes = await Promise.all(
          Array.from({ length: step.requests }, () => send(connections, step.host)),
        );
        const now = seen.slice(before);
        for (const each of now) expect(each.ageMs).toBeLessThanOrEqual(MAX_AGE_MS);
        // Only what a reused connection closed without an answer is sent again, and only once: over a new one.
        const again = now.filter((each) => each.reply === "close" && each.request > 1).length;
        expect(now).toHaveLength(step.requests + again);
        expect(now.filter(({ request }) => request === 1).length).toBeGreaterThanOrEqual(again);
        for (const { delivered } of outcomes) expect(delivered).toBe(step.reply === "answer");
        reused += now.filter(({ request }) => request > 1).length;
        repeated += again;
      }
      await connections.destroy();
    }),
    { numRuns: 100 },
  );
  expect(reused).toBeGreaterThan(0);
  expect(repeated).toBeGreaterThan(0);
});

test("a request whose reused connection is dead arrives over a new one", async () => {
  let reply: Reply = "answer";
  const { connections, seen } = fakeReceivers(() => {
    const current = reply;
    reply = "answer";
    return current;
  });
  await send(connections, 1);
  reply = "close";
  expect(await send(connections, 1)).toMatchObject({ delivered: true });
  expect(seen.map(({ connection, request }) => [connection, request])).toEqual([
    [1, 1],
    [1, 2],
    [2, 1],
  ]);
  await connections.destroy();
});
