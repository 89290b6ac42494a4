import { setTimeout as wait } from "node:timers/promises";
import { spawnService } from "../../test/support/spawned-service.ts";

/** The service in a child process. */
export interface ServiceProcess extends AsyncDisposable {
  pid: number;
  /** `http://localhost:port`: REST, Connect, gRPC-Web. */
  url: string;
  /** `http://localhost:port`: gRPC. */
  grpcUrl: string;
  /** 0 without METRICS_PORT. */
  metricsPort: number;
}

/** The time to stop, in milliseconds, before the process is killed: it may wait for receivers that never respond. */
const STOP_TIMEOUT_MS = 3_000;

/**
 * Runs the service as `npm start` does until disposed.
 *
 * @param settings environment variables that override those of this process
 * @param profiles the folder for a CPU profile, written at the end
 */
export async function startService(
  settings: Record<string, string>,
  profiles?: string,
): Promise<ServiceProcess> {
  const profiling = profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profiles}`];
  const service = await spawnService(settings, profiling);
  return {
    pid: service.pid,
    url: `http://localhost:${service.httpPort}`,
    grpcUrl: `http://localhost:${service.grpcPort}`,
    metricsPort: service.metricsPort,
    async [Symbol.asyncDispose]() {
      const ended = service.end("SIGTERM");
      if (await Promise.race([ended.then(() => true), wait(STOP_TIMEOUT_MS, false, { ref: false })])) return;
      await service.end("SIGKILL");
    },
  };
}
