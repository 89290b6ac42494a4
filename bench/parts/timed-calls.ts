import { createConnectTransport } from "@connectrpc/connect-node";
import type { Stage } from "./stage.ts";

/** The default number of warm-up calls of a kind. */
export const WARM_UP = 5;

/** A kind of call, which receives its index, so that calls can differ. */
export interface Kind {
  name: string;
  call: (n: number) => Promise<unknown>;
}

/** A transport like that of the page: Connect's JSON over HTTP/1.1. */
export function transportTo({ service, adminKey }: Stage) {
  return createConnectTransport({
    baseUrl: service.url,
    httpVersion: "1.1",
    interceptors: [
      (next) => (request) => {
        request.header.set("X-Service-Key", adminKey);
        return next(request);
      },
    ],
  });
}

/** The durations of consecutive calls in milliseconds, sorted. */
export async function timesOf({ call }: Kind, calls: number, warmUp = WARM_UP): Promise<number[]> {
  const times: number[] = [];
  for (let n = -warmUp; n < calls; n += 1) {
    const started = performance.now();
    await call(n + warmUp);
    if (n >= 0) times.push(performance.now() - started);
  }
  return times.sort((one, other) => one - other);
}

export function percentile(sorted: readonly number[], part: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] as number;
}
