import type { LookupAddress, RecordWithTtl } from "node:dns";
import { Resolver } from "node:dns/promises";
import pTimeout from "p-timeout";
import type { ResolverSettings } from "./system-names.ts";

/**
 * The time to wait for the second address family after the first has answered, in milliseconds (resolution delay of
 * RFC 8305). Bounds the delay caused by a name server that never answers AAAA queries.
 */
const GRACE_MS = 50;
/** The maximum number of addresses used per family. A connection cannot try more within its timeout. */
const MAX_ADDRESSES = 8;
/**
 * The longest time after which an unanswered query is sent again, to the next name server if there are several, in milliseconds. The
 * first answer to any of the queries counts. c-ares' own retry is not used: it discards late answers to an earlier query, so a name server
 * that takes two seconds per answer would never succeed.
 */
const SEND_AGAIN_MS = 1_500;

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

/** How to query DNS: resolv.conf's settings, with the ports of the name servers. */
export interface QuerySettings
  extends Pick<ResolverSettings, "timeoutMs" | "attempts" | "rotate" | "noAaaa"> {
  /** Name servers as `address:port`. For an address with a zone, such as `[fe80::1%eth0]:53`, c-ares uses all of resolv.conf. */
  servers: readonly string[];
}

/** The number of lookups so far. With `rotate`, each starts with the next name server. */
let lookups = 0;

/**
 * Resolves the first of the names that exists, over DNS with c-ares, which uses no thread. `dns.lookup` would block one of
 * libuv's four threads until the name server answers.
 *
 * Follows glibc, in less time, because glibc may wait for 10 s and more for each name. If a name server fails or refuses, or does not
 * answer, the next one is queried. If all do, the next name is tried: after an answer other than SERVFAIL, the unchanged name first. A
 * name that is never answered gets an equal share of the time that is left.
 *
 * @param name the name as given; `names` may contain it
 * @param names the names to try, in this order
 * @param totalMs the time for the whole lookup, in milliseconds. The caller ends the lookup then
 * @param ended ends the queries in progress when it aborts
 * @throws an error with a code of c-ares, such as ENOTFOUND
 */
export async function lookUp(
  { name, names }: { name: string; names: readonly string[] },
  { servers, timeoutMs, attempts, rotate, noAaaa }: QuerySettings,
  totalMs: number,
  ended: AbortSignal,
): Promise<DnsAnswer> {
  const end = performance.now() + totalMs;
  lookups += 1;
  /** The name server to start with: the last one that answered. */
  let first = rotate ? lookups % servers.length : 0;

  /**
   * Each pair of A and AAAA queries has its own c-ares channel: a channel cannot cancel a single query. Creating a channel takes less
   * than 0.1 ms.
   */
  function query(server: string, candidate: string): Promise<DnsAnswer> {
    const channel = new Resolver({ timeout: totalMs, tries: 1 });
    ended.addEventListener("abort", () => channel.cancel());
    // `setServers` drops zones, which c-ares reads from resolv.conf itself.
    if (!server.includes("%")) channel.setServers([server]);
    return bothFamilies(channel, candidate, noAaaa);
  }

  /**
   * Queries the name servers one after the other until one answers.
   *
   * @param shareMs the time for this candidate, in milliseconds
   * @param isLast whether no other candidate needs the time after that
   */
  function ask(candidate: string, shareMs: number, isLast: boolean): Promise<DnsAnswer> {
    const inOrder = [...servers.keys()].map((n) => (first + n) % servers.length);
    const left = Array.from({ length: attempts }, () => inOrder).flat();
    const milliseconds = Math.min(isLast ? Number.POSITIVE_INFINITY : shareMs, timeoutMs * left.length);
    const intervalMs = Math.min(SEND_AGAIN_MS, timeoutMs, shareMs / left.length);
    const { promise, resolve, reject } = Promise.withResolvers<DnsAnswer>();
    let running = 0;
    let failure: NodeJS.ErrnoException | undefined;
    let timer: NodeJS.Timeout | undefined;
    const send = () => {
      clearTimeout(timer);
      const server = left.shift();
      if (server === undefined) return;
      running += 1;
      timer = setTimeout(send, intervalMs);
      const failed = (error: NodeJS.ErrnoException) => {
        running -= 1;
        if (!failure || error.code !== "ECONNREFUSED") failure = error;
        if (isNegative(error)) first = server;
        if (isNegative(error) || error.code === "EFORMERR" || running + left.length === 0) reject(failure);
        else send();
      };
      query(servers[server] as string, candidate).then((answer) => {
        first = server;
        resolve(answer);
      }, failed);
    };
    send();
    const message = Object.assign(new Error(candidate), { code: "ETIMEOUT" });
    return pTimeout(promise, { milliseconds, message }).finally(() => {
      left.length = 0;
      clearTimeout(timer);
    });
  }

  const left = [...names];
  let failure: NodeJS.ErrnoException | undefined;
  for (let next = left.shift(); next !== undefined; next = left.shift()) {
    try {
      const shareMs = Math.max(1, (end - performance.now()) / (left.length + 1));
      const answer = await ask(next, shareMs, left.length === 0);
      return { ...answer, isComplete: answer.isComplete && (!failure || isNegative(failure)) };
    } catch (reason) {
      const error = reason as NodeJS.ErrnoException;
      // No name server can be reached.
      if (error.code === "ECONNREFUSED") throw error;
      if (!failure || weightOf(error) > weightOf(failure)) failure = error;
      const endsSearch = !isNegative(error) && error.code !== "ESERVFAIL";
      if (endsSearch && left.at(-1) === name) left.unshift(left.pop() as string);
    }
  }
  throw failure;
}

/** Queries A and AAAA records concurrently. Resolves at most GRACE_MS after one family has answered with addresses. */
async function bothFamilies(channel: Resolver, name: string, noAaaa: boolean): Promise<DnsAnswer> {
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
  const ofIpv4 = take(4, channel.resolve4(name, { ttl: true }));
  const queries = noAaaa ? [ofIpv4] : [take(6, channel.resolve6(name, { ttl: true })), ofIpv4];
  const all = Promise.allSettled(queries);
  // Some name servers never answer AAAA queries. A name that does not exist for A queries has no AAAA records either.
  const { promise: absent, reject } = Promise.withResolvers<never>();
  ofIpv4.catch(async (error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOTFOUND") return;
    await pTimeout(all, { milliseconds: GRACE_MS, fallback: () => [] });
    reject(error);
  });
  try {
    await Promise.race([Promise.any(queries), absent]);
  } catch (error) {
    const { errors = [error as Error] } = error as { errors?: NodeJS.ErrnoException[] };
    throw errors.reduce((one, other) => (weightOf(other) > weightOf(one) ? other : one));
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

/** How much an error explains of a failed lookup: that a name has no addresses more than that another one does not exist. */
function weightOf(error: NodeJS.ErrnoException): number {
  if (!isNegative(error)) return 2;
  return error.code === "ENODATA" ? 1 : 0;
}
