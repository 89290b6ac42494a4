import { createConnectTransport } from "@connectrpc/connect-node";
import type { Measurement } from "./scenario.ts";
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

/**
 * The durations of consecutive calls as figures.
 *
 * @param figures parts of the calls by the end of a figure's name, such as 0.5 by `p50`
 */
export async function figuresOf(
  kind: Kind,
  calls: number,
  figures: Readonly<Record<string, number>>,
  warmUp = WARM_UP,
): Promise<Measurement[]> {
  const times = await timesOf(kind, calls, warmUp);
  return Object.entries(figures).map(([figure, part]) => ({
    detail: `${kind.name} ${figure}`,
    unit: "ms",
    value: percentile(times, part),
  }));
}

export function percentile(sorted: readonly number[], part: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] as number;
}
