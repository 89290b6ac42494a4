import { type LookupAddress, type RecordWithTtl, Resolver } from "node:dns";
import { type LookupError, lookupError, lookupTimeout } from "./lookup-error.ts";

/**
 * How long an answer for one family waits for the other's, in milliseconds (RFC 8305: the resolution delay). A name
 * server that never answers for AAAA then delays no connection over IPv4 by more than this.
 */
const GRACE_MS = 50;
/** Addresses used of each family: a connection cannot try more within its timeout, however many an answer holds. */
const MAX_ADDRESSES = 8;
/**
 * When a query without an answer is sent again, in milliseconds after the first time; to the next name server where
 * there are several. c-ares would do so too, but drops an answer to an earlier one: a name server that takes two
 * seconds for each answer would never be understood.
 */
const SEND_AGAIN_MS = [1_500, 3_500];

/** The addresses of a name, and how long they hold. */
export interface DnsAnswer {
  v4: LookupAddress[];
  v6: LookupAddress[];
  ttlMs: number;
  /** False when one family's answer is missing: it failed or did not come within the grace time. */
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
 * Asks DNS for the addresses of a name by c-ares, which takes no thread: `dns.lookup` would hold one of libuv's four
 * until the name server answers, whoever else waits for it.
 *
 * Each lookup has c-ares channels of its own. A channel can only cancel all of its queries, and keeps the resolv.conf
 * of its creation; a new one costs less than a tenth of a millisecond.
 *
 * @param name the name in errors
 * @param candidates the names to ask for, one after the other, until one exists
 * @param options.servers `address:port` of name servers; those of resolv.conf if undefined
 * @param options.timeoutMs for the whole lookup
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
    // A family that is still missing is not waited for.
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

  /** Asks for a name, again and again; the first result counts, whichever query it answers. */
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

/** Leaves the order of the system where Node does not take back what it gave, such as an address with a zone. */
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
      // That a name exists without addresses says more than that its neighbours do not exist.
      if (error?.code !== "ENODATA") error = reason as NodeJS.ErrnoException;
    }
  }
  throw error;
}

/** Asks for A and AAAA at once. */
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

/** The name server answered: there is no such name, or no such record. */
function isNegative({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENOTFOUND" || code === "ENODATA";
}

function isEmpty({ code }: NodeJS.ErrnoException): boolean {
  return code === "ENODATA";
}
