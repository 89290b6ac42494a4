import type { LookupAddress } from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import { Socket } from "node:net";
import os, { type NetworkInterfaceInfo } from "node:os";
import pino from "pino";
import { afterEach, expect, test, vi } from "vitest";
import { withoutMissingFamily } from "../../../src/lib/egress/families.ts";
import { OutboundProxy } from "../../../src/lib/egress/outbound-proxy.ts";
import { aClient, LOOPBACK, namesAt, networkOf, send } from "../../delivery/http-parts.ts";
import { anyPort } from "../../support/any-port.ts";

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
  const target = { addresses: [V4.address], port: 443 };
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
