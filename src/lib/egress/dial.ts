import type { LookupAddress } from "node:dns";
import { connect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import ipaddr from "ipaddr.js";
import pTimeout, { type Options } from "p-timeout";

/** The delay between the starts of two attempts to connect, in milliseconds (connection attempt delay of RFC 8305). */
const NEXT_ATTEMPT_MS = 250;

/**
 * Opens a TCP connection to the first of several addresses that accepts one (Happy Eyeballs, RFC 8305). Starts an attempt every 250 ms,
 * and earlier if one fails, alternates between the address families, and gives no attempt up. Node's `autoSelectFamily` gives each
 * address but the last up after 500 ms, and so a receiver that is slow to accept.
 *
 * @param addresses at least one. Addresses of a family that this machine lacks are left out
 * @param limits the timeout, its error, and a signal
 * @throws the error of the address, an AggregateError of several, or the error of `limits`
 */
export async function dial(
  addresses: readonly LookupAddress[],
  port: number,
  limits: Options<Socket>,
): Promise<Socket> {
  const left = alternating(withoutMissingFamily(addresses));
  const open = new Set<Socket>();
  const failed: Error[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  let timer: NodeJS.Timeout | undefined;
  const next = () => {
    clearTimeout(timer);
    const address = left.shift();
    if (!address) return;
    timer = setTimeout(next, NEXT_ATTEMPT_MS);
    const socket = connect({ host: address.address, port });
    open.add(socket);
    socket.once("connect", () => resolve(socket));
    // The listener stays: an error event without one would end the process.
    socket.on("error", (error) => {
      open.delete(socket);
      failed.push(error);
      if (open.size + left.length === 0) reject(failed.length === 1 ? error : new AggregateError(failed));
      else next();
    });
  };
  try {
    next();
    const connected = await pTimeout(promise, limits);
    open.delete(connected);
    return connected;
  } finally {
    clearTimeout(timer);
    left.length = 0;
    for (const socket of open) socket.destroy();
  }
}

/** The addresses, alternating between the families, the family of the first one first. */
function alternating(addresses: readonly LookupAddress[]): LookupAddress[] {
  const preferred = addresses.filter(({ family }) => family === addresses[0]?.family);
  const others = addresses.filter((address) => !preferred.includes(address));
  const pairs = preferred.flatMap((address, n) => [address, ...others.slice(n, n + 1)]);
  return [...pairs, ...others.slice(preferred.length)];
}

/**
 * Leaves out addresses of a family that this machine lacks, if the other family has addresses: attempts to connect to them may not fail
 * at once, and would delay the others.
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
