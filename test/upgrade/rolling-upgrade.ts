import { startReceiver } from "../../demo/receiver.ts";
import { startOwnFaultParts } from "../faults/parts.ts";
import { createPublisher, type Publisher } from "../faults/publisher.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { checkOutRelease } from "./release.ts";

/** A worker that a busy machine keeps waiting is not taken for dead. */
const PATIENT = { HEARTBEAT_TIMEOUT: "30s" };

/** What a receiver takes for an answer, so that something is in flight at each change. */
const ANSWER_MS = 20;

/** The build that a process runs. */
export type Build = "released" | "today";

export type RollingUpgrade = Awaited<ReturnType<typeof startRollingUpgrade>>;

/** Starts what an upgrade test needs: the released version, the stores, and no process of the service yet. */
export async function startRollingUpgrade() {
  const [released, parts] = await Promise.all([checkOutRelease(), startOwnFaultParts()]);
  const processes: ServiceProcess[] = [];
  return {
    parts,
    /** All processes that were started. */
    processes,
    /** Starts a process of this build, or of the released one. @param settings over the usual ones */
    async start(role: "api" | "worker", of: Build, settings: Record<string, string> = {}) {
      const environment = { ...parts.environment, ...PATIENT, ...settings, ROLE: role };
      const project = of === "released" ? [released.folder] : [];
      const service = await startServiceProcess(environment, [], ...project);
      processes.push(service);
      return service;
    },
    async end(): Promise<void> {
      await Promise.all(processes.map((service) => service.end("SIGTERM")));
      await parts.end();
      await released.remove();
    },
  };
}

/**
 * `startRollingUpgrade`, with a receiver that takes some time for its answers and a publisher with the administrator's key.
 *
 * @param grpcPort of the API that the publisher calls
 */
export async function startUpgradeWithReceiver(grpcPort: () => number) {
  const upgrade = await startRollingUpgrade();
  const receiver = await startReceiver(
    upgrade.parts.certificate,
    () => new Promise((resolve) => setTimeout(resolve, ANSWER_MS, 200)),
  );
  return { upgrade, receiver, publisher: createPublisher(grpcPort, upgrade.parts.adminKey) };
}

/** Publishes so many events and makes the change amid it. */
export async function amidLoad(
  publisher: Publisher,
  events: number,
  change: () => Promise<unknown>,
): Promise<void> {
  const before = publisher.published();
  const publishing = publisher.publish(events);
  await until(() => publisher.published() - before >= events / 3);
  await change();
  await publishing;
}
