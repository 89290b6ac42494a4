import type { RequestListener, ServerResponse } from "node:http";
import { createServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import type { Certificate } from "../../demo/certificates.ts";
import { serveCalls } from "../parts/child.ts";
import { PAYLOAD_START } from "../parts/payload.ts";

/**
 * The responses of a receiver: a status, optionally after a delay, or none. A share of deliveries may fail: always
 * the same ones, by id.
 */
export type Behaviour = Answer | { paths: Record<string, Answer> };
/**
 * `never` accepts the request without a response; `close` accepts it and closes the connection; `silent` accepts the
 * connection without a TLS handshake; `absent` does not listen. `spreadS` adds a Retry-After: at the first attempt of
 * each delivery another number of seconds, up to this, and then always this, so that retries are spread evenly.
 */
type Answer =
  | { status: number; delayMs?: number; failingPart?: number; spreadS?: number }
  | "never"
  | "close"
  | "silent"
  | "absent";

/** An address of 127.0.0.0/8 and a certificate for it. */
export interface Host {
  address: string;
  certificate: Certificate;
}

/** The requests for a path. */
export interface PathRequests {
  /** The number of requests so far. */
  count: number;
  /** The number of requests without a complete response on an open connection. */
  inFlight: number;
}

/** The calls accepted by the receivers' process. */
export type ReceiverMethods = {
  /** Listens on a port of 127.0.0.1 for each behaviour, or on one port of these hosts. Returns the ports. */
  start(argument: {
    certificate: Certificate;
    behaviours: Behaviour[];
    hosts: Host[] | undefined;
  }): Promise<number[]>;
  /** Changes the behaviour of all receivers from the one at index `from` on. */
  change(argument: { from: number; behaviour: Behaviour }): void;
  /** The number of requests so far, by port in the order of `start`. */
  counts(argument: null): number[];
  /** The number of requests without a complete response on an open connection, by port in the order of `start`. */
  inFlight(argument: null): number[];
  /** The requests by path, over all ports, for responses that depend on the path. */
  paths(argument: null): Record<string, PathRequests>;
  /** The number of TLS connections so far, over all ports. */
  connections(argument: null): number;
  /**
   * Starts recording the first arrival of each order at each of the first `hosts` receivers, in milliseconds since
   * 1970.
   */
  recordArrivals(argument: { hosts: number }): void;
  /** The first arrival of each order at any of these receivers. */
  arrivals(argument: null): Map<number, number>;
  /** The first arrival of each order, by receiver. */
  hostArrivals(argument: null): Map<number, number>[];
};

let behaviours: Behaviour[] = [];
let counts: number[] = [];
let inFlight: number[] = [];
let paths: Record<string, PathRequests> = {};
let connections = 0;
/** The deliveries that had a spread delay. */
const tried = new Set<string>();
/** The first arrival of each order, by recording receiver. */
let firstArrivals: Map<number, number>[] = [];

function listener(index: number): RequestListener {
  return (request, response) => {
    counts[index] = (counts[index] ?? 0) + 1;
    inFlight[index] = (inFlight[index] ?? 0) + 1;
    response.once("close", () => {
      inFlight[index] = (inFlight[index] ?? 0) - 1;
    });
    const arrivals = firstArrivals[index];
    if (arrivals) noteOrder(request, arrivals);
    else request.resume();
    const own = answerTo(request.url ?? "", response, behaviours[index] as Behaviour);
    if (own === "never" || own === "silent" || own === "absent") return;
    if (own === "close") {
      request.on("end", () => request.socket.destroy());
      return;
    }
    const { delayMs = 0, failingPart = 0, spreadS } = own;
    const id = String(request.headers["x-service-webhook-id"]);
    const fails = failingPart > 0 && Number.parseInt(id.slice(-4), 16) < failingPart * 0x10000;
    const status = fails ? 503 : own.status;
    if (spreadS !== undefined) response.setHeader("retry-after", String(delayOf(id, spreadS)));
    const answer = () => response.writeHead(status, { "content-length": "2" }).end("ok");
    request.on("end", delayMs === 0 ? answer : () => setTimeout(answer, delayMs));
  };
}

/** The Retry-After of an attempt, in seconds. See `Answer`. */
function delayOf(id: string, spreadS: number): number {
  if (tried.has(id)) return spreadS;
  tried.add(id);
  return 1 + (tried.size % spreadS);
}

function answerTo(path: string, response: ServerResponse, behaviour: Behaviour): Answer {
  if (typeof behaviour === "string" || !("paths" in behaviour)) return behaviour;
  const requests = paths[path] ?? { count: 0, inFlight: 0 };
  paths[path] = requests;
  requests.count += 1;
  requests.inFlight += 1;
  response.once("close", () => {
    requests.inFlight -= 1;
  });
  return behaviour.paths[path] ?? { status: 404 };
}

function noteOrder(request: Parameters<RequestListener>[0], arrivals: Map<number, number>): void {
  const at = Date.now();
  request.once("data", (chunk: Buffer) => {
    const orderId = Number.parseInt(chunk.toString("latin1", PAYLOAD_START.length, 40), 10);
    if (!arrivals.has(orderId)) arrivals.set(orderId, at);
  });
}

/** Adds arrivals to others, with the earlier one of each order. */
function earliest(all: Map<number, number>, more: ReadonlyMap<number, number>): Map<number, number> {
  for (const [order, at] of more) all.set(order, Math.min(at, all.get(order) ?? at));
  return all;
}

/** Listens as a behaviour wants it, on a free port if `port` is 0. Returns the port. */
async function listen(index: number, { address, certificate }: Host, port: number): Promise<number> {
  if (behaviours[index] === "absent") return port;
  const server =
    behaviours[index] === "silent"
      ? createTcpServer((socket) => socket.on("error", () => {}).resume())
      : createServer(certificate, listener(index));
  // Keeps clients' connections open between measurements.
  if ("keepAliveTimeout" in server) server.keepAliveTimeout = 60_000;
  server.on("secureConnection", () => {
    connections += 1;
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, address, resolve);
  });
  return (server.address() as AddressInfo).port;
}

serveCalls({
  async start({ certificate, behaviours: given, hosts }) {
    behaviours = given;
    counts = behaviours.map(() => 0);
    inFlight = behaviours.map(() => 0);
    paths = {};
    if (!hosts)
      return Promise.all(behaviours.map((_, n) => listen(n, { address: "127.0.0.1", certificate }, 0)));
    // The first receiver chooses the port.
    const port = await listen(0, hosts[0] as Host, 0);
    const others = hosts.slice(1, behaviours.length).map((host, n) => listen(n + 1, host, port));
    return [port, ...(await Promise.all(others))];
  },
  change({ from, behaviour }) {
    behaviours = behaviours.map((own, index) => (index < from ? own : behaviour));
  },
  counts: () => counts,
  inFlight: () => inFlight,
  paths: () => paths,
  connections: () => connections,
  recordArrivals({ hosts }) {
    firstArrivals = Array.from({ length: hosts }, () => new Map());
  },
  arrivals: () => firstArrivals.reduce(earliest, new Map()),
  hostArrivals: () => firstArrivals,
} satisfies ReceiverMethods);
