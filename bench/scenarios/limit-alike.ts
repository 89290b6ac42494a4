import {
  SERVICE_CONCURRENCY,
  SERVICE_HEADERS,
  startBareLoop,
  startFastReceivers,
} from "../parts/bare-loop.ts";
import { HOSTS } from "../parts/fan-out.ts";
import type { Scenario } from "../parts/scenario.ts";

const WARM_UP = 4_000;

/** The rate of the bare loop with requests like the service's and the concurrency of `drain`, to one host. */
export const limitAlike = likeTheService(
  "limit-alike",
  "the bare loop with the service's headers and 160 connections",
  1,
);

/** The same to a hundred hosts in turn, as in `fanout`. */
export const limitSpread = likeTheService(
  "limit-spread",
  `the bare loop with the service's headers, 160 at once, to ${HOSTS} hosts in turn`,
  HOSTS,
);

function likeTheService(name: string, what: string, hosts: number): Scenario {
  return {
    name,
    what,
    count: { full: 100_000, small: 40_000 },
    targets: {},
    comparisons: [],
    async measure(bench, count) {
      await using receivers = await startFastReceivers(bench, hosts);
      await using loop = startBareLoop(bench, receivers);
      const alike = { concurrency: SERVICE_CONCURRENCY, headers: SERVICE_HEADERS };
      await loop.run({ ...alike, requests: Math.min(WARM_UP, count) });
      const seconds = await loop.run({ ...alike, requests: count });
      return [{ detail: "", unit: "POSTs/s", value: count / seconds }];
    },
  };
}
