import type { LookupAddress } from "node:dns";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import path from "node:path";

/** The time after which a file is read again, in milliseconds. */
const REREAD_MS = 1_000;

const HOSTS_FILE =
  process.platform === "win32"
    ? path.join(process.env.SystemRoot ?? "C:\\Windows", "System32", "drivers", "etc", "hosts")
    : "/etc/hosts";
const RESOLVER_FILE = "/etc/resolv.conf";

/** Files in which the system configures name resolution. */
export interface SystemFiles {
  /** The hosts file. Defaults to the system's, such as `/etc/hosts`. */
  hostsFile?: string;
  /** The file with the search domains. Defaults to `/etc/resolv.conf`. */
  resolverFile?: string;
}

/**
 * Name resolution outside of DNS: the hosts file, search domains, and localhost (RFC 6761). Node's DNS queries use none of them.
 * A change of a file applies within a second.
 */
export function systemNames({ hostsFile = HOSTS_FILE, resolverFile = RESOLVER_FILE }: SystemFiles) {
  const hosts = contentOf(hostsFile, parseHosts);
  const domains = contentOf(resolverFile, parseSearch);
  return {
    /** The addresses of a name, in lower case, from the hosts file or for localhost; undefined for other names. */
    addresses(name: string): readonly LookupAddress[] | undefined {
      return hosts().get(name) ?? (/(^|\.)localhost$/.test(name) ? LOOPBACK : undefined);
    },
    /**
     * The names to query in DNS, in this order, until one exists. A name with a dot is tried unchanged first,
     * regardless of `ndots`: host names of URLs are usually absolute, and a search domain must not shadow them.
     */
    candidates(name: string): string[] {
      const searched = domains().map((domain) => `${name}.${domain}`);
      return name.includes(".") ? [name, ...searched] : [...searched, name];
    },
  };
}

const LOOPBACK: readonly LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

/** Parses a hosts file. Returns addresses by lower-case name, in the order of the file. */
function parseHosts(text: string): Map<string, LookupAddress[]> {
  const entries = linesOf(text).flatMap(([address = "", ...names]) =>
    names.map((name) => ({ name: name.toLowerCase(), address, family: isIP(address) })),
  );
  // Leaves out addresses with a zone, such as fe80::1%lo0, which are valid on one network link only.
  const usable = entries.filter(({ address, family }) => family !== 0 && !address.includes("%"));
  return Map.groupBy(usable, ({ name }) => name);
}

/** The search domains of resolv.conf(5). The last `search` or `domain` line wins. */
function parseSearch(text: string): string[] {
  const isSearch = ([keyword]: string[]) => keyword === "search" || keyword === "domain";
  const [, ...domains] = linesOf(text).findLast(isSearch) ?? [];
  return domains.map((domain) => domain.toLowerCase().replace(/\.$/, "")).filter((domain) => domain !== "");
}

/** The words of each line, without comments. */
function linesOf(text: string): string[][] {
  return text.split("\n").map((line) => line.replace(/[#;].*$/, "").match(/\S+/g) ?? []);
}

/**
 * Returns a function that returns the parsed content of a small file. Reads the file at most once per REREAD_MS. A file that cannot
 * be read counts as empty.
 */
function contentOf<Content>(file: string, parse: (text: string) => Content): () => Content {
  let content = parse("");
  let readAt = Number.NEGATIVE_INFINITY;
  return () => {
    if (performance.now() - readAt < REREAD_MS) return content;
    readAt = performance.now();
    try {
      content = parse(readFileSync(file, "utf8"));
    } catch {
      content = parse("");
    }
    return content;
  };
}
