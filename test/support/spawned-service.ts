import { readFileSync } from "node:fs";
import { type Program, ROOT, startProgram } from "./program.ts";

/** The service in a process of its own, for tests that kill it and benches that measure it. */
export interface ServiceProcess extends Program {
  /** REST, Connect, gRPC-Web; of a worker its health. */
  httpPort: number;
  /** 0 of a worker, which has none; with TLS, the same as `httpPort`. */
  grpcPort: number;
  /** 0 without METRICS_PORT. */
  metricsPort: number;
}

/** The arguments that `npm start` gives to node before the file. */
export function startArguments(project = ROOT): string[] {
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
  project = ROOT,
  node = process.execPath,
): Promise<ServiceProcess> {
  const command = [node, ...startArguments(project), ...nodeArguments, "src/main.ts"];
  const defaults = { HOST: "127.0.0.1", HTTP_PORT: "0", GRPC_PORT: "0", LOG_LEVEL: "warn" };
  const program = startProgram(command, { cwd: project, environment: { ...defaults, ...environment } });
  const last = environment.ROLE === "worker" ? "health" : environment.TLS_CERT ? "API" : "gRPC";
  await program.until(new RegExp(`^ +${last} +\\S+:\\d`, "m"));
  const portOf = (name: string) =>
    Number(new RegExp(`^ +${name} +(?:https?://)?[^:]+:(\\d+)`, "m").exec(program.printed())?.[1] ?? 0);
  const httpPort = portOf("(?:API|health)");
  return {
    ...program,
    httpPort,
    grpcPort: environment.TLS_CERT ? httpPort : portOf("gRPC"),
    metricsPort: portOf("metrics"),
  };
}
