import { lookup } from "node:dns/promises";
import { isIP, Socket } from "node:net";
import pg from "pg";
import { UnfitSessionError } from "./faults.ts";
import { type Host, parseTarget, type SessionKind } from "./target.ts";

/** The timeout of a connection, in milliseconds. */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * The timeout of a connection while other hosts are untried, in milliseconds: a host that is down must not delay each connection for
 * long. Hosts that are only slow are tried once more, with CONNECT_TIMEOUT_MS.
 */
const FIRST_TRY_MS = 1_000;
/** The time for which a host that did not respond is tried last, in milliseconds. */
const TRIED_LAST_MS = 30_000;

/** The hosts that did not respond, as `host:port`, and until when they are tried last, by the monotonic clock. */
const unresponsive = new Map<string, number>();

/** What PostgreSQL says of a session. */
export interface SessionState {
  /** Whether the server is in recovery, as a standby is. */
  isStandby: boolean;
  /** Whether transactions are read-only by default. Always true on a standby. */
  isReadOnly: boolean;
}

/** The statement that reads a SessionState. */
export const SESSION_STATE = `select pg_is_in_recovery() as "isStandby", current_setting('transaction_read_only') = 'on' as "isReadOnly"`;

/** Thrown if none of several hosts has a fitting session. */
class NoHostError extends AggregateError {
  override name = "DatabaseError";
}

/** A new connection. */
export interface Session {
  client: pg.Client;
  /** What its server said when it connected. */
  state: SessionState;
}

/**
 * Connects to the first host of a connection URL whose session fits, as libpq does.
 *
 * @param settings the settings of the connection, besides its URL
 * @param options.writes whether the database is written to: a server in recovery does not fit. Defaults to true
 * @param options.signal ends the attempt and destroys its socket
 * @throws the error of the host; an AggregateError if several hosts failed
 */
export async function connect(
  url: string,
  settings: Omit<pg.ClientConfig, "connectionString">,
  { writes = true, signal }: { writes?: boolean; signal?: AbortSignal } = {},
): Promise<Session> {
  const { hosts, session, isRandom, timeoutMs = CONNECT_TIMEOUT_MS } = parseTarget(url, writes);
  const [only] = hosts;
  const kinds: SessionKind[] = session === "prefer-standby" ? ["standby", "any"] : [session];
  const isAlone = only !== undefined && hosts.length === 1 && kinds.length === 1;
  if (isAlone) return openAt(only, { ...settings, connectionTimeoutMillis: timeoutMs }, session, signal);
  const errors = new Map<string, unknown>();
  const inOrder = isRandom ? hosts.toSorted(() => Math.random() - 0.5) : hosts;
  for (const kind of kinds) {
    for (const connectionTimeoutMillis of [Math.min(FIRST_TRY_MS, timeoutMs), timeoutMs]) {
      for (const host of inOrder.toSorted((a, b) => Number(isTriedLast(a)) - Number(isTriedLast(b)))) {
        signal?.throwIfAborted();
        try {
          return await openAt(host, { ...settings, connectionTimeoutMillis }, kind, signal);
        } catch (error) {
          // As in libpq: a wrong password is wrong for all hosts.
          if (/^28/.test((error as { code?: string }).code ?? "")) throw error;
          if (isTimeout(error)) unresponsive.set(nameOf(host), performance.now() + TRIED_LAST_MS);
          errors.set(nameOf(host), error);
        }
      }
      if (![...errors.values()].some(isTimeout)) break;
    }
  }
  const reasons = [...errors].map(([name, error]) => `${name}: ${(error as Error).message}`);
  throw new NoHostError(errors.values(), `no host of the database URL fits: ${reasons.join("; ")}`);
}

const nameOf = ({ host, port }: Host) => `${host}:${port}`;

/** Whether pg gave up a connection for its `connectionTimeoutMillis`. The text is that of pg, not of PostgreSQL. */
const isTimeout = (error: unknown) => error instanceof Error && error.message === "timeout expired";

function isTriedLast(host: Host): boolean {
  const until = unresponsive.get(nameOf(host));
  if (until !== undefined && until <= performance.now()) unresponsive.delete(nameOf(host));
  return unresponsive.has(nameOf(host));
}

/** Connects to a host. Tries all its addresses if the session at the first address does not fit. */
async function openAt(host: Host, settings: pg.ClientConfig, kind: SessionKind, signal?: AbortSignal) {
  const tried = new Set<string | undefined>();
  try {
    return await open(host, settings, kind, { signal, tried });
  } catch (error) {
    if (!(error instanceof UnfitSessionError) || host.host.startsWith("/") || isIP(host.host)) throw error;
    for (const { address } of await lookup(host.host, { all: true })) {
      if (tried.has(address)) continue;
      try {
        return await open(host, settings, kind, { signal, tried, address });
      } catch {
        // The first error is thrown: it says that the host responds, and why its session does not fit.
      }
    }
    throw error;
  }
}

async function open(
  { url, ...host }: Host,
  settings: pg.ClientConfig,
  kind: SessionKind,
  at: { signal: AbortSignal | undefined; tried: Set<string | undefined>; address?: string },
): Promise<Session> {
  const stream = at.address === undefined ? {} : { stream: () => socketTo(at.address as string) };
  const client = new pg.Client({ ...settings, ...stream, connectionString: url } as pg.ClientConfig);
  const { connection } = client as unknown as { connection: { stream: Socket } };
  const destroy = () => connection.stream.destroy();
  client.on("error", () => {});
  at.signal?.addEventListener("abort", destroy, { once: true });
  try {
    await client.connect();
    at.tried.add(connection.stream.remoteAddress);
    const ask = { text: SESSION_STATE, query_timeout: CONNECT_TIMEOUT_MS };
    const [state] = (await client.query<SessionState>(ask)).rows as [SessionState];
    const problem = whyUnfit(kind, state);
    if (problem) throw new UnfitSessionError(`the PostgreSQL at ${nameOf({ ...host, url })} ${problem}`);
    return { client, state };
  } catch (error) {
    client.end().catch(() => {});
    // A server that is silent never confirms the end.
    if (!(error instanceof UnfitSessionError)) destroy();
    if (error instanceof Error) error.name = "DatabaseError";
    throw error;
  } finally {
    at.signal?.removeEventListener("abort", destroy);
  }
}

/** Why a session is not of a kind; undefined if it is. */
function whyUnfit(kind: SessionKind, { isStandby, isReadOnly }: SessionState): string | undefined {
  switch (kind) {
    case "primary":
      return isStandby ? "is a standby, which takes no writes" : undefined;
    case "read-write":
      return isReadOnly ? "is read-only" : undefined;
    case "standby":
      return isStandby ? undefined : "is not a standby";
    case "read-only":
      return isReadOnly ? undefined : "is not read-only";
    default:
      return undefined;
  }
}

/** A socket that connects to an address, whatever host its user names: TLS still verifies the name. */
export function socketTo(address: string): Socket {
  const socket = new Socket();
  const connectTo = socket.connect.bind(socket);
  return Object.assign(socket, { connect: (port: number) => connectTo(port, address) });
}
