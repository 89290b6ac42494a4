import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { connect } from "node:net";
import os, { type NetworkInterfaceInfo } from "node:os";
import { Worker } from "node:worker_threads";
import pino from "pino";
import { afterEach, expect, onTestFinished, test, vi } from "vitest";
import { withoutMissingFamily } from "../../../src/delivery/http/families.ts";
import { OutboundProxy } from "../../../src/delivery/proxy/outbound-proxy.ts";
import { ProxyState } from "../../../src/delivery/proxy/proxy-state.ts";
import { trustedAuthority } from "../../support/receivers.ts";
import { until } from "../../support/wait.ts";
import { aClient, LOOPBACK, namesAt, networkOf, send } from "../http-parts.ts";

const V4: LookupAddress = { address: "192.0.2.77", family: 4 };
const V6: LookupAddress = { address: "2001:db8::77", family: 6 };
const V4_LO: LookupAddress = { address: "127.0.0.1", family: 4 };
const V6_LO: LookupAddress = { address: "::1", family: 6 };
/** A host name with an address that this machine can reach, and one of the family that it lacks. */
const RESOLVER = namesAt(V4_LO.address, V6.address);

const LOOPBACK_INTERFACE = [
  { address: "127.0.0.1", family: "IPv4", internal: true },
  { address: "::1", family: "IPv6", internal: true, scopeid: 0 },
];
const LINK_LOCAL = { address: "fe80::1", family: "IPv6", internal: false, scopeid: 2 };
const OWN_V4 = { address: "192.0.2.2", family: "IPv4", internal: false };
const OWN_V6 = { address: "2001:db8::2", family: "IPv6", internal: false, scopeid: 0 };

/** Gives this machine other network interfaces. */
function setInterfaces(...interfaces: object[]): void {
  const all = { lo: LOOPBACK_INTERFACE, eth0: interfaces } as unknown as NodeJS.Dict<NetworkInterfaceInfo[]>;
  vi.spyOn(os, "networkInterfaces").mockReturnValue(all);
  syncBuiltinESMExports();
}

const certificate = await (await trustedAuthority()).issue(["receiver.example"]);

afterEach(() => {
  vi.restoreAllMocks();
  syncBuiltinESMExports();
});

/**
 * Starts a server whose queue of connections is full, so that the first packet of the next one is lost. The client sends
 * this packet again after a second.
 *
 * @param createServer code of the server
 */
async function startBusyServer(createServer: string): Promise<{ port: number; relieve(): void }> {
  const busy = new Int32Array(new SharedArrayBuffer(4));
  const program = `
    const { parentPort, workerData } = require("node:worker_threads");
    const { certificate, busy } = workerData;
    const server = ${createServer};
    server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
      parentPort.postMessage(server.address().port);
      Atomics.wait(busy, 0, 0);
    });`;
  const thread = new Worker(program, { eval: true, workerData: { certificate, busy } });
  const relieve = () => {
    Atomics.store(busy, 0, 1);
    Atomics.notify(busy, 0);
  };
  onTestFinished(async () => {
    relieve();
    await thread.terminate();
  });
  const [port] = (await once(thread, "message")) as [number];
  // Linux queues one connection more than the backlog.
  for (let queued = 0; queued < 2; queued += 1) {
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    onTestFinished(() => void socket.destroy());
    await once(socket, "connect");
  }
  return { port, relieve };
}

/** Waits until a connection to the port has sent its first packet, without an answer. */
async function firstPacketLost(port: number): Promise<void> {
  const sent = ` 0100007F:${port.toString(16).toUpperCase().padStart(4, "0")} 02 `;
  await until(() => readFileSync("/proc/net/tcp", "latin1").includes(sent));
}

test.skipIf(process.platform !== "linux")(
  "a receiver whose handshake takes a second gets its delivery if its other address is of a missing family",
  async () => {
    setInterfaces(OWN_V4, LINK_LOCAL);
    const client = aClient({ networks: [LOOPBACK, networkOf("2001:db8::/32")], resolver: RESOLVER });
    const server = await startBusyServer(
      `require("node:https").createServer(certificate, (request, response) => response.end("noted"))`,
    );
    const sent = send(client, `https://receiver.example:${server.port}`);
    await firstPacketLost(server.port);
    server.relieve();
    expect(await sent).toMatchObject({ delivered: true, error: null });
  },
);

test.skipIf(process.platform !== "linux")(
  "an outbound proxy whose handshake takes a second opens its tunnel if its other address is of a missing family",
  async () => {
    setInterfaces(OWN_V4, LINK_LOCAL);
    const server = await startBusyServer(
      `require("node:http").createServer().on("connect", (request, socket) => socket.write("HTTP/1.1 200 OK\\r\\n\\r\\n"))`,
    );
    const proxy = new OutboundProxy(
      { protocol: "http", host: "proxy.example", port: server.port, credentials: undefined },
      { resolver: RESOLVER, state: new ProxyState(pino({ enabled: false })), attemptTimeoutMs: 20_000 },
    );
    const tunnel = proxy.open({ addresses: [V4.address], port: 443 }, 5_000, new AbortController().signal);
    await firstPacketLost(server.port);
    server.relieve();
    (await tunnel).destroy();
  },
);

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
