import { createConnectTransport } from "@connectrpc/connect-node";
import type { Stage } from "./stage.ts";

/** Calls of a kind before those that are timed, unless told otherwise. */
export const WARM_UP = 5;

/** One kind of call, told which one it is, so that no two need be alike. */
export interface Kind {
  name: string;
  call: (n: number) => Promise<unknown>;
}

/** Whoever calls, as a page does: Connect's JSON over HTTP/1.1. */
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

/** How long each of so many calls takes, one after the other, in milliseconds; the shortest first. */
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
