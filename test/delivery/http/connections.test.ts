import { once } from "node:events";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { createServer, type TLSSocket } from "node:tls";
import { buildConnector } from "undici";
import { afterEach, beforeAll, expect, test } from "vitest";
import { type Certificate, createLocalAuthority } from "../../../demo/certificates.ts";
import { Connections } from "../../../src/delivery/http/connections.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";

const OK = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

let authority: string;
let certificate: Certificate;
const ends: (() => unknown)[] = [];

beforeAll(async () => {
  const local = await createLocalAuthority();
  authority = local.cert;
  certificate = await local.issue(["localhost"]);
});
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end();
});

/** A request as a receiver sees it. */
interface Seen {
  socket: TLSSocket;
  /** Which connection of the receiver it came over, from 1. */
  connection: number;
  /** Which request of its connection it is, from 1. */
  request: number;
}

interface RawReceiver {
  origin: string;
  seen: Seen[];
  /** Connections that are open. */
  open: Set<Socket>;
}

/** A receiver that writes what it likes to its connections. */
async function startRaw(reply: (seen: Seen) => void): Promise<RawReceiver> {
  const seen: Seen[] = [];
  const open = new Set<Socket>();
  let connections = 0;
  const server = createServer({ ...certificate }, (socket) => {
    connections += 1;
    const connection = connections;
    let [requests, text] = [0, ""];
    socket.on("error", () => {});
    socket.on("data", (chunk) => {
      text += chunk;
      // The body of each request is two bytes long.
      for (let end = text.indexOf("\r\n\r\n{}"); end !== -1; end = text.indexOf("\r\n\r\n{}")) {
        text = text.slice(end + 6);
        requests += 1;
        const request = { socket, connection, request: requests };
        seen.push(request);
        reply(request);
      }
    });
  }).on("connection", (socket) => {
    open.add(socket);
    socket.once("close", () => open.delete(socket));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(() => {
    for (const socket of open) socket.destroy();
    return new Promise((resolve) => server.close(resolve));
  });
  return { origin: `https://localhost:${(server.address() as AddressInfo).port}`, seen, open };
}

function connect(options: { keepAliveTimeout?: number; connectTimeoutMs?: number } = {}): Connections {
  const connector = buildConnector({
    ca: authority,
    timeout: options.connectTimeoutMs ?? 60_000,
    allowH2: false,
  });
  const connections = new Connections({
    maxConnections: 1_000,
    keepAliveTimeout: options.keepAliveTimeout ?? 60_000,
    keepAliveMaxTimeout: 60_000,
    connect(target, callback) {
      const socket = connector(target, callback) as unknown as Socket;
      return () => socket.destroy();
    },
    allowH2: false,
  });
  ends.push(() => connections.destroy());
  return connections;
}

function send(via: Connections, origin: string, timeoutMs = 60_000): Promise<Outcome> {
  return new Promise((outcome) =>
    post(via, { origin, path: "/", headers: [], body: "{}" }, timeoutMs, outcome),
  );
}

const places = ({ seen }: RawReceiver) => seen.map(({ connection, request }) => [connection, request]);

test("a request goes over the connection that was used last", async () => {
  const held: Seen[] = [];
  let isHolding = true;
  const receiver = await startRaw((seen) => {
    if (isHolding) held.push(seen);
    else seen.socket.write(OK);
  });
  const connections = connect();
  const sent = [send(connections, receiver.origin), send(connections, receiver.origin)];
  await expect.poll(() => held.length).toBe(2);
  expect(connections.size).toEqual({ connections: 2, idleHosts: 0 });
  const [first, last] = held as [Seen, Seen];
  first.socket.write(OK);
  await Promise.race(sent);
  last.socket.write(OK);
  await Promise.all(sent);
  isHolding = false;
  for (let n = 0; n < 5; n += 1) await send(connections, receiver.origin);
  expect(receiver.seen.slice(2).map(({ connection }) => connection)).toEqual(Array(5).fill(last.connection));
  expect(connections.size).toEqual({ connections: 2, idleHosts: 1 });
});

test("a connection carries one request at a time", async () => {
  const receiver = await startRaw(() => {});
  const connections = connect();
  for (let n = 0; n < 10; n += 1) void send(connections, receiver.origin);
  await expect.poll(() => receiver.seen.length).toBe(10);
  expect(new Set(receiver.seen.map(({ connection }) => connection)).size).toBe(10);
});

test("a request on a reused connection that the receiver closes before its response is sent once more, over a new one", async () => {
  const receiver = await startRaw(({ socket, request }) => {
    if (request === 1) socket.write(OK);
    else socket.destroy();
  });
  const connections = connect();
  await send(connections, receiver.origin);
  expect(await send(connections, receiver.origin)).toMatchObject({
    delivered: true,
    status: 200,
    error: null,
  });
  expect(places(receiver)).toEqual([
    [1, 1],
    [1, 2],
    [2, 1],
  ]);
});

test("a request is sent once more only once, also when the new connection is closed too", async () => {
  const receiver = await startRaw(({ socket, connection, request }) => {
    if (connection === 1 && request === 1) socket.write(OK);
    else socket.destroy();
  });
  const connections = connect();
  await send(connections, receiver.origin);
  expect(await send(connections, receiver.origin)).toMatchObject({
    delivered: false,
    status: null,
    failure: "webhook",
  });
  expect(places(receiver)).toEqual([
    [1, 1],
    [1, 2],
    [2, 1],
  ]);
  await expect.poll(() => connections.size).toEqual({ connections: 0, idleHosts: 0 });
});

test("a request is not repeated when the connection that is closed was new", async () => {
  const receiver = await startRaw(({ socket }) => socket.destroy());
  expect(await send(connect(), receiver.origin)).toMatchObject({ delivered: false, failure: "webhook" });
  expect(places(receiver)).toEqual([[1, 1]]);
});

test.each(["H", "HTTP/1.1 2", "HTTP/1.1 200 OK\r\ncontent-le"])(
  "a request is not repeated when the reused connection is closed after %j of the response",
  async (part) => {
    const receiver = await startRaw(({ socket, request }) => {
      if (request === 1) socket.write(OK);
      else socket.end(part);
    });
    const connections = connect();
    await send(connections, receiver.origin);
    expect(await send(connections, receiver.origin)).toMatchObject({ delivered: false, status: null });
    expect(places(receiver)).toEqual([
      [1, 1],
      [1, 2],
    ]);
  },
);

test("a request that times out on a reused connection is not repeated", async () => {
  const receiver = await startRaw(({ socket, request }) => {
    if (request === 1) socket.write(OK);
  });
  const connections = connect();
  await send(connections, receiver.origin);
  expect(await send(connections, receiver.origin, 200)).toMatchObject({ failure: "webhook timeout" });
  await expect.poll(() => receiver.open.size).toBe(0);
  expect(places(receiver)).toEqual([
    [1, 1],
    [1, 2],
  ]);
});

test("idle connections are closed after a while, and their hosts are forgotten", async () => {
  const receivers = await Promise.all([1, 2].map(() => startRaw(({ socket }) => socket.write(OK))));
  const connections = connect({ keepAliveTimeout: 50 });
  for (const { origin } of receivers) await send(connections, origin);
  await expect.poll(() => connections.size).toEqual({ connections: 0, idleHosts: 0 });
  await expect.poll(() => receivers.map(({ open }) => open.size)).toEqual([0, 0]);
});

test("an idle connection that the receiver closes is forgotten, and the next request goes over a new one", async () => {
  const receiver = await startRaw(({ socket }) => socket.write(OK));
  const connections = connect();
  await send(connections, receiver.origin);
  for (const socket of receiver.open) socket.destroy();
  await expect.poll(() => connections.size).toEqual({ connections: 0, idleHosts: 0 });
  expect(await send(connections, receiver.origin)).toMatchObject({ delivered: true });
  expect(places(receiver)).toEqual([
    [1, 1],
    [2, 1],
  ]);
});

test("a connection that the receiver closes with its response is not used again", async () => {
  const receiver = await startRaw(({ socket }) =>
    socket.end("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
  );
  const connections = connect();
  for (let n = 1; n <= 3; n += 1)
    expect(await send(connections, receiver.origin)).toMatchObject({ delivered: true });
  expect(places(receiver)).toEqual([
    [1, 1],
    [2, 1],
    [3, 1],
  ]);
  await expect.poll(() => connections.size).toEqual({ connections: 0, idleHosts: 0 });
});

test("at most 1,000 idle connections are kept; the one that is idle for longest is closed for another", async () => {
  const waiting: TLSSocket[] = [];
  let isHolding = true;
  const answerAll = () => {
    for (const socket of waiting.splice(0)) socket.write(OK);
  };
  const receiver = await startRaw(({ socket }) => {
    if (isHolding) waiting.push(socket);
    else socket.write(OK);
  });
  const other = await startRaw(({ socket }) => socket.write(OK));
  const connections = connect();
  await send(connections, other.origin);
  const sent = Array.from({ length: 1_010 }, () => send(connections, receiver.origin));
  await expect.poll(() => waiting.length, { timeout: 60_000 }).toBe(1_010);
  expect(connections.size).toEqual({ connections: 1_011, idleHosts: 1 });
  answerAll();
  await Promise.all(sent);
  await expect.poll(() => connections.size).toEqual({ connections: 1_000, idleHosts: 1 });
  await expect.poll(() => [receiver.open.size, other.open.size]).toEqual([1_000, 0]);
  isHolding = false;
  expect(await send(connections, other.origin)).toMatchObject({ delivered: true });
  expect(other.seen).toHaveLength(2);
  await expect.poll(() => connections.size).toEqual({ connections: 1_000, idleHosts: 2 });
}, 120_000);

/** A request is given up while its connection has begun and not come to TLS; resolves to the open connections. */
async function giveUpWhileConnecting(connectTimeoutMs: number): Promise<Set<Socket>> {
  const open = new Set<Socket>();
  let opened = 0;
  // Accepts connections and never begins with TLS.
  const silent = createTcpServer((socket) => {
    opened += 1;
    open.add(socket);
    socket
      .on("error", () => {})
      .once("close", () => open.delete(socket))
      .resume();
  }).listen(0, "127.0.0.1");
  await once(silent, "listening");
  ends.push(() => {
    for (const socket of open) socket.destroy();
    return new Promise((resolve) => silent.close(resolve));
  });
  const connections = connect({ connectTimeoutMs });
  const { port } = silent.address() as AddressInfo;
  const late = send(connections, `https://localhost:${port}`, 200);
  // It may be closed again before it is looked for.
  await expect.poll(() => opened).toBe(1);
  expect(await late).toMatchObject({
    failure: "host timeout",
    error: expect.stringMatching(/^no connection/),
  });
  expect(connections.size).toEqual({ connections: 0, idleHosts: 0 });
  return open;
}

test("the connection of a request that is given up while it connects is closed at once", async () => {
  const open = await giveUpWhileConnecting(60_000);
  await expect.poll(() => open.size, { timeout: 2_000 }).toBe(0);
});

test("all connections are closed in the end, those in use included", async () => {
  const receiver = await startRaw(({ socket, connection }) => {
    if (connection === 1) socket.write(OK);
  });
  const connections = connect();
  await send(connections, receiver.origin);
  const sent = [send(connections, receiver.origin), send(connections, receiver.origin)];
  await expect.poll(() => receiver.seen.length).toBe(3);
  await connections.destroy();
  for (const outcome of await Promise.all(sent)) expect(outcome.status ?? 200).toBe(200);
  await expect.poll(() => receiver.open.size).toBe(0);
  expect(connections.size).toEqual({ connections: 0, idleHosts: 0 });
});
