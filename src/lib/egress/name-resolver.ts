import type { LookupAddress } from "node:dns";
import { isIPv6 } from "node:net";
import { LRUCache } from "lru-cache";
import pTimeout from "p-timeout";
import { lookUp } from "./dns-lookup.ts";
import { type SystemFiles, systemNames } from "./system-names.ts";

/** The timeout of a lookup, in milliseconds. */
const LOOKUP_TIMEOUT_MS = 10_000;
/** The port of name servers. */
const DNS_PORT = 53;
/** The longest time an answer is cached, in milliseconds, whatever its TTL. */
const MAX_TTL_MS = 300_000;
/** The maximum time for which an error, or an answer with one family missing, is cached, in milliseconds. */
const MAX_NEGATIVE_TTL_MS = 5_000;
/** The maximum number of cached names. */
const MAX_CACHED = 10_000;

const CHECK_NAME = "check the name in the URL, and its DNS records";
const CHECK_SERVERS = "check the name servers of its domain";
const CHECK_OURS =
  "the operator of this service must check the name servers in /etc/resolv.conf, and the network to them";

/** Messages by c-ares error code; `%` is replaced by the name. */
export const REASONS: Record<string, string> = {
  ENOTFOUND: `host name does not resolve: % does not exist (NXDOMAIN); ${CHECK_NAME}`,
  ENODATA: `host name does not resolve: % has no A or AAAA record (empty DNS answer); ${CHECK_NAME}`,
  EBADNAME: `host name does not resolve: % is not a valid DNS name; ${CHECK_NAME}`,
  ESERVFAIL: `host name could not be looked up: the DNS server failed for % (SERVFAIL); ${CHECK_SERVERS}`,
  EREFUSED: `host name could not be looked up: the DNS server refused the query for % (REFUSED); ${CHECK_OURS}`,
  ECONNREFUSED: `host name could not be looked up: no DNS server can be reached for %; ${CHECK_OURS}`,
  ETIMEOUT: `host name could not be looked up: no DNS server answered for %; ${CHECK_OURS}`,
};

/**
 * Creates the error of a lookup that ended with this code of c-ares. The error's code is LOOKUP_FAILED. Its message says why the
 * host name has no addresses, in words for users.
 */
export function lookupError(name: string, code: string): NodeJS.ErrnoException {
  const reason = REASONS[code] ?? `host name could not be looked up: % (${code})`;
  return failure("LOOKUP_FAILED", reason.replace("%", name));
}

/** Finds the addresses of a host name. */
export type Resolver = Pick<NameResolver, "resolve" | "close">;

export interface NameResolverOptions extends SystemFiles {
  /** Timeout of a lookup, in milliseconds. Defaults to, and is at most, 10,000. */
  timeoutMs?: number;
  /** Name servers as `address:port`. Defaults to those of the system. */
  servers?: readonly string[];
  /** The port of the system's name servers. Defaults to 53. */
  port?: number;
}

/** A lookup in progress, or its cached result. */
interface Known {
  addresses: Promise<readonly LookupAddress[]>;
  /** The time until which the result is used, in milliseconds of `performance.now()`. Infinity while the lookup is in progress. */
  expires: number;
}

/**
 * Resolves host names: first by the hosts file, then the cache, then DNS, as resolv.conf configures it. Concurrent requests for one name
 * share a lookup. Other name sources of the system (NIS, mDNS) are not supported.
 */
export class NameResolver {
  readonly #system: ReturnType<typeof systemNames>;
  readonly #servers: readonly string[] | undefined;
  readonly #port: number;
  readonly #timeoutMs: number;
  readonly #known = new LRUCache<string, Known>({ max: MAX_CACHED });
  readonly #closing = new AbortController();

  constructor({
    timeoutMs = LOOKUP_TIMEOUT_MS,
    servers,
    port = DNS_PORT,
    ...files
  }: NameResolverOptions = {}) {
    this.#timeoutMs = Math.min(timeoutMs, LOOKUP_TIMEOUT_MS);
    this.#servers = servers;
    this.#port = port;
    this.#system = systemNames(files);
  }

  /** The number of lookups in progress and of valid cache entries. */
  get size(): { running: number; cached: number } {
    const expiries = [...this.#known.values()].map(({ expires }) => expires);
    const running = expiries.filter((expires) => expires === Number.POSITIVE_INFINITY).length;
    return { running, cached: expiries.filter((expires) => expires > performance.now()).length - running };
  }

  /**
   * Resolves to at least one address, in the order in which to dial them.
   *
   * @throws an error with the code LOOKUP_FAILED
   */
  async resolve(name: string): Promise<readonly LookupAddress[]> {
    const own = this.#system.addresses(name);
    if (own) return own;
    const known = this.#known.get(name);
    return known && known.expires > performance.now() ? known.addresses : this.#start(name);
  }

  /** Ends the lookups in progress. These and later DNS lookups fail with LOOKUP_FAILED. */
  close(): void {
    this.#closing.abort(failure("ECANCELLED"));
  }

  #start(name: string): Promise<readonly LookupAddress[]> {
    const cacheFor = (ms: number) => {
      known.expires = performance.now() + ms;
    };
    const known: Known = { addresses: this.#lookUp(name, cacheFor), expires: Number.POSITIVE_INFINITY };
    this.#known.set(name, known);
    return known.addresses;
  }

  async #lookUp(name: string, cacheFor: (ms: number) => void): Promise<readonly LookupAddress[]> {
    const ended = new AbortController();
    const settings = this.#system.settings();
    const withPort = (address: string) =>
      isIPv6(address) ? `[${address}]:${this.#port}` : `${address}:${this.#port}`;
    const answer = lookUp(
      { name, names: this.#system.candidates(name) },
      { ...settings, servers: this.#servers ?? settings.servers.map(withPort) },
      this.#timeoutMs,
      ended.signal,
    );
    try {
      const { addresses, ttlMs, isComplete } = await pTimeout(answer, {
        milliseconds: this.#timeoutMs,
        message: failure("TOO_LATE"),
        signal: this.#closing.signal,
      });
      cacheFor(Math.min(ttlMs, isComplete ? MAX_TTL_MS : MAX_NEGATIVE_TTL_MS));
      return addresses;
    } catch (error) {
      const { code = "" } = error as NodeJS.ErrnoException;
      // ECONNREFUSED: no name server was reachable. Not cached, because nothing is known about the name.
      cacheFor(code === "ECONNREFUSED" ? 0 : MAX_NEGATIVE_TTL_MS);
      if (code !== "TOO_LATE") throw lookupError(name, code);
      throw failure(
        "LOOKUP_FAILED",
        `DNS lookup of ${name} timed out after ${this.#timeoutMs / 1_000} s; ${CHECK_SERVERS}`,
      );
    } finally {
      // Ends queries that are still pending, such as the other family's.
      ended.abort();
    }
  }
}

/** Creates an error with a code, like the errors of c-ares. */
function failure(code: string, message = code): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code });
}
