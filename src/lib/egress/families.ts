import type { LookupAddress } from "node:dns";
import type { LookupFunction, TcpSocketConnectOpts } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";

/**
 * Options for `connect` of node:net and node:tls that dial these addresses instead of resolving the name. Node alternates between the
 * families. Addresses of a family that this machine lacks are left out.
 */
export function dialling(
  addresses: readonly LookupAddress[],
): Pick<TcpSocketConnectOpts, "lookup" | "autoSelectFamily"> {
  // With autoSelectFamily, Node sets the lookup's option `all`, so the callback takes a list of addresses.
  const lookup: LookupFunction = (_name, _options, callback) =>
    callback(null, withoutMissingFamily(addresses));
  return { lookup, autoSelectFamily: true };
}

/**
 * Leaves out addresses of a family that this machine lacks, if the other family has addresses. Node gives every address but
 * the last only a short time to connect (500 ms in Node 26). An address that this machine cannot reach must not take the place of the
 * last one.
 */
export function withoutMissingFamily(addresses: readonly LookupAddress[]): LookupAddress[] {
  if (new Set(addresses.map(({ family }) => family)).size < 2) return [...addresses];
  const own = ownFamilies();
  // Loopback addresses work without a network.
  const kept = addresses.filter(
    ({ address, family }) => own.has(family) || ipaddr.parse(address).range() === "loopback",
  );
  return kept.length > 0 ? kept : [...addresses];
}

/** The address families, 4 and 6, of which this machine has an address that is neither loopback nor link-local IPv6. */
function ownFamilies(): Set<number> {
  const interfaces = Object.values(networkInterfaces()).flatMap((each = []) => each);
  // Link-local IPv4 counts: a Kubernetes pod with only IPv6 can reach IPv4 through such an address, which its node translates.
  const own = interfaces.filter(({ internal, scopeid = 0 }) => !internal && scopeid === 0);
  return new Set(own.map(({ family }) => (family === "IPv4" ? 4 : 6)));
}
