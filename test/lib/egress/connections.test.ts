import type { Socket } from "node:net";
import { type Duplex, duplexPair } from "node:stream";
import fc from "fast-check";
import { type buildConnector, Client } from "undici";
import { expect, onTestFinished, test, vi } from "vitest";
import { Connections } from "../../../src/lib/egress/connections.ts";
import { deliver, send } from "../../delivery/http-parts.ts";
import { until } from "../../support/wait.ts";

/** What the service promises: a connection takes no request that begins later in its life, in milliseconds. */
const MAX_AGE_MS = 300_000;
const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const END_OF_REQUEST = "\r\n\r\n{}";
const ORIGIN = "https://receiver.example";

/** A request as its receiver sees it, with the numbers of its connection, and of the request on that, from 1. */
interface Seen {
  host: string;
  connection: number;
  request: number;
  /** The age of its connection, in milliseconds. */
  ageMs: number;
  socket: Duplex;
  /** Ends the connection with such an error of the client's socket. */
  breakWith: (code: string) => void;
}

const answer = ({ socket }: Seen) => void socket.write(OK);

/** Connections over sockets in memory, to receivers that do what the test says, under a clock that only the test moves. */
function start(
  reply: (seen: Seen) => void,
  { maxConnections = 100, keepAliveTimeout = 60_000, connects = true } = {},
) {
  const time = { now: 0 };
  const seen: Seen[] = [];
  /** The receivers' ends of the connections that are open. */
  const open = new Set<Duplex>();
  let [opened, cancelled] = [0, 0];
  const clock = vi.spyOn(performance, "now").mockImplementation(() => time.now);
  const connections = new Connections(maxConnections, (origin, _tls, signal, head) => {
    const connect: buildConnector.connector = ({ hostname }, callback) => {
      opened += 1;
      const [ours, theirs] = duplexPair();
      const same = () => ours;
      // The client calls what sockets have beside streams.
      const methods = { setNoDelay: same, setKeepAlive: same, ref: same, unref: same };
      const socket = Object.assign(ours, methods) as unknown as Socket;
      head.attach(socket);
      if (connects) queueMicrotask(() => callback(null, socket));
      serve(hostname, theirs, opened, (code) => ours.destroy(Object.assign(new Error(code), { code })));
      signal.addEventListener("abort", () => {
        cancelled += 1;
        ours.destroy();
      });
    };
    return new Client(origin, { keepAliveTimeout, allowH2: false, connect });
  });
  function serve(host: string, socket: Duplex, connection: number, breakWith: Seen["breakWith"]): void {
    const since = time.now;
    let [text, request] = ["", 0];
    open.add(socket);
    socket.on("error", () => {}).once("close", () => open.delete(socket));
    socket.on("data", (chunk: Buffer) => {
      text += chunk.toString("latin1");
      if (!text.endsWith(END_OF_REQUEST)) return;
      text = "";
      request += 1;
      const one = { host, connection, request, ageMs: time.now - since, socket, breakWith };
      seen.push(one);
      reply(one);
    });
  }
  onTestFinished(() => {
    clock.mockRestore();
    return connections.destroy();
  });
  const places = () => seen.map(({ connection, request }) => `${connection} ${request}`);
  return { connections, seen, time, open, places, cancelled: () => cancelled };
}

/** Connections of which one has carried a request, whose receiver does this with the next one. */
async function startReused(next: (seen: Seen) => void) {
  const started = start((one) => (one.request === 1 ? answer(one) : next(one)));
  await send(started.connections, ORIGIN);
  return started;
}

/** What a receiver does with a request: answers, closes before it answers, or closes within its answer. */
type Reply = "answer" | "close" | "break off";

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
      const { connections, seen, time } = start((one) => {
        if (reply === "answer") answer(one);
        else one.socket.end(reply === "break off" ? OK.slice(0, 12) : undefined);
      });
      for (const step of story) {
        time.now += step.afterMs;
        reply = step.reply;
        const before = seen.length;
        const outcomes = await Promise.all(
          Array.from({ length: step.requests }, () => send(connections, `https://host-${step.host}.example`)),
        );
        const now = seen.slice(before);
        for (const each of now) expect(each.ageMs).toBeLessThanOrEqual(MAX_AGE_MS);
        // Only what a reused connection closed without an answer is sent again, and only once: over a new one.
        const again = step.reply === "close" ? now.filter((each) => each.request > 1).length : 0;
        expect(now).toHaveLength(step.requests + again);
        expect(now.filter(({ request }) => request === 1).length).toBeGreaterThanOrEqual(again);
        for (const { delivered } of outcomes) expect(delivered).toBe(step.reply === "answer");
        reused += now.filter(({ request }) => request > 1).length;
        repeated += again;
      }
    }),
    { numRuns: 60 },
  );
  expect(reused).toBeGreaterThan(0);
  expect(repeated).toBeGreaterThan(0);
});

test("a connection carries one request at a time, and a request uses the most recently used connection", async () => {
  const { connections, seen } = start((one) => seen.length > 2 && answer(one));
  const sent = [1, 2].map(() => send(connections, ORIGIN));
  await until(() => seen.length === 2);
  expect(connections.size).toEqual({ connections: 2, idleHosts: 0 });
  const [first, last] = seen as [Seen, Seen];
  answer(first);
  await sent[0];
  answer(last);
  await sent[1];
  for (let n = 0; n < 3; n += 1) await send(connections, ORIGIN);
  expect(seen.slice(2).map(({ connection }) => connection)).toEqual(Array(3).fill(last.connection));
  expect(connections.size).toEqual({ connections: 2, idleHosts: 1 });
});

/** The places of a request, and of another one that is sent twice. */
const RESENT = ["1 1", "1 2", "2 1"];
test.each<[string, (seen: Seen) => void]>([
  ["closed", ({ socket }) => void socket.end()],
  ["reset", ({ breakWith }) => breakWith("ECONNRESET")],
  ["broken", ({ breakWith }) => breakWith("EPIPE")],
])("a request whose reused connection is %s without a response is sent once more", async (_what, end) => {
  const { connections, places } = await startReused(end);
  expect(await send(connections, ORIGIN)).toMatchObject({ delivered: true, status: 200, error: null });
  expect(places()).toEqual(RESENT);
});

test("a request is not sent once more if it may no longer be sent then", async () => {
  const { connections, places } = await startReused(({ socket }) => void socket.end());
  const maySend = vi.fn().mockReturnValueOnce(true).mockReturnValue(false);
  expect(await deliver(connections, ORIGIN, { maySend })).toBe("withdrawn");
  expect([maySend.mock.calls.length, places()]).toEqual([2, RESENT.slice(0, 2)]);
});

test.each([
  ["H", null],
  ["HTTP/1.1 2", null],
  ["HTTP/1.1 200 OK\r\ncontent-le", 200],
])("a request is not sent once more after %j of its response", async (part, status) => {
  const { connections, places } = await startReused(({ socket }) => void socket.end(part));
  expect(await send(connections, ORIGIN)).toMatchObject({ delivered: status === 200, status });
  expect(places()).toEqual(RESENT.slice(0, 2));
});

test("a request that times out on a reused connection is not repeated, and the connection is closed", async () => {
  const { connections, places, open } = await startReused(() => {});
  expect(await send(connections, ORIGIN, { timeoutMs: 50 })).toMatchObject({ failure: "webhook timeout" });
  await until(() => open.size === 0);
  expect(places()).toEqual(RESENT.slice(0, 2));
});

test("idle connections are closed after a while, and their hosts are forgotten", async () => {
  const { connections, open } = start(answer, { keepAliveTimeout: 50 });
  for (const n of [1, 2]) await send(connections, `https://${n}.example`);
  await until(() => connections.size.connections === 0 && connections.size.idleHosts === 0);
  await until(() => open.size === 0);
});

test.each<[string, string]>([
  ["while it is idle", OK],
  ["by a header of its response", OK.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n")],
])("a connection that the receiver closes %s is forgotten, and another one made", async (_when, response) => {
  const { connections, open, places } = start(({ socket }) => void socket.write(response));
  for (let n = 1; n <= 2; n += 1) {
    expect(await send(connections, ORIGIN)).toMatchObject({ delivered: true });
    for (const socket of open) socket.end();
    await until(() => connections.size.connections === 0 && connections.size.idleHosts === 0);
  }
  expect(places()).toEqual(["1 1", "2 1"]);
});

test("at the limit of connections, the one that is idle longest is closed for a new one", async () => {
  const { connections, seen, open } = start((one) => one.host === "first.example" && answer(one), {
    maxConnections: 3,
  });
  await send(connections, "https://first.example");
  const sent = Array.from({ length: 4 }, () => send(connections, ORIGIN));
  await until(() => seen.length === 5);
  expect(connections.size).toEqual({ connections: 5, idleHosts: 1 });
  for (const one of seen.slice(1)) answer(one);
  await Promise.all(sent);
  await until(() => connections.size.connections === 3 && open.size === 3);
  // The first host's one was idle for longest.
  expect(connections.size.idleHosts).toBe(1);
  expect(await send(connections, "https://first.example")).toMatchObject({ delivered: true });
  expect(seen.at(-1)).toMatchObject({ connection: 6, request: 1 });
  await until(() => connections.size.connections === 3);
  expect(connections.size.idleHosts).toBe(2);
});

test("the connection of a request that is given up while it connects is closed at once", async () => {
  const { connections, cancelled } = start(answer, { connects: false });
  expect(await send(connections, ORIGIN, { timeoutMs: 50 })).toMatchObject({
    failure: "host timeout",
    error: expect.stringMatching(/^no connection/),
  });
  expect([connections.size.connections, cancelled()]).toEqual([0, 1]);
});

test("all connections are closed in the end, those in use included", async () => {
  const { connections, seen, open } = start((one) => one.connection === 1 && answer(one));
  await send(connections, ORIGIN);
  const sent = [send(connections, ORIGIN), send(connections, ORIGIN)];
  await until(() => seen.length === 3);
  await connections.destroy();
  for (const outcome of await Promise.all(sent)) expect(outcome.status ?? 200).toBe(200);
  await until(() => open.size === 0);
  expect(connections.size).toEqual({ connections: 0, idleHosts: 0 });
});
