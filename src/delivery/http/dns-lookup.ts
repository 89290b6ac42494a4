import { type LookupAddress, type RecordWithTtl, Resolver } from "node:dns";
import { type LookupError, lookupError, lookupTimeout } from "./lookup-error.ts";

/**
 * The time to wait for the second address family after the first has answered, in milliseconds (resolution delay of
 * RFC 8305). Bounds the delay caused by a name server that never answers AAAA queries.
 */
const GRACE_MS = 50;
/** The maximum number of addresses used per family. A connection cannot try more within its timeout. */
const MAX_ADDRESSES = 8;
/**
 * Delays after which an unanswered query is sent again, in milliseconds since the first one; to the next name server
 * if there are several. c-ares' own retry is not used: it discards late answers to an earlier query, so a name server
 * that takes two seconds per answer would never succeed.
 */
const SEND_AGAIN_MS = [1_500, 3_500];

/** The addresses of a name and their time to live. */
export interface DnsAnswer {
  v4: LookupAddress[];
  v6: LookupAddress[];
  ttlMs: number;
  /** False if one family's answer is missing: its query failed or did not finish within the grace period. */
  complete: boolean;
}

/** A lookup in progress. */
export interface DnsLookup {
  /** Rejects with a LookupError. */
  answer: Promise<DnsAnswer>;
  startedAt: number;
  /** Cancels the queries and rejects the answer with the error. */
  end(error: LookupError): void;
}

/**
 * Resolves a name over DNS with c-ares, which uses no thread. `dns.lookup` would block one of libuv's four threads
 * until the name server answers.
 *
 * Each lookup has its own c-ares channels, because a channel can only cancel all of its queries, and keeps the
 * resolv.conf read at its creation. Creating one takes less than 0.1 ms.
 *
 * @param name the name shown in errors
 * @param candidates the names to query, in this order, until one exists
 * @param options.servers name servers as `address:port`. Defaults to those of resolv.conf
 * @param options.timeoutMs the timeout of the whole lookup, in milliseconds
 */
export function startDnsLookup(
  name: string,
  candidates: readonly string[],
  { servers, timeoutMs }: { servers: readonly string[] | undefined; timeoutMs: number },
): DnsLookup {
  const channels = new Channels(servers, timeoutMs);
  const { promise, resolve, reject } = Promise.withResolvers<DnsAnswer>();
  const end = (error: LookupError) => {
    reject(error);
    clearTimeout(timer);
    channels.close();
  };
  const timer = setTimeout(() => end(lookupTimeout(name, timeoutMs)), timeoutMs);
  firstThatExists(channels, candidates)
    .then(resolve, ({ code = "" }: NodeJS.ErrnoException) =>
      reject(code === "ETIMEOUT" ? lookupTimeout(name, timeoutMs) : lookupError(name, code)),
    )
    // Cancels the other family's query if it is still pending.
    .finally(() => end(lookupError(name, "ECANCELLED")));
  return { answer: promise, startedAt: performance.now(), end };
}

/** The c-ares channels of one lookup. */
class Channels {
  readonly #servers: readonly string[] | undefined;
  readonly #timeoutMs: number;
  readonly #open: Resolver[] = [];
  #timers: NodeJS.Timeout[] = [];

  constructor(servers: readonly string[] | undefined, timeoutMs: number) {
    this.#servers = servers;
    this.#timeoutMs = timeoutMs;
  }

  /** Queries a name, resending on the schedule of SEND_AGAIN_MS. The first result wins, whichever query it answers. */
  async ask(name: string): Promise<DnsAnswer> {
    const { promise, resolve, reject } = Promise.withResolvers<DnsAnswer>();
    const send = (nth: number) => bothFamilies(this.#channel(nth), name).then(resolve, reject);
    send(0);
    this.#timers = SEND_AGAIN_MS.map((ms, index) => setTimeout(send, ms, index + 1));
    try {
      return await promise;
    } finally {
      this.#stop();
    }
  }

  close(): void {
    this.#stop();
    for (const channel of this.#open) channel.cancel();
  }

  #stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }

  #channel(nth: number): Resolver {
    const channel = new Resolver({ timeout: this.#timeoutMs, tries: 1 });
    const servers = this.#servers ?? channel.getServers();
    const first = nth % servers.length;
    if (this.#servers || first > 0)
      setServers(channel, [...servers.slice(first), ...servers.slice(0, first)]);
    this.#open.push(channel);
    return channel;
  }
}

/** Keeps the system's order of servers if Node rejects an address that it returned itself, such as one with a zone. */
function setServers(channel: Resolver, servers: readonly string[]): void {
  try {
    channel.setServers(servers);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ERR_INVALID_IP_ADDRESS") throw error;
  }
}

async function firstThatExists(channels: Channels, candidates: readonly string[]): Promise<DnsAnswer> {
  let error: NodeJS.ErrnoException | undefined;
  for (const candidate of candidates) {
    try {
      return await channels.ask(candidate);
    } catch (reason) {
      if (!isNegative(reason as NodeJS.ErrnoException)) throw reason;
      // "Exists without addresses" is a better explanation than "another candidate does not exist".
      if (error?.code !== "ENODATA") error = reason as NodeJS.ErrnoException;
    }
  }
  throw error;
}

/** Queries A and AAAA records concurrently. */
function bothFamilies(resolver: Resolver, name: string): Promise<DnsAnswer> {
  return new Promise((resolve, reject) => {
    const answer: DnsAnswer = { v4: [], v6: [], ttlMs: Number.POSITIVE_INFINITY, complete: false };
    const errors: NodeJS.ErrnoException[] = [];
    let missing = 2;
    let grace: NodeJS.Timeout | undefined;

    function settle(): void {
      clearTimeout(grace);
      answer.complete = missing === 0 && errors.every(isNegative);
      if (answer.v4.length + answer.v6.length > 0) resolve(answer);
      else reject(errors.find((error) => !isNegative(error)) ?? errors.find(isEmpty) ?? errors[0]);
    }

    function take(into: LookupAddress[], family: 4 | 6) {
      return (error: NodeJS.ErrnoException | null, records: RecordWithTtl[] = []) => {
        missing -= 1;
        if (error) errors.push(error);
        for (const { address, ttl } of records.slice(0, MAX_ADDRESSES)) {
          into.push({ address, family });
          answer.ttlMs = Math.min(answer.ttlMs, ttl * 1_000);
        }
        if (!error && records.length === 0) errors.push(Object.assign(new Error(), { code: "ENODATA" }));
        if (missing === 0) settle();
        else if (into.length > 0) grace = setTimeout(settle, GRACE_MS);
      };
    }

    resolver.resolve4(name, { ttl: true }, take(answer.v4, 4));
    resolver.resolve6(name, { ttl: true }, take(answer.v6, 6));
  });
}

/** Whether the name server answered that the name or the record does not exist. */
function isNegative({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENOTFOUND" || code === "ENODATA";
}

function isEmpty({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENODATA";
}
