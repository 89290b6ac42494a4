import type { LookupAddress } from "node:dns";
import { type DnsAnswer, type DnsLookup, startDnsLookup } from "./dns-lookup.ts";
import { ownFamilies } from "./families.ts";
import { LookupError, lookupError } from "./lookup-error.ts";
import { type SystemFiles, SystemNames } from "./system-names.ts";

/** The timeout of a lookup, in milliseconds. */
const LOOKUP_TIMEOUT_MS = 5_000;
/** The longest time an answer is cached, in milliseconds, whatever its TTL. */
const MAX_TTL_MS = 300_000;
/** The maximum time for which an error, or an answer with one family missing, is cached, in milliseconds. */
const MAX_NEGATIVE_TTL_MS = 5_000;
/** Names cached at the same time; the oldest makes room. */
const MAX_CACHED = 10_000;
/** The interval between removals of expired names from the cache, in milliseconds. */
const SWEEP_MS = 60_000;
/** The time after which a lookup counts as slow, in milliseconds. */
const SLOW_MS = 1_000;
/**
 * The maximum number of slow lookups. Beyond it, the oldest one ends with an error. Each has up to three sockets and
 * occupies the slot of a delivery. Faster lookups have no limit of their own: the requests in flight bound them, each
 * has one socket in place of the connection that follows, and to end one would fail a delivery to a healthy receiver.
 */
const MAX_SLOW = 256;
/**
 * The maximum number of slow lookups under one domain (the last two labels). Beyond it, the oldest one ends with an
 * error. Without this limit one zone with hundreds of names could occupy all slots until their timeout.
 */
const MAX_SLOW_EACH_DOMAIN = 16;

/** Finds the addresses of a host name. */
export interface Resolver {
  /**
   * Resolves to at least one address, in the order in which to dial them.
   *
   * @throws LookupError
   */
  resolve(name: string): Promise<readonly LookupAddress[]>;
  /** Ends the lookups in progress. */
  close(): void;
}

export interface NameResolverOptions extends SystemFiles {
  /** Timeout of a lookup, in milliseconds. Defaults to, and is at most, 5,000. */
  timeoutMs?: number;
  /** Name servers as `address:port`. Defaults to those of the system. */
  servers?: readonly string[];
}

/** A lookup in progress. */
interface Running {
  lookup: DnsLookup;
  result: Promise<readonly LookupAddress[]>;
}

/**
 * Resolves host names of receivers: first the hosts file, then the cache, then DNS. Concurrent requests for one name
 * share a lookup. Search domains are supported; other name sources of the system (NIS, mDNS) are not.
 */
export class NameResolver implements Resolver {
  readonly #system: SystemNames;
  readonly #servers: readonly string[] | undefined;
  readonly #timeoutMs: number;
  readonly #cache = new Map<string, { expires: number; result: readonly LookupAddress[] | LookupError }>();
  readonly #running = new Map<string, Running>();
  /** The names of slow lookups, oldest first. */
  readonly #slow = new Set<string>();
  #swept = performance.now();
  #closed = false;

  constructor({ timeoutMs = LOOKUP_TIMEOUT_MS, servers, ...files }: NameResolverOptions = {}) {
    this.#timeoutMs = Math.min(timeoutMs, LOOKUP_TIMEOUT_MS);
    this.#servers = servers;
    this.#system = new SystemNames(files);
  }

  /** The number of lookups in progress and of valid cache entries. */
  get size(): { running: number; cached: number } {
    this.#sweep();
    return { running: this.#running.size, cached: this.#cache.size };
  }

  async resolve(name: string): Promise<readonly LookupAddress[]> {
    const own = this.#system.addresses(name);
    if (own) {
      if (own.length === 0) throw lookupError(name, "ENOTFOUND");
      return own;
    }
    const cached = this.#cache.get(name);
    if (cached && cached.expires > performance.now()) {
      if (cached.result instanceof LookupError) throw cached.result;
      return cached.result;
    }
    return this.#running.get(name)?.result ?? this.#start(name);
  }

  close(): void {
    this.#closed = true;
    for (const [name, { lookup }] of this.#running) lookup.end(lookupError(name, "ECANCELLED"));
  }

  #start(name: string): Promise<readonly LookupAddress[]> {
    if (this.#closed) throw lookupError(name, "ECANCELLED");
    const lookup = startDnsLookup(name, this.#system.candidates(name), {
      servers: this.#servers,
      timeoutMs: this.#timeoutMs,
    });
    const running: Running = { lookup, result: this.#keep(name, lookup) };
    this.#running.set(name, running);
    return running.result;
  }

  #end(name: string, why: string): void {
    const running = this.#running.get(name);
    if (!running) return;
    this.#forget(name);
    const seconds = ((performance.now() - running.lookup.startedAt) / 1_000).toFixed(1);
    running.lookup.end(
      new LookupError(`DNS lookup of ${name} ended after ${seconds} s: ${why}`, { cacheable: true }),
    );
  }

  #forget(name: string): void {
    this.#running.delete(name);
    this.#slow.delete(name);
  }

  /** Ends at most one lookup, because each call adds one. */
  #becomeSlow(name: string): void {
    this.#slow.add(name);
    const domain = domainOf(name);
    const ofDomain = [...this.#slow].filter((each) => domainOf(each) === domain);
    const [oldestOfDomain = ""] = ofDomain;
    const [oldest = ""] = this.#slow;
    const time = `take over ${SLOW_MS / 1_000} s`;
    if (ofDomain.length > MAX_SLOW_EACH_DOMAIN)
      this.#end(oldestOfDomain, `more than ${MAX_SLOW_EACH_DOMAIN} names under ${domain} ${time}`);
    else if (this.#slow.size > MAX_SLOW) this.#end(oldest, `more than ${MAX_SLOW} names ${time}`);
  }

  async #keep(name: string, lookup: DnsLookup): Promise<readonly LookupAddress[]> {
    const slow = setTimeout(() => this.#becomeSlow(name), SLOW_MS);
    try {
      const answer = await lookup.answer;
      const addresses = inDialOrder(answer);
      this.#cacheFor(name, answer.complete ? MAX_TTL_MS : MAX_NEGATIVE_TTL_MS, answer.ttlMs, addresses);
      return addresses;
    } catch (error) {
      const known = error as LookupError;
      if (known.cacheable) this.#cacheFor(name, MAX_NEGATIVE_TTL_MS, MAX_NEGATIVE_TTL_MS, known);
      throw known;
    } finally {
      clearTimeout(slow);
      if (this.#running.get(name)?.lookup === lookup) this.#forget(name);
    }
  }

  #cacheFor(
    name: string,
    mostMs: number,
    ttlMs: number,
    result: readonly LookupAddress[] | LookupError,
  ): void {
    if (performance.now() - this.#swept > SWEEP_MS) this.#sweep();
    this.#cache.delete(name);
    if (this.#cache.size >= MAX_CACHED) this.#cache.delete(this.#cache.keys().next().value as string);
    this.#cache.set(name, { expires: performance.now() + Math.min(ttlMs, mostMs), result });
  }

  #sweep(): void {
    this.#swept = performance.now();
    for (const [name, { expires }] of this.#cache) if (expires <= this.#swept) this.#cache.delete(name);
  }
}

/** The last two labels of a name. */
function domainOf(name: string): string {
  return name.split(".").slice(-2).join(".");
}

/**
 * Dial order. The connector alternates families starting with the first address: IPv6 first only if this machine has
 * it.
 */
function inDialOrder({ v4, v6 }: DnsAnswer): LookupAddress[] {
  return v4.length > 0 && !ownFamilies().has(6) ? [...v4, ...v6] : [...v6, ...v4];
}
