import { setTimeout as wait } from "node:timers/promises";
import { startServiceProcess } from "../../test/support/service-process.ts";

/** The service, in a process of its own. */
export interface ServiceProcess extends AsyncDisposable {
  pid: number;
  /** `http://localhost:port`: REST, Connect, gRPC-Web. */
  url: string;
  /** `http://localhost:port`: gRPC. */
  grpcUrl: string;
}

/** Its end may wait for receivers that never answer; what it holds then is not wanted any more. */
const END_MS = 3_000;

/**
 * Runs the service as `npm start` does, until it is disposed of.
 *
 * @param settings environment variables over this process's own
 * @param profiles folder for a CPU profile, written at its end
 */
export async function startService(
  settings: Record<string, string>,
  profiles?: string,
): Promise<ServiceProcess> {
  const profiling = profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profiles}`];
  const service = await startServiceProcess(settings, profiling);
  return {
    pid: service.pid,
    url: `http://localhost:${service.httpPort}`,
    grpcUrl: `http://localhost:${service.grpcPort}`,
    async [Symbol.asyncDispose]() {
      const ended = service.end("SIGTERM");
      if (await Promise.race([ended.then(() => true), wait(END_MS, false, { ref: false })])) return;
      await service.end("SIGKILL");
    },
  };
}
