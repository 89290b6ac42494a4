import { once } from "node:events";
import * as http2 from "node:http2";
import { connect as openSocket, type Socket } from "node:net";
import pino from "pino";
import { afterAll, expect, onTestFinished, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import { startTestApi } from "../../support/test-api.ts";
import { until } from "../../support/wait.ts";

const MAX_PER_ADDRESS = 5;
const MAX = 7;

/** On a socket for both families of addresses, as by default. */
const { host } = readConfig({});
const lines: { msg: string; address?: string }[] = [];
const log = pino({ level: "warn" }, { write: (line) => void lines.push(JSON.parse(line)) });
const limited = await startTestApi({ host, log, limits: { maxConnectionsPerAddress: MAX_PER_ADDRESS } });
const { trustedProxies } = readConfig({ TRUST_PROXY: "127.0.0.0/8" }).limits;
const behindProxy = await startTestApi({
  limits: { maxConnectionsPerAddress: MAX_PER_ADDRESS, maxConnections: MAX, trustedProxies },
});
afterAll(async () => {
  await limited.stop();
  await behindProxy.stop();
});

/** Opens this number of connections. Returns those that stay open once the others are refused. */
async function staying(port: number, count: number, expected: number): Promise<Socket[]> {
  const sockets: Socket[] = [];
  const closed = new Set<Socket>();
  onTestFinished(async () => {
    for (const socket of sockets) socket.destroy();
    await Promise.all(sockets.map((socket) => socket.closed || once(socket, "close")));
  });
  for (let n = 0; n < count; n += 1) {
    const socket = openSocket(port, "127.0.0.1");
    socket
      .on("error", () => {})
      .once("close", () => closed.add(socket))
      .resume();
    sockets.push(socket);
    await once(socket, "connect");
  }
  await expect.poll(() => closed.size).toBe(count - expected);
  return sockets.filter((socket) => !closed.has(socket));
}

/** Sees to it that connections are served. */
async function expectServed(sockets: readonly Socket[]): Promise<void> {
  for (const socket of sockets) socket.write("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
  const answers = await Promise.all(sockets.map((socket) => once(socket, "data")));
  for (const [answer] of answers) expect(String(answer)).toContain("200 OK");
}

test("of one address are limited on each listener, and those that are open stay", async () => {
  await expectServed(await staying(limited.httpPort, 20, MAX_PER_ADDRESS));
  expect(await staying(limited.grpcPort as number, 20, MAX_PER_ADDRESS)).toHaveLength(MAX_PER_ADDRESS);
  // The first that was refused is logged, as its client knows itself.
  expect(lines.find(({ msg }) => msg === "connections refused")?.address).toBe("127.0.0.1");
});

test("that a client leaves idle make room for its next ones, and those in use stay", async () => {
  /** Opens a session that is served; the connections of the test before may be in its way for a moment. */
  const open = () =>
    until(async () => {
      const session = http2.connect(limited.grpcUrl).on("error", () => {});
      onTestFinished(() => session.destroy());
      const answersPing = () => new Promise<boolean>((resolve) => session.ping((error) => resolve(!error)));
      const served = once(session, "connect").then(answersPing);
      const refused = once(session, "close").then(() => false);
      return (await Promise.race([served, refused])) && session;
    });
  const used = (await open()) as http2.ClientHttp2Session;
  const busy = used.request({
    ":method": "POST",
    ":path": "/grpc.health.v1.Health/Watch",
    "content-type": "application/grpc",
  });
  busy.on("error", () => {}).end(Buffer.alloc(5));
  await once(busy, "data");
  const left: http2.ClientHttp2Session[] = [];
  for (let n = 0; n < 20; n += 1) left.push((await open()) as http2.ClientHttp2Session);
  await expect.poll(() => left.filter((session) => !session.destroyed).length).toBe(MAX_PER_ADDRESS - 1);
  expect(busy.closed).toBe(false);
});

test("of trusted proxies are not limited by address, but in total", async () => {
  await expectServed(await staying(behindProxy.httpPort, 20, MAX));
});
