import type { Behaviour, ReceiverMethods } from "../processes/receivers.ts";
import type { Bench } from "./bench.ts";
import { startChild } from "./child.ts";

/** HTTPS receivers in a process of their own: one of them a port, and a port is what the service takes for a host. */
export interface Receivers extends AsyncDisposable {
  pid: number;
  /** `https://localhost:port`, in the order of the behaviours. */
  urls: string[];
  /** Requests so far at the first `hosts` receivers, or at all of them. */
  count(hosts?: number): Promise<number>;
  /** Requests so far by path, at receivers whose answers depend on it. */
  pathCounts(): Promise<Record<string, number>>;
  /** TLS connections so far at all of them: each costs a handshake. */
  connections(): Promise<number>;
  /** When each order first arrives from now on is kept for `arrivals`: at one of the first `hosts` receivers, or at any. */
  recordArrivals(hosts?: number): Promise<void>;
  /** Milliseconds since 1970, by order id. */
  arrivals(): Promise<Map<number, number>>;
}

/** Starts a receiver for each behaviour, all in one process: it does no more than read, count and answer. */
export async function startReceivers(bench: Bench, behaviours: Behaviour[]): Promise<Receivers> {
  const child = startChild<ReceiverMethods>(bench, "receivers.ts");
  const ports = await child.call("start", { certificate: bench.certificate, behaviours });
  return {
    pid: child.pid,
    urls: ports.map((port) => `https://localhost:${port}`),
    async count(hosts = ports.length) {
      const counts = await child.call("counts", null);
      return counts.slice(0, hosts).reduce((sum, count) => sum + count, 0);
    },
    pathCounts: () => child.call("pathCounts", null),
    connections: () => child.call("connections", null),
    recordArrivals: (hosts = ports.length) => child.call("recordArrivals", { hosts }),
    arrivals: () => child.call("arrivals", null),
    [Symbol.asyncDispose]: child[Symbol.asyncDispose],
  };
}
