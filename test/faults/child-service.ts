import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";

/** A service in a process of its own, to be killed. */
export interface ChildService {
  process: ChildProcess;
  httpPort: number;
  grpcPort: number;
  /** Sends the signal and waits for the end. */
  end(signal: NodeJS.Signals): Promise<number | null>;
}

/**
 * Runs `src/main.ts` as `npm start` does, and resolves once it says that it is ready.
 *
 * @param environment settings; the rest of this process's environment goes along
 */
export async function startChildService(environment: Record<string, string>): Promise<ChildService> {
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", "src/main.ts"], {
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
  const lines = createInterface({ input: child.stdout });
  child.stderr.on("data", (chunk) => output.push(String(chunk)));
  const ready = new Promise<{ httpPort: number; grpcPort: number }>((resolve, reject) => {
    let httpPort = 0;
    lines.on("line", (line) => {
      output.push(line);
      if (process.env.TEST_LOG_LEVEL) console.log(`[${child.pid}] ${line}`);
      const http = /(?:API|health) +https?:\/\/[^:]+:(\d+)/.exec(line);
      if (http) httpPort = Number(http[1]);
      const grpc = /gRPC +localhost:(\d+)/.exec(line);
      if (grpc) resolve({ httpPort, grpcPort: Number(grpc[1]) });
      else if (http && environment.ROLE === "worker") resolve({ httpPort, grpcPort: 0 });
    });
    child.once("exit", (code) => reject(new Error(`the service ended with ${code}:\n${output.join("\n")}`)));
  });
  const ports = await ready;
  return {
    process: child,
    ...ports,
    async end(signal) {
      if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
      const exited = once(child, "exit");
      child.kill(signal);
      const [code] = await exited;
      return code as number | null;
    },
  };
}
