import type { LookupAddress } from "node:dns";
import { syncBuiltinESMExports } from "node:module";
import { Socket } from "node:net";
import os, { type NetworkInterfaceInfo } from "node:os";
import { afterEach, expect, test, vi } from "vitest";
import { withoutMissingFamily } from "../../../src/delivery/http/families.ts";
import { anyPort } from "../../support/any-port.ts";
import { aClient, LOOPBACK, namesAt, networkOf, send } from "../http-parts.ts";

const V4: LookupAddress = { address: "192.0.2.77", family: 4 };
const V6: LookupAddress = { address: "2001:db8::77", family: 6 };
const V4_LO: LookupAddress = { address: "127.0.0.1", family: 4 };
const V6_LO: LookupAddress = { address: "::1", family: 6 };

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

test("requests dial no address of a family that this machine lacks", async () => {
  setInterfaces(OWN_V4, LINK_LOCAL);
  const dialled = new Set<string>();
  const emit = Socket.prototype.emit;
  vi.spyOn(Socket.prototype, "emit").mockImplementation(function (this: Socket, event, ...given) {
    if (event === "connectionAttempt") dialled.add(given[0]);
    return emit.call(this, event, ...given);
  });
  const networks = [LOOPBACK, networkOf("2001:db8::/32")];
  const client = aClient({ networks, resolver: namesAt(V6.address, V4_LO.address) });
  const sent = await send(client, `https://receiver.example:${await anyPort()}`);
  expect([sent.failure, [...dialled]]).toEqual(["host", [V4_LO.address]]);
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
