import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { connect, createServer, isIP, Socket } from "node:net";
import os, { type NetworkInterfaceInfo } from "node:os";
import { Worker } from "node:worker_threads";
import pino from "pino";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { dial, withoutMissingFamily } from "../../../src/lib/egress/dial.ts";
import { OutboundProxy } from "../../../src/lib/egress/outbound-proxy.ts";
import { aClient, LOOPBACK, namesAt, networkOf, send } from "../../delivery/http-parts.ts";
import { anyPort } from "../../support/any-port.ts";
import { holdTime } from "../../support/held-time.ts";
import { PATIENCE_MS } from "../../support/patience.ts";
import { until } from "../../support/wait.ts";

const V4: LookupAddress = { address: "192.0.2.77", family: 4 };
const V6: LookupAddress = { address: "2001:db8::77", family: 6 };
const V4_LO: LookupAddress = { address: "127.0.0.1", family: 4 };
const V6_LO: LookupAddress = { address: "::1", family: 6 };

/** A host name with an address that this machine can reach, and one of the family that it lacks. */
const RESOLVER = namesAt(V6.address, V4_LO.address);

const LOOPBACKS = [
  { address: "127.0.0.1", family: "IPv4", internal: true },
  { address: "::1", family: "IPv6", internal: true },
];
const LINK_LOCAL = { address: "fe80::1", family: "IPv6", internal: false, scopeid: 2 };
const OWN_V4 = { address: "192.0.2.2", family: "IPv4", internal: false };
const OWN_V6 = { address: "2001:db8::2", family: "IPv6", internal: false, scopeid: 0 };

/** Gives this machine other network interfaces. */
function setInterfaces(...interfaces: object[]): void {
  const all = { lo: LOOPBACKS, eth0: interfaces } as unknown as NodeJS.Dict<NetworkInterfaceInfo[]>;
  vi.spyOn(os, "networkInterfaces").mockReturnValue(all);
  syncBuiltinESMExports();
}

afterEach(() => {
  vi.restoreAllMocks();
  syncBuiltinESMExports();
});

/** The addresses that sockets dial during a test. */
function dialled(): Set<string> {
  const addresses = new Set<string>();
  const emit = Socket.prototype.emit;
  vi.spyOn(Socket.prototype, "emit").mockImplementation(function (this: Socket, event, ...given) {
    if (event === "connectionAttempt") addresses.add(given[0]);
    return emit.call(this, event, ...given);
  });
  return addresses;
}

test("requests and tunnels dial no address of a family that this machine lacks", async () => {
  setInterfaces(OWN_V4, LINK_LOCAL);
  const addresses = dialled();
  const port = await anyPort();
  const client = aClient({ networks: [LOOPBACK, networkOf("2001:db8::/32")], resolver: RESOLVER });
  expect(await send(client, `https://receiver.example:${port}`)).toMatchObject({ failure: "host" });
  expect(addresses).toEqual(new Set([V4_LO.address]));
  addresses.clear();
  const proxy = new OutboundProxy(
    { protocol: "http", host: "proxy.example", port, credentials: undefined },
    RESOLVER,
    { log: pino({ enabled: false }), timeoutMs: 20_000 },
  );
  const target = { hosts: [V4.address], port: 443 };
  await expect(proxy.open(target, 5_000, new AbortController().signal)).rejects.toThrow();
  expect(addresses).toEqual(new Set([V4_LO.address]));
});

test.each<[string, object[], LookupAddress[], LookupAddress[]]>([
  ["a machine with IPv4 only dials no IPv6 address", [OWN_V4, LINK_LOCAL], [V4, V6], [V4]],
  ["a machine with IPv6 only dials no IPv4 address", [OWN_V6], [V6, V4], [V6]],
  ["a machine with both families dials both", [OWN_V4, OWN_V6], [V6, V4], [V6, V4]],
  ["a machine without a network dials both families", [], [V4, V6], [V4, V6]],
  ["a machine with IPv4 only dials an IPv6 address if there is no other", [OWN_V4], [V6], [V6]],
  ["a machine with IPv4 only dials both loopback addresses", [OWN_V4], [V4_LO, V6_LO], [V4_LO, V6_LO]],
])("%s", (_, interfaces, addresses, expected) => {
  setInterfaces(...interfaces);
  expect(withoutMissingFamily(addresses)).toEqual(expected);
});

/**
 * Listens on an address whose queue of connections is full, so that the system ignores further ones until the server accepts.
 *
 * @returns `accept` has the server accept connections
 */
async function slowListener(host: string, port = 0) {
  const gate = new Int32Array(new SharedArrayBuffer(4));
  const script = `
    const { parentPort, workerData } = require("node:worker_threads");
    const server = require("node:net").createServer((socket) => socket.on("error", () => {}));
    server.listen({ ...workerData.place, backlog: 1 }, () => {
      parentPort.postMessage(server.address().port);
      Atomics.wait(workerData.gate, 0, 0);
    });`;
  const worker = new Worker(script, { eval: true, workerData: { place: { host, port }, gate } });
  const accept = () => {
    Atomics.store(gate, 0, 1);
    Atomics.notify(gate, 0);
  };
  const [listening] = (await once(worker, "message")) as [number];
  // The system takes one connection more than the backlog.
  const first = [1, 2].map(() => connect(listening, host).on("error", () => {}));
  await Promise.all(first.map((socket) => once(socket, "connect")));
  onTestFinished(async () => {
    accept();
    for (const socket of first) socket.destroy();
    await worker.terminate();
  });
  return { port: listening, accept };
}

const limits = { milliseconds: PATIENCE_MS };
const at = (...addresses: string[]) => addresses.map((address) => ({ address, family: isIP(address) }));

test.each<[string, (port: number) => Promise<unknown>]>([
  ["refuses connections", async () => {}],
  ["does not answer", (port) => slowListener("127.0.0.2", port)],
])("an address that is slow to accept is not given up for another one, which %s", async (_what, other) => {
  const slow = await slowListener("127.0.0.1");
  await other(slow.port);
  const tried = dialled();
  const dialling = dial(at("127.0.0.1", "127.0.0.2"), slow.port, limits);
  await until(() => tried.has("127.0.0.2"));
  slow.accept();
  const socket = await dialling;
  onTestFinished(() => void socket.destroy());
  expect(socket.remoteAddress).toBe("127.0.0.1");
});

test("the next address is dialled after 250 ms, or at once if one fails, and the first connection is taken", async () => {
  const slow = await slowListener("127.0.0.1");
  const server = createServer().listen(slow.port, "127.0.0.3");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const { pass } = holdTime();
  const tried = dialled();
  const dialling = dial(at("127.0.0.1", "127.0.0.2", "127.0.0.3"), slow.port, limits);
  pass(249);
  await expect.poll(() => [...tried]).toEqual(["127.0.0.1"]);
  pass(1);
  const socket = await dialling;
  onTestFinished(() => void socket.destroy());
  expect(socket.remoteAddress).toBe("127.0.0.3");
  expect([...tried]).toEqual(["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
});

test("addresses are dialled in turns of families, and all failures are reported", async () => {
  setInterfaces(OWN_V4, OWN_V6);
  const tried = dialled();
  const port = await anyPort();
  const failure = dial(at("::1", "127.0.0.1", "127.0.0.2", "127.0.0.3"), port, limits);
  await expect(failure).rejects.toMatchObject({ errors: Array(4).fill({ syscall: "connect" }) });
  expect([...tried]).toEqual(["::1", "127.0.0.1", "127.0.0.2", "127.0.0.3"]);
  await expect(dial(at("127.0.0.1"), port, limits)).rejects.toMatchObject({ code: "ECONNREFUSED" });
});

test("a connection that is given up closes all attempts", async () => {
  const slow = await slowListener("127.0.0.1");
  const given = new AbortController();
  const dialling = dial(at("127.0.0.1"), slow.port, { ...limits, signal: given.signal });
  given.abort(new Error("given up"));
  await expect(dialling).rejects.toThrow("given up");
});
