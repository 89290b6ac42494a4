import type { LookupAddress, LookupOptions } from "node:dns";
import { lookup } from "node:dns";
import type { LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import type { Network } from "../config-values.ts";

/** An address that deliveries may not reach; the message names the address and the remedy. */
export class AddressRefusedError extends Error {
  readonly code = "ADDRESS_REFUSED";
  override name = "AddressRefusedError";
}

/** Keeps deliveries away from networks that are not public (server-side request forgery). */
export interface AddressGuard {
  /** Throws AddressRefusedError when the literal address may not be dialled. */
  check(address: string): void;
  /** Resolves a name to the addresses that may be dialled, so that the address checked is the one dialled. */
  lookup: LookupFunction;
}

/** Azure's platform address: public by its range, yet it answers with the machine's own data. */
const PLATFORM_ADDRESSES = new Set(["168.63.129.16"]);
const GLOBAL_UNICAST: Network = [ipaddr.IPv6.parse("2000::"), 3];

/** Finds every address of a name; Node's own look-up by the system's resolver is one. */
export type Resolver = (
  hostname: string,
  options: LookupOptions & { all: true },
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void;

/**
 * @param allowed networks that are let through although they are not public
 * @param resolve how names are looked up: as the system does it unless told
 */
export function createAddressGuard(allowed: readonly Network[], resolve: Resolver = lookup): AddressGuard {
  function check(literal: string): void {
    const address = ipaddr.parse(literal);
    if (allowed.some((network) => within(address, network))) return;
    const kind = refusal(address, allowed);
    if (kind) {
      throw new AddressRefusedError(
        `${literal} is a ${kind} address; deliveries go to public addresses only (an operator can allow its network with DELIVERY_ALLOWED_NETWORKS)`,
      );
    }
  }

  const guardedLookup: LookupFunction = (hostname, options, callback) => {
    resolve(hostname, { ...(options as LookupOptions), all: true }, (error, found) => {
      if (error) return callback(error, "", 0);
      const refused: Error[] = [];
      const usable = found.filter(({ address }) => {
        try {
          check(address);
          return true;
        } catch (reason) {
          refused.push(reason as Error);
          return false;
        }
      });
      const first = usable[0];
      if (!first) return callback(refused[0] as NodeJS.ErrnoException, "", 0);
      if ((options as LookupOptions).all) return callback(null, usable as never);
      callback(null, first.address, first.family);
    });
  };

  return { check, lookup: guardedLookup };
}

/** The kind of range that forbids the address, or undefined when it is public. */
function refusal(address: ipaddr.IPv4 | ipaddr.IPv6, allowed: readonly Network[]): string | undefined {
  if (address.kind() === "ipv4") {
    if (PLATFORM_ADDRESSES.has(address.toString())) return "platform";
    const range = address.range();
    return range === "unicast" ? undefined : words(range);
  }
  const inner = embeddedIpv4(address as ipaddr.IPv6);
  if (inner) {
    return allowed.some((network) => within(inner, network)) ? undefined : refusal(inner, allowed);
  }
  const range = address.range();
  if (range !== "unicast") return words(range);
  return within(address, GLOBAL_UNICAST) ? undefined : "reserved";
}

/** The IPv4 address that a mapped (::ffff:0:0/96), NAT64 (64:ff9b::/96) or 6to4 (2002::/16) address leads to. */
function embeddedIpv4(address: ipaddr.IPv6): ipaddr.IPv4 | undefined {
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  const bytes = address.toByteArray();
  const range = address.range();
  if (range === "rfc6052") return new ipaddr.IPv4(bytes.slice(12, 16));
  if (range === "6to4") return new ipaddr.IPv4(bytes.slice(2, 6));
  return undefined;
}

function within(address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Network): boolean {
  return address.kind() === network.kind() && address.match(network as never, bits);
}

/** `linkLocal` → `link-local`. */
function words(range: string): string {
  return range.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
