import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";

/** The service, in a process of its own. */
export interface ServiceProcess extends AsyncDisposable {
  pid: number;
  /** `http://localhost:port`: REST, Connect, gRPC-Web. */
  url: string;
  /** `http://localhost:port`: gRPC. */
  grpcUrl: string;
}

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Its end may wait for receivers that never answer; what it holds then is not wanted any more. */
const END_MS = 3_000;

/**
 * Runs `src/main.ts` as `npm start` does, and resolves once it says that it is ready.
 *
 * @param settings environment variables over this process's own
 * @param profiles folder for a CPU profile, written at its end
 * @throws Error with what it printed when it ends instead
 */
export async function startService(
  settings: Record<string, string>,
  profiles?: string,
): Promise<ServiceProcess> {
  const profiling = profiles === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profiles}`];
  const child = spawn(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", ...profiling, "src/main.ts"],
    {
      cwd: root,
      env: {
        ...process.env,
        HOST: "127.0.0.1",
        HTTP_PORT: "0",
        GRPC_PORT: "0",
        LOG_LEVEL: "warn",
        ...settings,
      },
      stdio: ["ignore", "pipe", "pipe"],
    },
  );
  const output: string[] = [];
  child.stderr.on("data", (chunk) => output.push(String(chunk)));
  const ports = await new Promise<{ http: string; grpc: string }>((resolve, reject) => {
    let http = "";
    createInterface({ input: child.stdout }).on("line", (line) => {
      output.push(line);
      http = /API +https?:\/\/[^:]+:(\d+)/.exec(line)?.[1] ?? http;
      const grpc = /gRPC +localhost:(\d+)/.exec(line)?.[1];
      if (grpc !== undefined) resolve({ http, grpc });
    });
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`the service ended with ${code}:\n${output.join("\n")}`)));
  });
  return {
    pid: child.pid as number,
    url: `http://localhost:${ports.http}`,
    grpcUrl: `http://localhost:${ports.grpc}`,
    async [Symbol.asyncDispose]() {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      const ended = await Promise.race([exited.then(() => true), wait(END_MS, false, { ref: false })]);
      if (ended) return;
      child.kill("SIGKILL");
      await exited;
    },
  };
}
