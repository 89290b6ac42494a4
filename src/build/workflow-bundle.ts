import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { WorkflowBundle } from "@temporalio/worker";
import { fingerprintOf } from "./fingerprint.ts";

const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
/** The last bundle that was made here, with what it was made of. */
const KEPT = ".cache/workflow-bundle.json";
/** What a bundle is made of: workflows import nothing else of ours but types, and versions of packages are exact. */
const SOURCES = ["workflows/**/*.ts", "src/build/bundle-workflows.ts", "package.json", "package-lock.json"];

/** What is in `KEPT`. */
interface KeptBundle {
  fingerprint: string;
  bundle: WorkflowBundle;
}

/**
 * The workflow code as Temporal's workers load it: the last that was made here, as long as it is of the sources there are
 * now, since making one takes some seconds of every start.
 *
 * @throws Error with what the bundler printed when it fails
 */
export async function workflowBundle(): Promise<WorkflowBundle> {
  const fingerprint = await fingerprintOf(PROJECT, SOURCES);
  const kept = await readKept();
  if (kept?.fingerprint === fingerprint) return kept.bundle;
  const bundle = await bundleWorkflows();
  // A folder that cannot be written, as in an image, costs the next start its seconds and nothing else.
  await keep({ fingerprint, bundle }).catch(() => {});
  return bundle;
}

async function readKept(): Promise<KeptBundle | undefined> {
  try {
    return JSON.parse(await readFile(path.join(PROJECT, KEPT), "utf8")) as KeptBundle;
  } catch {
    return undefined;
  }
}

async function keep(kept: KeptBundle): Promise<void> {
  const file = path.join(PROJECT, KEPT);
  const fresh = `${file}.${randomUUID()}`;
  await mkdir(path.dirname(file), { recursive: true });
  try {
    // Whole or not at all, for whoever starts at the same moment.
    await writeFile(fresh, JSON.stringify(kept));
    await rename(fresh, file);
  } finally {
    await rm(fresh, { force: true });
  }
}

/**
 * Bundles the workflows, in a process of its own: a bundler and a compiler would otherwise stay in the memory of the
 * service for as long as it runs, some 40 MB.
 */
async function bundleWorkflows(): Promise<WorkflowBundle> {
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
