import { Code, ConnectError } from "@connectrpc/connect";
import { QueryClient } from "@tanstack/react-query";

/** Faults that pass: the service starts anew, or the network was away for a moment. */
const PASSING: ReadonlySet<Code> = new Set([Code.Unavailable, Code.Unknown, Code.Internal]);
const RETRIES = 2;
const FRESH_MS = 5_000;

/** What has been read is shown again at once, and read anew where it is older than some seconds. */
export function createQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        staleTime: FRESH_MS,
        retry: (failures, error) => failures < RETRIES && PASSING.has(ConnectError.from(error).code),
      },
      // What changes something is repeated by a person or not at all.
      mutations: { retry: false },
    },
  });
}
