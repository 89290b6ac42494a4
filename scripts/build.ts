/**
 * Builds the admin UI and the workflows' bundle. `npm start` runs this first. Targets whose sources have not changed
 * are skipped.
 */

import { spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { glob, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const PROJECT = fileURLToPath(new URL("..", import.meta.url));
/** A file in each built folder that contains the hash of its sources. */
const STAMP = ".built-from";

/** A build target. */
interface Target {
  /** The displayed name, such as `the settings page`. */
  name: string;
  /** The approximate duration, in seconds. */
  seconds: number;
  /** The output folder, relative to the project. */
  folder: string;
  /** Globs of all sources, including packages, whose versions are exact. */
  sources: readonly string[];
  /** Builds into a folder that does not exist yet. */
  build(root: string, into: string): Promise<void>;
}

const PAGE: Target = {
  name: "the settings page",
  seconds: 10,
  folder: "web/dist",
  sources: [
    "web/*.*",
    "web/src/**/*.*",
    "gen/**/*.ts",
    "src/contract/**/*.ts",
    "src/api/listeners/swagger-ui.ts",
    "package-lock.json",
  ],
  build: runVite,
};

const WORKFLOWS: Target = {
  name: "the workflows",
  seconds: 3,
  folder: "workflows/dist",
  sources: ["workflows/**/*.ts", "package-lock.json"],
  build: bundleWorkflows,
};

/**
 * Builds the targets whose sources have changed.
 *
 * @param tell receives progress messages, one line each
 * @param root the project folder
 * @throws Error with the output of the bundler
 */
export async function build(
  tell: (line: string) => void,
  targets: readonly Target[] = [WORKFLOWS, PAGE],
  root = PROJECT,
): Promise<void> {
  for (const target of targets) await buildOne(target, tell, root);
}

export const TARGETS = { PAGE, WORKFLOWS };

async function buildOne(target: Target, tell: (line: string) => void, root: string): Promise<void> {
  const folder = path.join(root, target.folder);
  const wanted = await hashOf(root, target.sources);
  const found = await stampOf(folder);
  if (found === wanted) return;
  const why = found === undefined ? "" : ", whose sources have changed";
  tell(`building ${target.name}${why}; this takes some ${target.seconds} s`);
  // Into a new folder, so that a running service never reads a partial build.
  const fresh = path.join(root, ".cache", `build-${randomUUID()}`);
  try {
    await target.build(root, fresh);
    await writeFile(path.join(fresh, STAMP), wanted);
    await moveTo(folder, fresh, wanted);
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

/** The maximum number of times that a folder is moved to its place while others take it. */
const MAX_MOVES = 10;

/**
 * Moves a built folder to its place. Moves the earlier one away before, instead of removing it there: while its files are
 * removed, a concurrent build may put its own folder in the same place.
 */
async function moveTo(folder: string, fresh: string, wanted: string): Promise<void> {
  for (let move = 1; ; move += 1) {
    const earlier = `${fresh}-earlier-${move}`;
    await rename(folder, earlier).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
    });
    try {
      await rename(fresh, folder);
      return;
    } catch (error) {
      // A concurrent build was faster.
      if ((await stampOf(folder)) === wanted) return;
      if (move === MAX_MOVES) throw error;
    } finally {
      await rm(earlier, { recursive: true, force: true });
    }
  }
}

/** A hash of names and contents. Modification times are not used, because checkouts and copies change them. */
async function hashOf(root: string, patterns: readonly string[]): Promise<string> {
  const files: string[] = [];
  for await (const file of glob(patterns, { cwd: root })) files.push(file);
  const hash = createHash("sha256");
  for (const file of files.sort()) hash.update(`${file}\0`).update(await readFile(path.join(root, file)));
  return hash.digest("hex");
}

function stampOf(folder: string): Promise<string | undefined> {
  return readFile(path.join(folder, STAMP), "utf8").catch(() => undefined);
}

async function runVite(root: string, into: string): Promise<void> {
  const manifest = createRequire(path.join(root, "package.json")).resolve("vite/package.json");
  const vite = path.join(path.dirname(manifest), "bin/vite.js");
  const child = spawn(process.execPath, [vite, "build", "web", "--outDir", into, "--logLevel", "warn"], {
    cwd: root,
    env: { ...process.env, NODE_ENV: "production", NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
    });
  }
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(printed.trim() || `vite ended with ${code}`);
}

async function bundleWorkflows(root: string, into: string): Promise<void> {
  // Loaded on demand, because loading the bundler takes half a second.
  const { bundleWorkflowCode, DefaultLogger } = await import("@temporalio/worker");
  const { code } = await bundleWorkflowCode({
    workflowsPath: path.join(root, "workflows/index.ts"),
    logger: new DefaultLogger("WARN"),
  });
  await mkdir(into, { recursive: true });
  await writeFile(path.join(into, "index.js"), code);
}

if (import.meta.main) {
  build((line) => console.log(line)).catch((error: unknown) => {
    console.error(`The build failed: ${error instanceof Error ? error.message : error}`);
    process.exitCode = 1;
  });
}
