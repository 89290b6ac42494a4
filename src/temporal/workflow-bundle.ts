import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { WorkflowBundle } from "@temporalio/worker";

/**
 * The workflow code as Temporal's workers load it, bundled by a process of its own: a bundler and a compiler would
 * otherwise stay in the memory of the service for as long as it runs, some 40 MB.
 *
 * @throws Error with what the bundler printed when it fails
 */
export async function bundleWorkflows(): Promise<WorkflowBundle> {
  const child = fork(fileURLToPath(new URL("bundle-workflows.ts", import.meta.url)), {
    execArgv: ["--disable-warning=ExperimentalWarning"],
    // It needs none of our settings, least of all the secrets among them.
    env: { PATH: process.env.PATH ?? "" },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (chunk) => output.push(String(chunk)));
  let bundle: WorkflowBundle | undefined;
  child.once("message", (message) => {
    bundle = message as WorkflowBundle;
  });
  const [code] = await once(child, "exit");
  if (!bundle) throw new Error(`the workflows could not be bundled (exit code ${code}):\n${output.join("")}`);
  return bundle;
}
