import type { LimitMethods } from "../processes/limit.ts";
import type { Bench } from "./bench.ts";
import { type ChildBench, startChild } from "./child.ts";
import { payload } from "./payload.ts";
import { type Receivers, startReceivers } from "./receivers.ts";

/** A process that sends POST requests as fast as possible. */
export interface BareLoop extends AsyncDisposable {
  /** Answers seconds. @param options.signs whether it signs each request as the service does; not unless given */
  run(options: {
    requests: number;
    concurrency: number;
    headers?: string[];
    signs?: boolean;
  }): Promise<number>;
}

/**
 * @param receivers one per host, used in turn
 * @param node the program that runs it. Defaults to this process's
 */
export function startBareLoop(
  bench: ChildBench,
  receivers: Pick<Receivers, "urls">,
  node?: string,
): BareLoop {
  const child = startChild<LimitMethods>(bench, "limit.ts", node);
  const { urls: origins } = receivers;
  return {
    run: (options) => child.call("run", { origins, body: payload(1), headers: [], signs: false, ...options }),
    [Symbol.asyncDispose]: child[Symbol.asyncDispose],
  };
}

/** Receivers that respond immediately. */
export function startFastReceivers(bench: Bench, hosts: number): Promise<Receivers> {
  return startReceivers(
    bench,
    Array.from({ length: hosts }, () => ({ status: 200 })),
  );
}

/** The service's maximum concurrency for first attempts to these receivers. */
export const SERVICE_CONCURRENCY = 160;

/** Headers of the same length as those of a delivery, without the content type. */
export const SERVICE_HEADERS = [
  ["User-Agent", "Webhook-Service/1"],
  ["Accept-Encoding", "identity"],
  ["X-Service-Webhook-Id", "019a0000-0000-7000-8000-000000000000"],
  ["X-Service-Webhook-Process", "OrderDispatched"],
  ["webhook-id", "019a0000-0000-7000-8000-000000000000"],
  ["webhook-timestamp", "1790000000"],
  ["webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="],
].flat();
