import { startChild } from "../parts/child.ts";
import { payload } from "../parts/payload.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import type { LimitMethods } from "../processes/limit.ts";

/** As many as the service has in flight to one host, at most. */
const CONCURRENCY = 160;
/** As long as the headers of a delivery, beside its content type. */
const HEADERS = [
  ["User-Agent", "Webhook-Service/1"],
  ["Accept-Encoding", "identity"],
  ["X-Service-Webhook-Id", "019a0000-0000-7000-8000-000000000000"],
  ["X-Service-Webhook-Process", "OrderDispatched"],
  ["webhook-id", "019a0000-0000-7000-8000-000000000000"],
  ["webhook-timestamp", "1790000000"],
  ["webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="],
].flat();
const WARM_UP = 4_000;

/** What the bare loop does with requests like the service's, over as many connections. */
export const limitAlike: Scenario = {
  name: "limit-alike",
  what: "the bare loop with the service's headers and 160 connections",
  count: { full: 100_000, small: 40_000 },
  targets: {},
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using child = startChild<LimitMethods>(bench, "limit.ts");
    const origin = receivers.urls[0] as string;
    const loop = { origin, body: payload(1), headers: HEADERS, concurrency: CONCURRENCY };
    await child.call("run", { ...loop, requests: Math.min(WARM_UP, count) });
    const seconds = await child.call("run", { ...loop, requests: count });
    return [{ detail: "", unit: "POSTs/s", value: count / seconds }];
  },
};
