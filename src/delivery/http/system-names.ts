import type { LookupAddress } from "node:dns";
import { readFileSync, statSync } from "node:fs";
import { isIP } from "node:net";
import path from "node:path";

/** The interval between two looks at whether a file has changed, in milliseconds. */
const RECHECK_MS = 1_000;
/** Search domains used; each costs a name that does not exist two more queries. */
const MAX_SEARCH_DOMAINS = 6;

/** The longest name that DNS can hold, in characters. */
const MAX_NAME_LENGTH = 253;

const HOSTS_FILE =
  process.platform === "win32"
    ? path.join(process.env.SystemRoot ?? "C:\\Windows", "System32", "drivers", "etc", "hosts")
    : "/etc/hosts";
const RESOLVER_FILE = "/etc/resolv.conf";

/** Where the system keeps the names that it adds to DNS. */
export interface SystemFiles {
  /** Names with their addresses. Defaults to the system's, such as `/etc/hosts`. */
  hostsFile?: string;
  /** The search domains. Defaults to `/etc/resolv.conf`. */
  resolverFile?: string;
}

/**
 * What the system says of names beside DNS: the hosts file, the search domains, and the names that RFC 6761 reserves.
 * c-ares queries DNS and nothing else. Both files are read again after a change, which is noticed within a second.
 */
export class SystemNames {
  readonly #hosts: WatchedFile<Map<string, LookupAddress[]>>;
  readonly #search: WatchedFile<SearchList>;

  constructor({ hostsFile = HOSTS_FILE, resolverFile = RESOLVER_FILE }: SystemFiles = {}) {
    this.#hosts = new WatchedFile(hostsFile, parseHosts);
    this.#search = new WatchedFile(resolverFile, parseSearch);
  }

  /** The addresses of a name that DNS is not asked for: empty for a name that cannot exist, undefined for all others. */
  addresses(name: string): readonly LookupAddress[] | undefined {
    return this.#hosts.content.get(name) ?? reserved(name);
  }

  /**
   * The names to ask DNS for, one after the other, until one exists. A name with a dot is tried as it stands first,
   * whatever `ndots` says: endpoints have absolute names, and a search domain must not take their place.
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

/** Addresses by name, in lower case, in the order of the file. */
function parseHosts(text: string): Map<string, LookupAddress[]> {
  const hosts = new Map<string, LookupAddress[]>();
  for (const line of text.split("\n")) {
    const [address = "", ...names] = words(line);
    const family = isIP(address);
    // Addresses with a zone, such as fe80::1%lo0, reach this link only.
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
  /** From so many dots on, a name is tried as it stands before the search domains. */
  ndots: number;
}

/** As resolv.conf(5) says: the last `search` or `domain` counts. */
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

/** The words of a line before its comment. */
function words(line: string): string[] {
  return line
    .replace(/[#;].*$/, "")
    .split(/\s+/)
    .filter((word) => word !== "");
}

/** The parsed content of a small file; read again when the file has changed, empty while the file cannot be read. */
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
