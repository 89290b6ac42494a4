import { createRequire } from "node:module";
import { expect, test } from "vitest";
import { AddressRefusedError, createAddressGuard } from "../../../src/lib/egress/address-guard.ts";
import { LOOPBACK, namesAt } from "../../delivery/http-parts.ts";

// The list that fetch goes by; undici has no types for it.
const { badPorts } = createRequire(import.meta.url)("undici/lib/web/fetch/constants.js") as {
  badPorts: string[];
};

const guard = createAddressGuard([]);

test.each([
  ["0.0.0.0", "unspecified"],
  ["10.1.2.3", "private"],
  ["100.64.0.1", "carrier-grade-nat"],
  ["127.0.0.1", "loopback"],
  ["169.254.169.254", "link-local"],
  ["172.16.0.1", "private"],
  ["192.168.1.1", "private"],
  ["198.18.0.1", "reserved"],
  ["224.0.0.1", "multicast"],
  ["240.0.0.1", "reserved"],
  ["255.255.255.255", "broadcast"],
  ["168.63.129.16", "platform"],
  ["::", "unspecified"],
  ["::1", "loopback"],
  ["fe80::1", "link-local"],
  ["fd00::1", "unique-local"],
  ["ff02::1", "multicast"],
  ["4000::1", "reserved"],
  ["2001:db8::1", "reserved"],
  ["::ffff:127.0.0.1", "loopback"],
  ["::ffff:169.254.169.254", "link-local"],
  ["64:ff9b::10.0.0.1", "private"],
  ["2002:7f00:1::", "loopback"],
  ["64:ff9b:1::8.8.8.8", "local NAT64"],
  ["64:ff9b:1:ffff::1", "local NAT64"],
  ["2606:4700::5efe:8.8.8.8", "tunnel \\(ISATAP\\)"],
  ["2606:4700::200:5efe:10.0.0.1", "tunnel \\(ISATAP\\)"],
  ["2606:4700::200:5efe:10.0.0.1", "tunnel \\(ISATAP\\)"],
])("the address guard refuses %s as %s", (address, kind) => {
  expect(() => guard.check(address)).toThrow(new RegExp(`is an? ${kind} address`));
});

const PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"];
test.each(PUBLIC)("the address guard lets the public address %s through", (address) => {
  expect(() => guard.check(address)).not.toThrow();
});

test("the address guard lets through what an operator allowed, however the address is written, and nothing beside it", () => {
  const lenient = createAddressGuard([LOOPBACK]);
  expect(() => lenient.check("127.0.0.1")).not.toThrow();
  expect(() => lenient.check("::ffff:127.0.0.1")).not.toThrow();
  expect(() => lenient.check("10.0.0.1")).toThrow(/private/);
});

test("the address guard judges a name by what it resolves to, and names the remedy, but not what the name resolves to", async () => {
  const error = await createAddressGuard([], { resolver: namesAt("10.20.30.40", "fd00::1") })
    .resolve("intranet.example")
    .catch((reason: Error) => reason);
  expect(error).toBeInstanceOf(AddressRefusedError);
  const { message } = error as Error;
  expect(message).toMatch(
    /^intranet\.example does not resolve to a public address.*DELIVERY_ALLOWED_NETWORKS/,
  );
  expect(message).not.toMatch(/10\.|fd00|private|unique|loopback/);
});

test("the address guard resolves a name to its allowed addresses", async () => {
  const mixed = createAddressGuard([], { resolver: namesAt("10.0.0.1", "93.184.216.34") });
  expect(await mixed.resolve("mixed.example")).toEqual([{ address: "93.184.216.34", family: 4 }]);
});

const ofHost = (host: string, ...addresses: string[]) => {
  const allowedHosts = ["receiver.internal", "*.team-a.svc"];
  return createAddressGuard([], { allowedHosts, resolver: namesAt(...addresses) }).resolve(host);
};

test.each(["receiver.internal", "receiver.team-a.svc", "a.receiver.team-a.svc"])(
  "the address guard lets private addresses of the allowed name %s through, and none where machines keep secrets",
  async (name) => {
    const local = ["10.0.0.1", "127.0.0.1", "192.168.0.1", "100.64.0.1", "fd00::1", "::1", "::ffff:10.0.0.1"];
    expect((await ofHost(name, ...local)).map(({ address }) => address)).toEqual(local);
    for (const other of ["169.254.169.254", "fe80::1", "168.63.129.16", "0.0.0.0", "224.0.0.1", "240.0.0.1"])
      await expect(ofHost(name, other)).rejects.toThrow(/does not resolve to a public address/);
  },
);

test.each(["a.receiver.internal", "team-a.svc", "evil-team-a.svc", "receiver.internal.example", "internal"])(
  "the address guard refuses private addresses of %s, a name beside allowed ones",
  async (name) => {
    await expect(ofHost(name, "10.0.0.1")).rejects.toThrow(/the name with DELIVERY_ALLOWED_HOSTS/);
  },
);

test("the address guard refuses names of the machine that resolves them", () => {
  for (const name of ["localhost", "app.localhost"]) {
    expect(() => guard.checkUnresolved(name)).toThrow(AddressRefusedError);
    expect(() => createAddressGuard([LOOPBACK]).checkUnresolved(name)).not.toThrow();
    expect(() => createAddressGuard([], { allowedHosts: [name] }).checkUnresolved(name)).not.toThrow();
  }
  expect(() => guard.checkUnresolved("receiver.internal")).not.toThrow();
});

test("the address guard refuses port 0, the ports that browsers block, and the ports of databases", () => {
  const data = [2375, 2379, 3306, 5432, 6379, 9200, 11211, 27017];
  for (const port of [0, ...badPorts.map(Number), ...data]) {
    expect(() => guard.checkPort(port), String(port)).toThrow(new RegExp(`^port ${port} `));
  }
  for (const port of [80, 443, 8080, 8443, 9443, 65_535]) {
    expect(() => guard.checkPort(port)).not.toThrow();
  }
});

test("the address guard lets ports through that an operator allowed, but never port 0", () => {
  const lenient = createAddressGuard([], { allowedPorts: [0, 6379] });
  expect(() => lenient.checkPort(6379)).not.toThrow();
  expect(() => lenient.checkPort(9200)).toThrow(/belongs to another protocol.*DELIVERY_ALLOWED_PORTS/);
  expect(() => lenient.checkPort(0)).toThrow(/use a port from 1 to 65535/);
});
