import type { LookupAddress } from "node:dns";
import { readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import path from "node:path";

/** The interval between checks for file changes, in milliseconds. */
const RECHECK_MS = 1_000;
/** The maximum number of search domains used. Each one costs two more queries for a name that does not exist. */
const MAX_SEARCH_DOMAINS = 6;

/** The longest name that DNS can hold, in characters. */
const MAX_NAME_LENGTH = 253;

const HOSTS_FILE =
  process.platform === "win32"
    ? path.join(process.env.SystemRoot ?? "C:\\Windows", "System32", "drivers", "etc", "hosts")
    : "/etc/hosts";
const RESOLVER_FILE = "/etc/resolv.conf";

/** Files in which the system configures name resolution. */
export interface SystemFiles {
  /** The hosts file. Defaults to the system's, such as `/etc/hosts`. */
  hostsFile?: string;
  /** The search domains. Defaults to `/etc/resolv.conf`. */
  resolverFile?: string;
}

/**
 * Name resolution outside of DNS: the hosts file, search domains, and the names reserved by RFC 6761. c-ares supports
 * none of them. Both files are read again within a second of a change.
 */
export class SystemNames {
  readonly #hosts: WatchedFile<Map<string, LookupAddress[]>>;
  readonly #search: WatchedFile<SearchList>;

  constructor({ hostsFile = HOSTS_FILE, resolverFile = RESOLVER_FILE }: SystemFiles = {}) {
    this.#hosts = new WatchedFile(hostsFile, parseHosts);
    this.#search = new WatchedFile(resolverFile, parseSearch);
  }

  /**
   * The addresses of a name that needs no DNS query: empty for a name that cannot exist, undefined if DNS is needed.
   */
  addresses(name: string): readonly LookupAddress[] | undefined {
    return this.#hosts.content.get(name) ?? reserved(name);
  }

  /**
   * The names to query in DNS, in this order, until one exists. A name with a dot is tried unchanged first,
   * regardless of `ndots`: endpoints have absolute names, and a search domain must not shadow them.
   */
  candidates(name: string): string[] {
    const { domains, ndots } = this.#search.content;
    const searched = domains
      .map((domain) => `${name}.${domain}`)
      .filter((searchedName) => searchedName.length <= MAX_NAME_LENGTH);
    return name.includes(".") || ndots === 0 ? [name, ...searched] : [...searched, name];
  }
}

const LOOPBACK: readonly LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

function reserved(name: string): readonly LookupAddress[] | undefined {
  const top = name.slice(name.lastIndexOf(".") + 1);
  if (top === "localhost") return LOOPBACK;
  return top === "invalid" ? [] : undefined;
}

/** Parses a hosts file. Returns addresses by lower-case name, in the order of the file. */
function parseHosts(text: string): Map<string, LookupAddress[]> {
  const hosts = new Map<string, LookupAddress[]>();
  for (const line of text.split("\n")) {
    const [address = "", ...names] = words(line);
    const family = isIP(address);
    // Addresses with a zone, such as fe80::1%lo0, are valid on one link only.
    if (family === 0 || address.includes("%")) continue;
    for (const name of names.map((each) => each.toLowerCase())) {
      const known = hosts.get(name);
      if (known) known.push({ address, family });
      else hosts.set(name, [{ address, family }]);
    }
  }
  return hosts;
}

interface SearchList {
  domains: string[];
  /** The number of dots from which a name is tried unchanged before the search domains. */
  ndots: number;
}

/** Parses resolv.conf(5). The last `search` or `domain` line wins. */
function parseSearch(text: string): SearchList {
  const list: SearchList = { domains: [], ndots: 1 };
  for (const line of text.split("\n")) {
    const [keyword, ...values] = words(line);
    if (keyword === "search" || keyword === "domain") {
      const domains = values.map((domain) => domain.toLowerCase().replace(/\.$/, ""));
      list.domains = domains.filter((domain) => domain !== "").slice(0, MAX_SEARCH_DOMAINS);
    }
    if (keyword !== "options") continue;
    for (const option of values) {
      const ndots = /^ndots:(\d+)$/.exec(option)?.[1];
      if (ndots) list.ndots = Number(ndots);
    }
  }
  return list;
}

/** The words of a line, without its comment. */
function words(line: string): string[] {
  return line
    .replace(/[#;].*$/, "")
    .split(/\s+/)
    .filter((word) => word !== "");
}

/** The parsed content of a small file. Reloaded when the file changes; empty if the file cannot be read. */
class WatchedFile<Content> {
  readonly #path: string;
  readonly #parse: (text: string) => Content;
  #checked = Number.NEGATIVE_INFINITY;
  #version: string | undefined;
  #content: Content;

  constructor(file: string, parse: (text: string) => Content) {
    this.#path = file;
    this.#parse = parse;
    this.#content = parse("");
  }

  get content(): Content {
    const now = performance.now();
    if (now - this.#checked < RECHECK_MS) return this.#content;
    this.#checked = now;
    const version = this.#currentVersion();
    if (version === this.#version) return this.#content;
    this.#version = version;
    this.#content = this.#parse(this.#read());
    return this.#content;
  }

  #currentVersion(): string {
    const stats = statSync(this.#path, { throwIfNoEntry: false, bigint: true });
    return stats ? `${stats.ino} ${stats.size} ${stats.mtimeNs}` : "none";
  }

  #read(): string {
    try {
      return readFileSync(this.#path, "utf8");
    } catch {
      return "";
    }
  }
}
