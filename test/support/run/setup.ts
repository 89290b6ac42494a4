import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { TestProject } from "vitest/node";
import { failureLines } from "./failures.ts";
import { makeRunFolder, useDownloadedCli } from "./folder.ts";
import { type Parts, RunParts } from "./parts.ts";
import { statOf } from "./proc.ts";
import { countProcessorTime, processorTimeLines } from "./processor-time.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Address under which the run's process answers each part by its name. */
    partsUrl: string;
  }
}

/** Serves the run's parts to its workers, and has everything ended that the run has started, however it ends. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const endCount = countProcessorTime();
  const folder = await makeRunFolder();
  await useDownloadedCli();
  const guardianArguments = [
    fileURLToPath(new URL("guardian.ts", import.meta.url)),
    folder,
    ...npmProcesses(),
  ];
  const guardian = spawn(process.execPath, guardianArguments, {
    stdio: ["pipe", "inherit", "inherit"],
    // Ctrl-C is for the run, which ends by it, and then the guardian's input.
    detached: true,
  });
  const parts = new RunParts(folder);
  const server = createServer(async ({ url = "/" }, response) => {
    // On a slow machine, a client asks over a connection that is just being closed as idle.
    response.setHeader("connection", "close");
    try {
      response.end(JSON.stringify(await parts.find(url.slice(1) as keyof Parts)));
    } catch (error) {
      response.writeHead(500).end((error as Error).message);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  project.provide("partsUrl", `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  return async () => {
    server.close();
    server.closeAllConnections();
    const logs = await parts.logs();
    await parts.stop();
    for (const line of await failureLines(project, logs)) console.log(line);
    const seconds = endCount();
    guardian.stdin?.end();
    await once(guardian, "exit");
    if (seconds) for (const line of processorTimeLines(seconds)) console.log(line);
  };
}

/** The shell and the npm that started the run, if any. */
function npmProcesses(): string[] {
  if (process.env.npm_lifecycle_event === undefined) return [];
  const npm = statOf(process.ppid)?.parent;
  return [process.ppid, ...(npm === undefined ? [] : [npm])].map(String);
}
