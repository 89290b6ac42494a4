import type { LookupAddress, RecordWithTtl } from "node:dns";
import { Resolver } from "node:dns/promises";
import pTimeout from "p-timeout";

/**
 * The time to wait for the second address family after the first has answered, in milliseconds (resolution delay of
 * RFC 8305). Bounds the delay caused by a name server that never answers AAAA queries.
 */
const GRACE_MS = 50;
/** The maximum number of addresses used per family. A connection cannot try more within its timeout. */
const MAX_ADDRESSES = 8;
/**
 * Delays after which an unanswered query is sent again, in milliseconds since the first one. Each resend starts with the
 * next name server if there are several. c-ares' own retry is not used: it discards late answers to an earlier query, so a name server
 * that takes two seconds per answer would never succeed.
 */
const SEND_AGAIN_MS = [1_500, 3_500];

/** The addresses of a name, and the shortest time to live of their records. */
export interface DnsAnswer {
  /** At least one address, IPv6 first. A family that failed or did not answer in time is missing. */
  addresses: LookupAddress[];
  ttlMs: number;
  /**
   * False if one family's query failed or did not finish within GRACE_MS. An answer that the family has no records counts as
   * complete.
   */
  isComplete: boolean;
}

/**
 * Resolves the first of the names that exists, over DNS with c-ares, which uses no thread. `dns.lookup` would block one of
 * libuv's four threads until the name server answers.
 *
 * Each pair of A and AAAA queries has its own c-ares channel: a channel cannot cancel a single query, and never reads
 * resolv.conf again after its creation. Creating a channel takes less than 0.1 ms.
 *
 * @param servers name servers as `address:port`. Undefined for the servers of resolv.conf
 * @param timeoutMs the timeout of a query, in milliseconds
 * @param ended ends the queries in progress when it aborts
 * @throws an error with a code of c-ares, such as ENOTFOUND
 */
export async function lookUp(
  names: readonly string[],
  servers: readonly string[] | undefined,
  timeoutMs: number,
  ended: AbortSignal,
): Promise<DnsAnswer> {
  const channel = (nth: number): Resolver => {
    const opened = new Resolver({ timeout: timeoutMs, tries: 1 });
    ended.addEventListener("abort", () => opened.cancel());
    // `getServers` returns addresses with a zone, such as fe80::1%eth0, which `setServers` does not accept.
    const all = servers ?? opened.getServers().filter((server) => !server.includes("%"));
    const first = nth % (all.length || 1);
    if (servers || first > 0) opened.setServers([...all.slice(first), ...all.slice(0, first)]);
    return opened;
  };

  /** Queries a name, and resends on the schedule of SEND_AGAIN_MS. The first result or error of any of the queries counts. */
  async function ask(name: string): Promise<DnsAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<DnsAnswer>();
    const send = (nth: number) => void bothFamilies(channel(nth), name).then(resolve, reject);
    send(0);
    const timers = SEND_AGAIN_MS.map((ms, index) => setTimeout(send, ms, index + 1));
    try {
      return await promise;
    } finally {
      for (const timer of timers) clearTimeout(timer);
    }
  }

  let negative: NodeJS.ErrnoException | undefined;
  for (const name of names) {
    try {
      return await ask(name);
    } catch (reason) {
      const error = reason as NodeJS.ErrnoException;
      if (!isNegative(error)) throw error;
      // ENODATA, a name without addresses, explains more than ENOTFOUND of another candidate.
      if (!negative || error.code === "ENODATA") negative = error;
    }
  }
  throw negative;
}

/** Queries A and AAAA records concurrently. Resolves at most GRACE_MS after one family has answered with addresses. */
async function bothFamilies(channel: Resolver, name: string): Promise<DnsAnswer> {
  const addresses: LookupAddress[] = [];
  let ttlMs = Number.POSITIVE_INFINITY;
  const take = async (family: 4 | 6, query: Promise<RecordWithTtl[]>) => {
    const records = await query;
    if (records.length === 0) throw Object.assign(new Error(name), { code: "ENODATA" });
    for (const { address, ttl } of records.slice(0, MAX_ADDRESSES)) {
      addresses.push({ address, family });
      ttlMs = Math.min(ttlMs, ttl * 1_000);
    }
  };
  const queries = [
    take(6, channel.resolve6(name, { ttl: true })),
    take(4, channel.resolve4(name, { ttl: true })),
  ];
  const all = Promise.allSettled(queries);
  try {
    await Promise.any(queries);
  } catch (error) {
    const { errors } = error as { errors: NodeJS.ErrnoException[] };
    throw (
      errors.find((each) => !isNegative(each)) ?? errors.find(({ code }) => code === "ENODATA") ?? errors[0]
    );
  }
  const results = await pTimeout(all, { milliseconds: GRACE_MS, fallback: () => [] });
  const isComplete =
    results.length > 0 && results.every((each) => each.status === "fulfilled" || isNegative(each.reason));
  return { addresses: addresses.toSorted((a, b) => b.family - a.family), ttlMs, isComplete };
}

/**
 * Whether the name certainly has no address: the name server answered so (ENOTFOUND, ENODATA), or the name is too long, for example
 * with a search domain (EBADNAME).
 */
function isNegative({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENOTFOUND" || code === "ENODATA" || code === "EBADNAME";
}
