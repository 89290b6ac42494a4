import type { Behaviour, Host, PathRequests, ReceiverMethods } from "../processes/receivers.ts";
import type { Bench } from "./bench.ts";
import { type ChildBench, startChild } from "./child.ts";

/** HTTPS receivers in a child process. Each has a port, and the service treats each port as a host. */
export interface Receivers extends AsyncDisposable {
  pid: number;
  /** `https://localhost:port`, or with the host's address, in the order of the behaviours. */
  urls: string[];
  /** The number of requests so far at the first `hosts` receivers, or at all. */
  count(hosts?: number): Promise<number>;
  /** Changes the behaviour of all receivers from the one at index `from` on. */
  change(from: number, behaviour: Behaviour): Promise<void>;
  /** The number of requests so far at each receiver. */
  counts(): Promise<number[]>;
  /** The number of requests that each receiver has and has not answered yet. An aborted request does not count. */
  inFlight(): Promise<number[]>;
  /** The requests by path, at receivers whose responses depend on it. */
  paths(): Promise<Record<string, PathRequests>>;
  /** The number of TLS connections so far at all receivers. Each costs a handshake. */
  connections(): Promise<number>;
  /** Starts recording the first arrivals of each order at the first `hosts` receivers or at all. */
  recordArrivals(hosts?: number): Promise<void>;
  /** First arrivals at any recording receiver in milliseconds since 1970, by order id. */
  arrivals(): Promise<Map<number, number>>;
  /** First arrivals at each recording receiver. */
  hostArrivals(): Promise<Map<number, number>[]>;
}

/**
 * Starts a receiver for each behaviour, all in one process that only reads, counts and responds.
 *
 * @param hosts the addresses of the receivers, which then have one port. Defaults to a port for each on 127.0.0.1
 */
export async function startReceivers(
  bench: ChildBench & Pick<Bench, "certificate">,
  behaviours: Behaviour[],
  hosts?: Host[],
): Promise<Receivers> {
  const child = startChild<ReceiverMethods>(bench, "receivers.ts");
  const ports = await child.call("start", { certificate: bench.certificate, behaviours, hosts });
  return {
    pid: child.pid,
    urls: ports.map((port, index) => `https://${hosts?.[index]?.address ?? "localhost"}:${port}`),
    async count(hosts = ports.length) {
      const counts = await child.call("counts", null);
      return counts.slice(0, hosts).reduce((sum, count) => sum + count, 0);
    },
    change: (from, behaviour) => child.call("change", { from, behaviour }),
    counts: () => child.call("counts", null),
    inFlight: () => child.call("inFlight", null),
    paths: () => child.call("paths", null),
    connections: () => child.call("connections", null),
    recordArrivals: (hosts = ports.length) => child.call("recordArrivals", { hosts }),
    arrivals: () => child.call("arrivals", null),
    hostArrivals: () => child.call("hostArrivals", null),
    [Symbol.asyncDispose]: child[Symbol.asyncDispose],
  };
}
