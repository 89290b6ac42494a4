import { createConnection, type Socket } from "node:net";
import { startChild } from "../parts/child.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { DeafMethods } from "../processes/deaf.ts";
import type { Behaviour } from "../processes/receivers.ts";
import type { ColdBench } from "./cold-bench.ts";

/** A behaviour, or `drops`: packets to the receiver are dropped. */
export type ColdBehaviour = Behaviour | "drops";

/** The time after which a connection counts as dropped, in milliseconds. */
const DROPPED_MS = 500;
/** The queue of connections has room for fewer. */
const MAX_QUEUED = 10;

/** Starts a receiver for each behaviour, on the bench's addresses and one port. Those that drop packets are the last. */
export async function startColdReceivers(
  bench: ColdBench,
  behaviours: readonly ColdBehaviour[],
): Promise<Receivers> {
  await using stack = new AsyncDisposableStack();
  const others = behaviours.map((behaviour) => (behaviour === "drops" ? "absent" : behaviour));
  const receivers = stack.use(await startReceivers(bench, others, bench.hosts));
  const dropping = receivers.urls.filter((_, n) => behaviours[n] === "drops").map((url) => new URL(url));
  if (dropping.length > 0) {
    const child = stack.use(startChild<DeafMethods>(bench, "deaf.ts"));
    const [port, addresses] = [Number(dropping[0]?.port), dropping.map(({ hostname }) => hostname)];
    await child.call("listen", { addresses, port });
    // This call never returns.
    child.call("block", null).catch(() => {});
    const sockets: Socket[] = [];
    stack.defer(() => {
      for (const socket of sockets) socket.destroy();
    });
    await Promise.all(addresses.map((address) => fillQueue(address, port, sockets)));
  }
  const owned = stack.move();
  return { ...receivers, [Symbol.asyncDispose]: () => owned.disposeAsync() };
}

/** Opens connections until one is dropped. @throws Error if none is */
async function fillQueue(host: string, port: number, sockets: Socket[]): Promise<void> {
  for (let n = 0; n < MAX_QUEUED; n += 1) {
    const socket = createConnection({ host, port });
    sockets.push(socket);
    const isOpen = await new Promise<boolean>((resolve, reject) => {
      socket.once("connect", () => resolve(true)).on("error", reject);
      setTimeout(resolve, DROPPED_MS, false);
    });
    if (!isOpen) return;
  }
  throw new Error(`packets to ${host} are not dropped: this system accepts connections beyond the queue`);
}
