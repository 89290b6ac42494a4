import ipaddr from "ipaddr.js";
import { describe, expect, test } from "vitest";
import type { Network } from "../../src/config-values.ts";
import { createAddressGuard } from "../../src/delivery/address-guard.ts";

const guard = createAddressGuard([]);

describe("the address guard", () => {
  test.each([
    ["0.0.0.0", "unspecified"],
    ["10.1.2.3", "private"],
    ["100.64.0.1", "carrier-grade-nat"],
    ["127.0.0.1", "loopback"],
    ["127.255.255.254", "loopback"],
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
  ])("refuses %s as %s", (address, kind) => {
    expect(() => guard.check(address)).toThrow(new RegExp(`is an? ${kind} address`));
  });

  test.each(["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])(
    "lets the public address %s through",
    (address) => {
      expect(() => guard.check(address)).not.toThrow();
    },
  );

  test("lets through what an operator allowed, however the address is written, and nothing beside it", () => {
    const lenient = createAddressGuard([ipaddr.parseCIDR("127.0.0.0/8") as Network]);
    expect(() => lenient.check("127.0.0.1")).not.toThrow();
    expect(() => lenient.check("::ffff:127.0.0.1")).not.toThrow();
    expect(() => lenient.check("10.0.0.1")).toThrow(/private/);
  });

  test("judges a name by what it resolves to, and names the address and the remedy", async () => {
    const error = await new Promise<Error | null>((resolve) =>
      guard.lookup("localhost", { all: true }, (reason) => resolve(reason)),
    );
    expect(error?.message).toMatch(/loopback address.*DELIVERY_ALLOWED_NETWORKS/);
  });
});
