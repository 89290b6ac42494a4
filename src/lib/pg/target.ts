/** The values of `target_session_attrs`, as in libpq. */
const SESSION_KINDS = ["any", "primary", "read-write", "standby", "read-only", "prefer-standby"] as const;
/** What a session must be. */
export type SessionKind = (typeof SESSION_KINDS)[number];
/** The kinds for a database that is written to. `any` counts as `primary`: a session on a standby could not do the work. */
const WRITING_KINDS: readonly SessionKind[] = ["any", "primary", "read-write"];

/** The parameters of libpq that are read here. All others are passed on to pg. */
const OWN_PARAMETERS = new Set([
  "host",
  "port",
  "dbname",
  "target_session_attrs",
  "load_balance_hosts",
  "connect_timeout",
]);
/** Parameters of libpq that choose the server in a way that pg does not support. Ignored, they would lead to another server. */
const UNSUPPORTED: Record<string, string> = {
  hostaddr: "write the addresses as hosts: postgres://user:password@10.0.0.1,10.0.0.2/database",
  service: "write the service's host, port, user and database into the URL",
  servicefile: "write the service's host, port, user and database into the URL",
};
/** The minimum of `connect_timeout`, in seconds, as in libpq. */
const MIN_CONNECT_TIMEOUT_S = 2;

const NOT_A_URL =
  "the value is not a PostgreSQL URL; write it like postgres://user:password@host:5432/database, with several hosts like postgres://user:password@host1:5432,host2:5432/database?target_session_attrs=read-write, " +
  "with a socket like postgres://user:password@/database?host=/var/run/postgresql; encode special characters of the password as %xx";

/** A server of a connection URL. */
export interface Host {
  /** The host name, address, or folder of the socket. */
  host: string;
  port: string;
  /** The connection URL of this server alone, as pg reads it. Contains the password: do not log. */
  url: string;
}

/** The servers of a connection URL, and which of their sessions fit. */
export interface Target {
  /** In the order of the URL. At least one. */
  hosts: Host[];
  session: SessionKind;
  /** Whether connections are spread over the hosts (`load_balance_hosts=random`). */
  isRandom: boolean;
  /** The timeout of a connection to one host, in milliseconds (`connect_timeout`). Undefined for the default. */
  timeoutMs: number | undefined;
}

/**
 * Reads a connection URL with the hosts, ports, sockets and session kinds that libpq documents.
 *
 * @param writes whether the database is written to: sessions must then be on a primary
 * @throws Error that says what to write instead. Never repeats the URL, because it can contain a password
 */
export function parseTarget(text: string, writes: boolean): Target {
  const parts = /^(postgres(?:ql)?:\/\/)(?:([^/?#]*)@)?([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?/.exec(text);
  if (!parts) throw new Error(NOT_A_URL);
  const [, scheme, login, authority = "", path = "/", query = ""] = parts;
  const all = new URLSearchParams(query);
  const parameter = (name: string) => all.getAll(name).at(-1);
  for (const [name, instead] of Object.entries(UNSUPPORTED)) {
    if (all.has(name)) throw new Error(`the PostgreSQL URL has ${name}, which is not supported; ${instead}`);
  }
  const database = parameter("dbname");
  const others = query.split("&").filter((pair) => !OWN_PARAMETERS.has(pair.split("=", 1)[0] as string));
  const hosts = hostsOf(authority, parameter("host"), parameter("port")).map(({ host, port }) => {
    const isSocket = host.startsWith("/");
    const parameters = [
      // As in libpq, connections over a socket use no TLS.
      ...(isSocket ? [...others.filter((pair) => !pair.startsWith("ssl")), "sslmode=disable"] : others),
      `host=${encodeURIComponent(host).replaceAll("%2F", "/").replaceAll("%3A", ":")}`,
      `port=${port}`,
    ];
    const to = database === undefined ? path : `/${encodeURI(database)}`;
    const user = login === undefined ? "" : `${login}@`;
    return { host, port, url: `${scheme}${user}localhost${to}?${parameters.filter(Boolean).join("&")}` };
  });
  if (!hosts.every(({ url }) => URL.canParse(url))) throw new Error(NOT_A_URL);
  return {
    hosts,
    session: sessionOf(parameter("target_session_attrs") ?? "any", writes),
    isRandom: isRandom(parameter("load_balance_hosts") ?? "disable"),
    timeoutMs: timeoutOf(parameter("connect_timeout") ?? "0"),
  };
}

/** The hosts and ports of the URL's authority or of `host` and `port`. Defaults to PGHOST and PGPORT, or localhost and 5432. */
function hostsOf(
  authority: string,
  named: string | undefined,
  numbered: string | undefined,
): { host: string; port: string }[] {
  const { PGHOST = "localhost", PGPORT = "5432" } = process.env;
  const written = authority.split(",").map((part) => /^(?:\[([^\]]*)\]|([^:]*))(?::(\d*))?$/.exec(part));
  if (written.includes(null)) throw new Error(NOT_A_URL);
  const inAuthority = written.map((part) => decoded(part?.[1] ?? part?.[2] ?? ""));
  const hosts =
    (named ?? (authority.startsWith(":") || authority === "" ? PGHOST : undefined))?.split(",") ??
    inAuthority;
  const ports = numbered?.split(",") ?? written.map((part) => part?.[3] ?? "");
  if (ports.length !== 1 && ports.length !== hosts.length) {
    throw new Error(
      `the PostgreSQL URL has ${hosts.length} hosts and ${ports.length} ports; write one port for all hosts, or one for each`,
    );
  }
  return hosts.map((host, index) => {
    const port = (ports.length === 1 ? ports[0] : ports[index]) || PGPORT;
    if (!/^(\/.*|[^\s/]+)$/.test(host) || !/^\d+$/.test(port) || Number(port) < 1 || Number(port) > 65_535)
      throw new Error(NOT_A_URL);
    return { host, port };
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error(NOT_A_URL);
  }
}

function sessionOf(text: string, writes: boolean): SessionKind {
  const allowed = writes ? WRITING_KINDS : SESSION_KINDS;
  const kind = allowed.find((each) => each === text);
  if (kind === undefined) {
    throw new Error(
      `the PostgreSQL URL has a target_session_attrs that ${writes ? "leads to no database to write to" : "does not exist"}; ` +
        `allowed: ${allowed.join(", ")}${writes ? "; write target_session_attrs=read-write, and name a replica in DATABASE_READ_URL" : ""}`,
    );
  }
  return writes && kind === "any" ? "primary" : kind;
}

function isRandom(text: string): boolean {
  if (text === "disable" || text === "random") return text === "random";
  throw new Error("the PostgreSQL URL has an unknown load_balance_hosts; allowed: disable, random");
}

function timeoutOf(text: string): number | undefined {
  if (!/^-?\d{1,6}$/.test(text))
    throw new Error(
      "the PostgreSQL URL has a connect_timeout that is not a number; write whole seconds, such as connect_timeout=5",
    );
  const seconds = Number(text);
  return seconds <= 0 ? undefined : Math.max(seconds, MIN_CONNECT_TIMEOUT_S) * 1_000;
}
