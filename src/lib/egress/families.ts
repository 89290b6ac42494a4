import type { LookupAddress } from "node:dns";
import type { LookupFunction, TcpSocketConnectOpts } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";

/** Options of `connect` that dial addresses which are already resolved and checked, by turns of their families. */
export function dialling(
  addresses: readonly LookupAddress[],
): Pick<TcpSocketConnectOpts, "lookup" | "autoSelectFamily"> {
  // With autoSelectFamily, Node asks for all addresses.
  const lookup: LookupFunction = (_name, _options, callback) =>
    callback(null, withoutMissingFamily(addresses));
  return { lookup, autoSelectFamily: true };
}

/**
 * Leaves out addresses of a family that this machine lacks, if the other family has addresses. Node ends each connection
 * attempt but the last after 250 ms: with an unreachable address as the last one, the others would have only this time.
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
  // Pods with IPv6 only can have link-local IPv4 addresses, translated by their node.
  const own = interfaces.filter(({ internal, scopeid = 0 }) => !internal && scopeid === 0);
  return new Set(own.map(({ family }) => (family === "IPv4" ? 4 : 6)));
}
