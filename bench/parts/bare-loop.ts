import type { LimitMethods } from "../processes/limit.ts";
import type { Bench } from "./bench.ts";
import { startChild } from "./child.ts";
import { payload } from "./payload.ts";
import { startReceivers } from "./receivers.ts";

/** A process that POSTs as fast as it can, to receivers that answer at once. */
export interface BareLoop extends AsyncDisposable {
  /** Answers seconds. */
  run(options: { requests: number; concurrency: number; headers?: string[] }): Promise<number>;
}

/** @param hosts receivers, each of which is a host; they are served in turn */
export async function startBareLoop(bench: Bench, hosts: number): Promise<BareLoop> {
  await using parts = new AsyncDisposableStack();
  const receivers = parts.use(
    await startReceivers(
      bench,
      Array.from({ length: hosts }, () => ({ status: 200 })),
    ),
  );
  const child = parts.use(startChild<LimitMethods>(bench, "limit.ts"));
  const kept = parts.move();
  const { urls: origins } = receivers;
  return {
    run: (options) => child.call("run", { origins, body: payload(1), headers: [], ...options }),
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
}

/** As many as the service has in flight to first attempts' receivers, at most. */
export const SERVICE_CONCURRENCY = 160;

/** As long as the headers of a delivery, beside its content type. */
export const SERVICE_HEADERS = [
  ["User-Agent", "Webhook-Service/1"],
  ["Accept-Encoding", "identity"],
  ["X-Service-Webhook-Id", "019a0000-0000-7000-8000-000000000000"],
  ["X-Service-Webhook-Process", "OrderDispatched"],
  ["webhook-id", "019a0000-0000-7000-8000-000000000000"],
  ["webhook-timestamp", "1790000000"],
  ["webhook-signature", "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="],
].flat();
