import { Code, ConnectError } from "@connectrpc/connect";
import { QueryClient } from "@tanstack/react-query";

/** Faults that pass: the service starts anew, or the network was away for a moment. */
const PASSING: ReadonlySet<Code> = new Set([Code.Unavailable, Code.Unknown, Code.Internal]);
/** The number of retries of a failed query. */
const RETRIES = 2;
/** The age up to which data is not read again, in milliseconds. */
const FRESH_MS = 5_000;

/** Creates the cache of queries. Cached data is shown at once, and read again if it is older than some seconds. */
export function createQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        // Offline, calls fail instead of waiting: a list must not seem current. The service may be on this machine.
        networkMode: "always",
        refetchOnReconnect: true,
        staleTime: FRESH_MS,
        retry: (failures, error) => failures < RETRIES && PASSING.has(ConnectError.from(error).code),
      },
      // What changes something is repeated by a person or not at all.
      // Offline, it fails at once: the default waits, and makes the change whenever the network returns.
      mutations: { networkMode: "always", retry: false },
    },
  });
}
