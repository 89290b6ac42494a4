import type { LookupAddress } from "node:dns";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";
import os from "node:os";
import path from "node:path";
import ipaddr from "ipaddr.js";

/** The time after which a file is read again, in milliseconds. */
const REREAD_MS = 1_000;

const HOSTS_FILE =
  process.platform === "win32"
    ? path.join(process.env.SystemRoot ?? "C:\\Windows", "System32", "drivers", "etc", "hosts")
    : "/etc/hosts";
const RESOLVER_FILE = "/etc/resolv.conf";

/** Where the system configures name resolution. */
export interface SystemFiles {
  /** The hosts file. Defaults to the system's, such as `/etc/hosts`. */
  hostsFile?: string;
  /** The file with the name servers, search domains and options. Defaults to `/etc/resolv.conf`. */
  resolverFile?: string;
  /** The name of this machine. Its domain is searched if the file names none. Defaults to the system's. */
  hostname?: string;
}

/** The settings of resolv.conf(5), with glibc's defaults and limits. Options that are not listed have no effect. */
export interface ResolverSettings {
  /** The addresses of the name servers: 1 to 3. */
  servers: string[];
  /** The search domains. Empty for the root, which `search .` names. */
  search: string[];
  /** The number of dots from which a name is queried unchanged first. Defaults to 1. */
  ndots: number;
  /** The time for an answer of a name server, in milliseconds. Defaults to 5,000. */
  timeoutMs: number;
  /** The number of times that each name server is queried. Defaults to 2. */
  attempts: number;
  /** Whether queries start with another name server each time. */
  rotate: boolean;
  /** Whether only IPv4 addresses are queried. */
  noAaaa: boolean;
  /** Whether a name without a dot is queried with search domains only. */
  noTldQuery: boolean;
}

/**
 * Name resolution outside of DNS, and how to query DNS, as glibc does it: the hosts file, resolv.conf, and localhost (RFC 6761).
 * A change of a file applies within a second.
 */
export function systemNames({
  hostsFile = HOSTS_FILE,
  resolverFile = RESOLVER_FILE,
  hostname = os.hostname(),
}: SystemFiles) {
  const hosts = contentOf(hostsFile, parseHosts);
  const settings = contentOf(resolverFile, (text) => parseSettings(text, hostname));
  return {
    /** The addresses of a name, in lower case, from the hosts file or for localhost; undefined for other names. */
    addresses(name: string): readonly LookupAddress[] | undefined {
      return hosts().get(name) ?? (isLocalhost(name) ? LOOPBACK : undefined);
    },
    settings,
    /** The names to query in DNS, in this order, until one exists. */
    candidates(name: string): string[] {
      const { search, ndots, noTldQuery } = settings();
      const dots = name.split(".").length - 1;
      const searched = search.map((domain) => (domain === "" ? name : `${name}.${domain}`));
      if (dots >= ndots) return [...new Set([name, ...searched])];
      return noTldQuery && dots === 0 && searched.length > 0 ? searched : [...new Set([...searched, name])];
    },
  };
}

/** Whether a name, in lower case, always means this machine (RFC 6761). */
export const isLocalhost = (name: string) => /(^|\.)localhost$/.test(name);

const LOOPBACK: readonly LookupAddress[] = [
  { address: "127.0.0.1", family: 4 },
  { address: "::1", family: 6 },
];

/** Parses a hosts file. Returns addresses by lower-case name, in the order of the file. */
function parseHosts(text: string): Map<string, LookupAddress[]> {
  const entries = text.split("\n").flatMap((line) => {
    const [address = "", ...names] = line.replace(/#.*$/, "").trim().split(/\s+/);
    return names.map((name) => ({ name: name.toLowerCase(), address, family: isIP(address) }));
  });
  // Leaves out addresses with a zone, such as fe80::1%lo0, which are valid on one network link only.
  const usable = entries.filter(({ address, family }) => family !== 0 && !address.includes("%"));
  return Map.groupBy(usable, ({ name }) => name);
}

/** Limits of glibc: name servers, `ndots`, `timeout` in seconds, and `attempts`. */
const MAX = { servers: 3, ndots: 15, timeout: 30, attempts: 5 };

/**
 * Parses resolv.conf(5) as glibc does. A keyword is in the first column. The last `search` or `domain` line wins, as does the last value
 * of an option. The environment variables LOCALDOMAIN and RES_OPTIONS override the file.
 */
function parseSettings(text: string, hostname: string): ResolverSettings {
  const { LOCALDOMAIN = "", RES_OPTIONS = "" } = process.env;
  const lines = [...text.split("\n"), `search ${LOCALDOMAIN}`, `options ${RES_OPTIONS}`].map((line) => {
    const [keyword = "", ...values] = line.trimEnd().split(/[ \t]+/);
    return { keyword, values };
  });
  const valuesOf = (wanted: string) =>
    lines.filter(({ keyword }) => keyword === wanted).map(({ values }) => values);
  const servers = valuesOf("nameserver").flatMap(([value = ""]) => {
    const address = value.replace(/[;#].*$/, "");
    return ipaddr.isValid(address) ? [ipaddr.parse(address).toString()] : [];
  });
  const ofSearch = lines.findLast(
    ({ keyword, values }) => (keyword === "search" || keyword === "domain") && values.length > 0,
  );
  const search = ofSearch
    ? ofSearch.values.slice(0, ofSearch.keyword === "domain" ? 1 : undefined)
    : [hostname.replace(/^[^.]*\.?/, "")].filter((domain) => domain !== "");
  // glibc reads `ndots: 5` like `ndots:5`.
  const options = valuesOf("options").flat().join(" ").replaceAll(": ", ":").split(" ");
  const number = (name: keyof typeof MAX, usual: number, min: number) => {
    const given = options.findLast((option) => option.startsWith(`${name}:`))?.slice(name.length + 1);
    if (given === undefined) return usual;
    return Math.max(min, Math.min(Number.parseInt(given, 10) || 0, MAX[name]));
  };
  return {
    servers: servers.length > 0 ? servers.slice(0, MAX.servers) : ["127.0.0.1"],
    search: search.map((domain) => domain.toLowerCase().replace(/\.$/, "")),
    ndots: number("ndots", 1, 0),
    timeoutMs: number("timeout", 5, 1) * 1_000,
    attempts: number("attempts", 2, 1),
    rotate: options.includes("rotate"),
    noAaaa: options.includes("no-aaaa"),
    noTldQuery: options.includes("no-tld-query") || options.includes("no_tld_query"),
  };
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
