import type { Behaviour, Reply } from "../../support/name-server.ts";

/** What a name server answers: addresses, a code, nothing at all, or one of these by the type of the question. */
type Answer = string[] | "NODATA" | "SILENT" | NonNullable<Reply["code"]>;
type Zone = Record<string, Answer | { A: Answer; AAAA: Answer }>;

/** A configuration of the system's name resolution, and what it finds. */
export interface ResolutionCase {
  title: string;
  /** The lines of resolv.conf, in which NS1 to NS4 are the addresses of the name servers. */
  resolver: string[];
  /** The lines of the hosts file. Defaults to none. */
  hosts?: string[];
  /** The name of the machine. Defaults to one without a domain. */
  hostname?: string;
  name: string;
  /** The names that each name server knows; null for one that does not run. Other names do not exist. */
  zones: (Zone | null)[];
  /** The addresses, sorted. Empty if the name does not resolve. */
  finds: string[];
  /** The addresses that glibc finds, if it finds none where the service does. */
  glibcFinds?: [];
}

const one = ["192.0.2.1"];
const two = ["192.0.2.2"];
const both = ["192.0.2.1", "2001:db8::1"];

const NS = "nameserver NS1";
const SEARCH = [NS, "search a.test b.test"];
const SERVERS = [NS, "nameserver NS2"];
/** A name server that does not answer is given up after a second. */
const FAST = "options timeout:1 attempts:1";
const KUBERNETES = [NS, "search team-a.svc.cluster.local svc.cluster.local cluster.local", "options ndots:5"];
const RECEIVER = "receiver.team-a.svc.cluster.local";
const LONG = ["a", "b", "c", "d"].map((letter) => letter.repeat(60)).join(".");

const of = (title: string, resolver: string[], name: string, zones: (Zone | null)[], finds: string[]) => ({
  title,
  resolver,
  name,
  zones,
  finds,
});
/** A case in which glibc gives up. */
const beyond = (...given: Parameters<typeof of>): ResolutionCase => ({ ...of(...given), glibcFinds: [] });
/** A case of the hosts file. DNS has another address. */
const inHosts = (title: string, hosts: string[], finds: string[]): ResolutionCase => ({
  ...of(title, SEARCH, "x.y", [{ "x.y": ["192.0.2.99"] }], finds),
  hosts,
});
const DNS = ["192.0.2.99"];

export const RESOLUTION_CASES: ResolutionCase[] = [
  of("both families", [NS], "x.y", [{ "x.y": both }], both),
  of("a name that does not exist", SEARCH, "x.y", [{}], []),

  // Search domains and ndots.
  of("a name without a dot, first with search domains", SEARCH, "x", [{ x: one, "x.b.test": two }], two),
  of("a name without a dot, then unchanged", SEARCH, "x", [{ x: one }], one),
  of("a name with a dot, first unchanged", SEARCH, "x.y", [{ "x.y": one, "x.y.a.test": two }], one),
  of("a name with a dot, then with search domains", SEARCH, "x.y", [{ "x.y.b.test": two }], two),
  of("ndots:5", KUBERNETES, "receiver.team-a", [{ [RECEIVER]: one, "receiver.team-a": two }], one),
  of("ndots:5, a name of the internet", KUBERNETES, "shop.example", [{ "shop.example": one }], one),
  of("ndots:0", [...SEARCH, "options ndots:0"], "x", [{ x: one, "x.a.test": two }], one),
  of("ndots of no number", [...SEARCH, "options ndots:abc"], "x", [{ x: one, "x.a.test": two }], one),
  of("ndots with letters", [...SEARCH, "options ndots:5x"], "x.y", [{ "x.y": one, "x.y.a.test": two }], two),
  of("ndots and a space", [...SEARCH, "options ndots: 5"], "x.y", [{ "x.y": one, "x.y.a.test": two }], two),
  of(
    "ndots of at most 15",
    [...SEARCH, "options ndots:99"],
    "1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.g",
    [{ "1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.g": one, "1.2.3.4.5.6.7.8.9.a.b.c.d.e.f.g.a.test": two }],
    one,
  ),
  of(
    "options of several lines",
    [...SEARCH, "options ndots:3", "options timeout:2"],
    "x.y",
    [{ "x.y": one, "x.y.a.test": two }],
    two,
  ),
  of(
    "the last of two options",
    [...SEARCH, "options ndots:3 ndots:1"],
    "x.y",
    [{ "x.y": one, "x.y.a.test": two }],
    one,
  ),
  of(
    "options after a sign for comments",
    [...SEARCH, "options timeout:1 # ndots:3"],
    "x.y",
    [{ "x.y": one, "x.y.a.test": two }],
    two,
  ),
  of("eight search domains", [NS, "search a b c d e f g h.test"], "x", [{ "x.h.test": one }], one),
  of("a search domain with a final dot", [NS, "search a.test."], "x", [{ "x.a.test": one }], one),
  of("the root as search domain", [NS, "search . a.test"], "x", [{ x: one, "x.a.test": two }], one),
  of("only the first word of domain", [NS, "domain a.test b.test"], "x", [{ "x.b.test": one }], []),
  of(
    "domain after search",
    [NS, "search a.test", "domain b.test"],
    "x",
    [{ "x.a.test": one, "x.b.test": two }],
    two,
  ),
  of(
    "search after domain",
    [NS, "domain a.test", "search b.test"],
    "x",
    [{ "x.a.test": one, "x.b.test": two }],
    two,
  ),
  of("an empty search line", [NS, "search a.test", "search"], "x", [{ "x.a.test": one }], one),
  of("an indented search line", [NS, " search a.test"], "x", [{ "x.a.test": one }], []),
  of("lines with comments", ["# search a.test", "; search a.test", NS], "x", [{ "x.a.test": one }], []),
  of("no comments behind search domains", [NS, "search a.test # b.test"], "x", [{ "x.b.test": one }], one),
  of("tabs", ["nameserver\tNS1", "search\ta.test\tb.test"], "x", [{ "x.b.test": one }], one),
  of("no-tld-query", [...SEARCH, "options no-tld-query"], "x", [{ x: one }], []),
  of("a search domain that is too long", [NS, `search ${LONG}.test`], "x".repeat(20), [{}], []),
  { ...of("the machine's own domain", [NS], "x", [{ "x.a.test": one }], one), hostname: "host.a.test" },
  {
    ...of("a search domain instead of the machine's", [NS, "search b.test"], "x", [{ "x.a.test": one }], []),
    hostname: "host.a.test",
  },

  // A candidate that fails.
  of("an empty answer, then the next domain", SEARCH, "x", [{ "x.a.test": "NODATA", "x.b.test": two }], two),
  of("SERVFAIL, then the next domain", SEARCH, "x", [{ "x.a.test": "SERVFAIL", "x.b.test": two }], two),
  of(
    "SERVFAIL for all but the last",
    SEARCH,
    "x",
    [{ "x.a.test": "SERVFAIL", "x.b.test": "SERVFAIL", x: one }],
    one,
  ),
  of("REFUSED, then unchanged", SEARCH, "x", [{ "x.a.test": "REFUSED", "x.b.test": two, x: one }], one),
  of("NOTIMP, then unchanged", SEARCH, "x", [{ "x.a.test": "NOTIMP", "x.b.test": two, x: one }], one),
  of("FORMERR, then unchanged", SEARCH, "x", [{ "x.a.test": "FORMERR", "x.b.test": two, x: one }], one),
  of(
    "silence, then unchanged",
    [...SEARCH, FAST],
    "x",
    [{ "x.a.test": "SILENT", "x.b.test": two, x: one }],
    one,
  ),
  beyond("REFUSED, then the next domain", SEARCH, "x", [{ "x.a.test": "REFUSED", "x.b.test": two }], two),
  beyond("NOTIMP, then the next domain", SEARCH, "x", [{ "x.a.test": "NOTIMP", "x.b.test": two }], two),
  beyond(
    "silence, then the next domain",
    [...SEARCH, FAST],
    "x",
    [{ "x.a.test": "SILENT", "x.b.test": two }],
    two,
  ),
  of("unchanged SERVFAIL, then a domain", SEARCH, "x.y", [{ "x.y": "SERVFAIL", "x.y.b.test": two }], two),
  of("unchanged REFUSED, then a domain", SEARCH, "x.y", [{ "x.y": "REFUSED", "x.y.b.test": two }], two),
  of("unchanged NOTIMP, then a domain", SEARCH, "x.y", [{ "x.y": "NOTIMP", "x.y.b.test": two }], two),
  of("unchanged FORMERR, then a domain", SEARCH, "x.y", [{ "x.y": "FORMERR", "x.y.b.test": two }], two),
  of(
    "unchanged silence, then a domain",
    [...SEARCH, FAST],
    "x.y",
    [{ "x.y": "SILENT", "x.y.a.test": two }],
    two,
  ),
  of(
    "ndots:5, unchanged SERVFAIL",
    KUBERNETES,
    "receiver.team-a.svc",
    [{ "receiver.team-a.svc": "SERVFAIL", [RECEIVER]: one }],
    one,
  ),
  of(
    "ndots:5, unchanged REFUSED",
    KUBERNETES,
    "receiver.team-a.svc",
    [{ "receiver.team-a.svc": "REFUSED", [RECEIVER]: one }],
    one,
  ),
  of(
    "ndots:5, unchanged silence",
    KUBERNETES,
    "receiver.team-a.svc",
    [{ "receiver.team-a.svc": "SILENT", [RECEIVER]: one }],
    one,
  ),
  of(
    "ndots:5, SERVFAIL for a search domain",
    KUBERNETES,
    "receiver.team-a.svc",
    [{ "receiver.team-a.svc.team-a.svc.cluster.local": "SERVFAIL", [RECEIVER]: one }],
    one,
  ),

  // A family that fails.
  of("A, and AAAA of SERVFAIL", SEARCH, "x.y", [{ "x.y": { A: one, AAAA: "SERVFAIL" } }], one),
  of("A, and AAAA of NXDOMAIN", SEARCH, "x.y", [{ "x.y": { A: one, AAAA: "NXDOMAIN" } }], one),
  of("A, and AAAA of silence", [...SEARCH, FAST], "x.y", [{ "x.y": { A: one, AAAA: "SILENT" } }], one),
  of(
    "AAAA, and A of SERVFAIL",
    SEARCH,
    "x.y",
    [{ "x.y": { A: "SERVFAIL", AAAA: ["2001:db8::1"] } }],
    ["2001:db8::1"],
  ),
  of(
    "AAAA, and A of NXDOMAIN",
    SEARCH,
    "x.y",
    [{ "x.y": { A: "NXDOMAIN", AAAA: ["2001:db8::1"] } }],
    ["2001:db8::1"],
  ),
  of(
    "A of SERVFAIL and AAAA of none, then the next domain",
    SEARCH,
    "x",
    [{ "x.a.test": { A: "SERVFAIL", AAAA: "NODATA" }, "x.b.test": two }],
    two,
  ),
  of("no-aaaa", [...SEARCH, "options no-aaaa"], "x.y", [{ "x.y": both }], one),

  // Several name servers.
  of("SERVFAIL, then the next server", SERVERS, "x.y", [{ "x.y": "SERVFAIL" }, { "x.y": one }], one),
  of("REFUSED, then the next server", SERVERS, "x.y", [{ "x.y": "REFUSED" }, { "x.y": one }], one),
  of("NOTIMP, then the next server", SERVERS, "x.y", [{ "x.y": "NOTIMP" }, { "x.y": one }], one),
  of("silence, then the next server", [...SERVERS, FAST], "x.y", [{ "x.y": "SILENT" }, { "x.y": one }], one),
  of("a server that does not run, then the next", SERVERS, "x.y", [null, { "x.y": one }], one),
  of("no server after NXDOMAIN", SERVERS, "x.y", [{}, { "x.y": one }], []),
  of("no server after an empty answer", SERVERS, "x.y", [{ "x.y": "NODATA" }, { "x.y": one }], []),
  of("no server after FORMERR", SERVERS, "x.y", [{ "x.y": "FORMERR" }, { "x.y": one }], []),
  of(
    "a server that fails for each candidate",
    [...SERVERS, "search a.test b.test"],
    "x",
    [{ "x.a.test": "SERVFAIL", "x.b.test": "REFUSED" }, { "x.b.test": two }],
    two,
  ),
  of(
    "the third server",
    [...SERVERS, "nameserver NS3"],
    "x.y",
    [{ "x.y": "SERVFAIL" }, { "x.y": "REFUSED" }, { "x.y": one }],
    one,
  ),
  of(
    "no fourth server",
    [...SERVERS, "nameserver NS3", "nameserver NS4"],
    "x.y",
    [{ "x.y": "SERVFAIL" }, { "x.y": "SERVFAIL" }, { "x.y": "SERVFAIL" }, { "x.y": one }],
    [],
  ),
  of("rotate", [...SERVERS, "options rotate"], "x.y", [{ "x.y": one }, { "x.y": one }], one),
  of(
    "rotate with a server that fails",
    [...SERVERS, "options rotate"],
    "x.y",
    [{ "x.y": "SERVFAIL" }, { "x.y": one }],
    one,
  ),
  of(
    "a server that is no address",
    ["nameserver dns.test", "nameserver NS2"],
    "x.y",
    [null, { "x.y": one }],
    one,
  ),
  of(
    "a server with a port",
    ["nameserver NS1:53", "nameserver NS2"],
    "x.y",
    [{ "x.y": two }, { "x.y": one }],
    one,
  ),
  of("a server with a comment", ["nameserver NS1 # first"], "x.y", [{ "x.y": one }], one),
  of(
    "a keyword in capitals",
    ["NAMESERVER NS1", "nameserver NS2"],
    "x.y",
    [{ "x.y": two }, { "x.y": one }],
    one,
  ),
  of(
    "options without effect on addresses",
    [NS, "options edns0 trust-ad single-request single-request-reopen inet6 debug no-reload bogus foo:3"],
    "x.y",
    [{ "x.y": both }],
    both,
  ),
  of("use-vc", [NS, "options use-vc"], "x.y", [{ "x.y": both }], both),
  of(
    "timeout:0",
    [...SEARCH, "options timeout:0 attempts:1"],
    "x.y",
    [{ "x.y": "SILENT", "x.y.a.test": two }],
    two,
  ),
  beyond("attempts:0", [...SEARCH, "options attempts:0"], "x.y", [{ "x.y": one }], one),

  // The hosts file.
  inHosts("before DNS", ["192.0.2.3 x.y"], ["192.0.2.3"]),
  inHosts(
    "several lines and families",
    ["192.0.2.3 x.y", "2001:db8::3 z x.y", "192.0.2.4 x.y"],
    ["192.0.2.3", "192.0.2.4", "2001:db8::3"],
  ),
  inHosts("one family", ["2001:db8::3 x.y"], ["2001:db8::3"]),
  inHosts("capitals", ["192.0.2.3 X.Y"], ["192.0.2.3"]),
  inHosts("an indented line and tabs", ["\t192.0.2.3\tz  x.y"], ["192.0.2.3"]),
  inHosts("a comment behind", ["192.0.2.3 z # x.y"], DNS),
  inHosts("a semicolon, which starts no comment", ["192.0.2.3 z ; x.y"], ["192.0.2.3"]),
  inHosts("an address with a zone", ["fe80::1%lo x.y"], DNS),
  inHosts("an address that is none", ["192.0.2 x.y", "x.y 192.0.2.3"], DNS),
  inHosts("a mapped address", ["::ffff:192.0.2.3 x.y"], ["::ffff:192.0.2.3"]),
  inHosts("a name with a search domain", ["192.0.2.3 x.y.a.test"], DNS),
  inHosts("lines that end with a carriage return", ["192.0.2.3 x.y\r"], ["192.0.2.3"]),
];

/** A name server's behaviour for a zone. */
export function behaviourOf(zone: Zone): Behaviour {
  return ({ name, type }) => {
    const known = zone[name.toLowerCase()] ?? "NXDOMAIN";
    const answer = typeof known === "string" || Array.isArray(known) ? known : known[type];
    if (answer === "SILENT") return undefined;
    if (answer === "NODATA") return {};
    return typeof answer === "string" ? { code: answer } : { addresses: answer };
  };
}

/** The text of a file, with the addresses of the name servers: NS1 is the first of `prefix`. */
export const textOf = (lines: readonly string[], prefix = "") =>
  lines.map((line) => `${line.replace(/\bNS(\d)/g, `${prefix}$1`)}\n`).join("");
