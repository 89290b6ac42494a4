import type { LookupAddress } from "node:dns";
import ipaddr from "ipaddr.js";
import { BLOCKED_PORTS } from "./blocked-ports.ts";
import { lookupError, NameResolver, type Resolver } from "./name-resolver.ts";
import { isLocalhost } from "./system-names.ts";

/** A CIDR network: its address and the length of its prefix in bits. */
export type Network = [ipaddr.IPv4 | ipaddr.IPv6, number];

/** The default port of https URLs. */
export const HTTPS_PORT = 443;

/** The host without the brackets of an IPv6 address, as the address guard expects it. */
export function bareHost(hostname: string): string {
  return hostname.startsWith("[") ? hostname.slice(1, -1) : hostname;
}

/** Thrown if the address guard refuses an address or a port. The message names the remedy. */
export class AddressRefusedError extends Error {
  readonly code = "ADDRESS_REFUSED";
  override name = "AddressRefusedError";
  /** Whether another guard may allow it, so that it says nothing about other requests to the host. */
  readonly isOfSome: boolean;

  constructor(message: string, isOfSome = false) {
    super(message);
    this.isOfSome = isOfSome;
  }
}

/** Refuses connections to non-public networks (server-side request forgery) and to ports of other protocols. */
export type AddressGuard = ReturnType<typeof createAddressGuard>;

/** Azure's platform address (WireServer): in a public range, but serves the configuration of the virtual machine. */
const PLATFORM_ADDRESSES = new Set(["168.63.129.16"]);
const GLOBAL_UNICAST: Network = [ipaddr.IPv6.parse("2000::"), 3];
/**
 * NAT64 prefixes of local networks (RFC 8215). All are refused: the position of the embedded IPv4 address depends on the network, so
 * the guard cannot check it.
 */
const LOCAL_NAT64: Network = [ipaddr.IPv6.parse("64:ff9b:1::"), 48];

/**
 * Creates an address guard.
 *
 * @param allowedNetworks non-public networks to which connections are allowed
 * @param options.allowedPorts ports of BLOCKED_PORTS to which connections are allowed. Defaults to none
 * @param options.allowedHosts names whose addresses may be of LOCAL_KINDS: in lower case, or `*.example.com` for all names below
 *   example.com. Defaults to none
 * @param options.resolver resolves host names. Defaults to the hosts file and DNS
 * @param options.customers whether it is the guard of customers, whose errors name CUSTOMER_ALLOWED_NETWORKS. Defaults to false
 */
export function createAddressGuard(
  allowedNetworks: readonly Network[],
  options: {
    allowedPorts?: readonly number[];
    allowedHosts?: readonly string[];
    resolver?: Resolver;
    customers?: boolean;
  } = {},
) {
  const { allowedPorts = [], allowedHosts = [], resolver = new NameResolver(), customers = false } = options;
  const remedy = customers ? CUSTOMERS_REMEDY : REMEDY;
  const notPublic = (name: string) =>
    new AddressRefusedError(
      `${name} does not resolve to a public address; ${PUBLIC_ONLY} (${customers ? CUSTOMERS_REMEDY : NAME_REMEDY})`,
      customers,
    );
  const kindOf = (literal: string) => refusal(ipaddr.parse(literal), allowedNetworks);
  const isAllowedHost = (name: string) =>
    allowedHosts.some((host) => (host.startsWith("*.") ? name.endsWith(host.slice(1)) : name === host));

  return {
    /** Throws AddressRefusedError if connecting to the literal address is not allowed. */
    check(literal: string): void {
      const kind = kindOf(literal);
      if (kind)
        throw new AddressRefusedError(
          `${literal} is ${withArticle(kind)} address; ${PUBLIC_ONLY} (${remedy})`,
          customers,
        );
    },

    /** Throws AddressRefusedError if connecting to the port is not allowed. */
    checkPort(port: number): void {
      if (!BLOCKED_PORTS.has(port) || (port !== 0 && allowedPorts.includes(port))) return;
      throw new AddressRefusedError(
        port === 0
          ? "port 0 is not a valid port; use a port from 1 to 65535"
          : `port ${port} belongs to another protocol; use the port of an HTTPS server (an operator can allow port ${port} with DELIVERY_ALLOWED_PORTS)`,
      );
    },

    /**
     * Checks a name that another machine resolves, so that its addresses are not known. Throws AddressRefusedError if the name always
     * means that machine itself.
     */
    checkUnresolved(name: string): void {
      if (isLocalhost(name) && !isAllowedHost(name) && kindOf("127.0.0.1")) throw notPublic(name);
    },

    /**
     * Resolves a name to its allowed addresses. The caller must connect to these, so that the checked address is the
     * one used. The error does not contain the resolved addresses: anyone who may choose a host name could otherwise
     * read an internal DNS zone.
     *
     * @throws AddressRefusedError if none of the name's addresses is allowed
     * @throws an error with the code LOOKUP_FAILED if the lookup fails or finds no address
     */
    async resolve(name: string): Promise<LookupAddress[]> {
      const found = await resolver.resolve(name);
      if (found.length === 0) throw lookupError(name, "ENODATA");
      const isLocalAllowed = isAllowedHost(name);
      const usable = found.filter(({ address }) => {
        const kind = kindOf(address);
        return kind === undefined || (isLocalAllowed && LOCAL_KINDS.has(kind));
      });
      if (usable.length === 0) throw notPublic(name);
      return usable;
    },
  };
}

/** Kinds of addresses that names in `allowedHosts` may have. Not link-local ones, where clouds serve the machine's credentials. */
const LOCAL_KINDS = new Set(["private", "unique-local", "loopback", "carrier-grade-nat"]);

const PUBLIC_ONLY = "deliveries go to public addresses only";
const REMEDY = "an operator can allow its network with DELIVERY_ALLOWED_NETWORKS";
const NAME_REMEDY = `${REMEDY}, or the name with DELIVERY_ALLOWED_HOSTS`;
const CUSTOMERS_REMEDY =
  "an operator can allow its network to webhooks of customers with CUSTOMER_ALLOWED_NETWORKS";

const withArticle = (kind: string) => `${/^[aeiou]/.test(kind) ? "an" : "a"} ${kind}`;

/** The kind of non-public range that contains the address; undefined if the address is allowed. */
function refusal(address: ipaddr.IPv4 | ipaddr.IPv6, allowed: readonly Network[]): string | undefined {
  if (allowed.some((network) => within(address, network))) return undefined;
  if (address.kind() === "ipv4") {
    if (PLATFORM_ADDRESSES.has(address.toString())) return "platform";
    const range = address.range();
    return range === "unicast" ? undefined : words(range);
  }
  if (within(address, LOCAL_NAT64)) return "local NAT64";
  if (isIsatap(address as ipaddr.IPv6)) return "tunnel (ISATAP)";
  const inner = embeddedIpv4(address as ipaddr.IPv6);
  if (inner) return refusal(inner, allowed);
  const range = address.range();
  if (range !== "unicast") return words(range);
  return within(address, GLOBAL_UNICAST) ? undefined : "reserved";
}

/** The IPv4 address embedded in a mapped (::ffff:0:0/96), NAT64 (64:ff9b::/96) or 6to4 (2002::/16) address. */
function embeddedIpv4(address: ipaddr.IPv6): ipaddr.IPv4 | undefined {
  if (address.isIPv4MappedAddress()) return address.toIPv4Address();
  const bytes = address.toByteArray();
  const range = address.range();
  if (range === "rfc6052") return new ipaddr.IPv4(bytes.slice(12, 16));
  if (range === "6to4") return new ipaddr.IPv4(bytes.slice(2, 6));
  return undefined;
}

/** Whether the interface identifier is 0:5efe or 200:5efe with an IPv4 address: an ISATAP tunnel (RFC 5214, 6.1). */
function isIsatap(address: ipaddr.IPv6): boolean {
  const [high, low] = address.parts.slice(4, 6);
  return (high === 0 || high === 0x0200) && low === 0x5efe;
}

function within(address: ipaddr.IPv4 | ipaddr.IPv6, [network, bits]: Network): boolean {
  return address.kind() === network.kind() && address.match(network as never, bits);
}

/** Converts a range name of ipaddr.js to words: `linkLocal` becomes `link-local`. */
function words(range: string): string {
  return range.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
