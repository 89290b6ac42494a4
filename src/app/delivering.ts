import type { Meter } from "@opentelemetry/api";
import { type Config, deliversInItself } from "../config/index.ts";
import { createDeliveryInstruments } from "../metrics/index.ts";
import type { Delivery } from "./delivery.ts";
import { type DeliveryProcesses, deliveryEnvironment, startDeliveryProcesses } from "./delivery-processes.ts";

/**
 * The time after the attempt timeout at which a delivery process is killed, in milliseconds. It stops by itself about
 * 20 s after the longest attempt.
 */
const STOP_MARGIN_MS = 30_000;

type InProcess = Parameters<typeof import("./delivery.ts")["startDelivery"]>[0];

/**
 * Starts to deliver: in this process, or in child processes.
 *
 * @param parts what the engine of this process uses
 * @param children what child processes get
 */
export async function deliver(
  config: Config,
  parts: Omit<InProcess, "delivery" | "dispatch" | "instruments" | "reservedFiles"> & { meter: Meter },
  children: { environment: NodeJS.ProcessEnv } & Parameters<typeof deliveryEnvironment>[1],
): Promise<Delivery & Partial<Pick<DeliveryProcesses, "snapshots">>> {
  const { delivery, dispatch, limits, role } = config;
  if (deliversInItself(config)) {
    // Loaded on demand: Temporal's native code takes about 40 MiB.
    const { startDelivery } = await import("./delivery.ts");
    const reservedFiles = role === "all" ? limits.maxConnections : 0;
    // Not in a process that only starts others: its metrics of deliveries would always be 0.
    const instruments = createDeliveryInstruments(parts.meter);
    return startDelivery({ ...parts, delivery, dispatch, instruments, reservedFiles });
  }
  const { environment, ...given } = children;
  return startDeliveryProcesses({
    count: delivery.processes,
    environment: deliveryEnvironment(environment, given),
    stopMs: delivery.timeoutMs + STOP_MARGIN_MS,
    stopping: parts.stopping,
    log: parts.log,
  });
}
