import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** The service in a process of its own, for tests that kill it and benches that measure it. */
export interface ServiceProcess {
  process: ChildProcess;
  pid: number;
  /** REST, Connect, gRPC-Web; of a worker its health. */
  httpPort: number;
  /** 0 of a worker, which has none; with TLS, the same as `httpPort`. */
  grpcPort: number;
  /** 0 without METRICS_PORT. */
  metricsPort: number;
  /** The lines that it has printed so far. */
  printed(): string;
  /** Sends the signal and waits for the end. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The arguments that `npm start` gives to node before the file. */
export function startArguments(project = root): string[] {
  const { scripts } = JSON.parse(readFileSync(`${project}/package.json`, "utf8")) as {
    scripts: { start: string };
  };
  const found = /&& node ([^&]*)src\/main\.ts$/.exec(scripts.start);
  if (!found) throw new Error(`package.json's start script does not end with src/main.ts: ${scripts.start}`);
  return (found[1] as string).trim().split(" ");
}

/**
 * Runs `src/main.ts` as `npm start` does, on loopback and free ports, and resolves once it says that it is ready.
 *
 * @param environment settings over this process's own
 * @param nodeArguments more of them, for a profile say
 * @param project the folder of another release
 * @param node the program that runs it, and that it starts its processes with
 * @throws Error with what it printed when it ends instead
 */
export async function spawnService(
  environment: Record<string, string>,
  nodeArguments: readonly string[] = [],
  project = root,
  node = process.execPath,
): Promise<ServiceProcess> {
  const child = spawn(node, [...startArguments(project), ...nodeArguments, "src/main.ts"], {
    cwd: project,
    env: {
      ...process.env,
      HOST: "127.0.0.1",
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      LOG_LEVEL: "warn",
      ...environment,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const output: string[] = [];
  child.stderr.on("data", (chunk) => output.push(String(chunk)));
  const ports = await new Promise<{ httpPort: number; grpcPort: number; metricsPort: number }>(
    (resolve, reject) => {
      let httpPort = 0;
      let metricsPort = 0;
      createInterface({ input: child.stdout }).on("line", (line) => {
        output.push(line);
        if (process.env.TEST_LOG_LEVEL) console.log(`[${child.pid}] ${line}`);
        const metrics = /metrics +http:\/\/[^:]+:(\d+)/.exec(line);
        if (metrics) metricsPort = Number(metrics[1]);
        const http = /(?:API|health) +https?:\/\/[^:]+:(\d+)/.exec(line);
        if (http) httpPort = Number(http[1]);
        const grpc = /gRPC +[^:]+:(\d+)/.exec(line);
        if (grpc) resolve({ httpPort, grpcPort: Number(grpc[1]), metricsPort });
        else if (http && environment.ROLE === "worker") resolve({ httpPort, grpcPort: 0, metricsPort });
        else if (http && environment.TLS_CERT) resolve({ httpPort, grpcPort: httpPort, metricsPort });
      });
      child.once("error", reject);
      child.once("exit", (code) =>
        reject(new Error(`the service ended with ${code}:\n${output.join("\n")}`)),
      );
    },
  );
  return {
    process: child,
    pid: child.pid as number,
    ...ports,
    printed: () => output.join("\n"),
    async end(signal) {
      if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
      const exited = once(child, "exit");
      child.kill(signal);
      const [code] = await exited;
      return code as number | null;
    },
  };
}
