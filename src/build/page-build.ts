import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { serverEnvironment } from "../embedded/process/child-environment.ts";
import type { Progress } from "../process/progress.ts";
import { fingerprintOf } from "./fingerprint.ts";

const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
/** Where the page is built into. */
const BUILT = "web/dist";
/** A file there, which tells what sources it was built from. */
const STAMP = ".built-from";
/** What the page is built from: its own sources, the contract, what is common to all, and its packages' versions. */
const SOURCES = ["web/*.*", "web/src/**/*.*", "gen/**/*.ts", "src/*.ts", "package-lock.json"];

/**
 * The folder of the built settings page; builds it first where it is not built, or from other sources than there are
 * now. An image holds no sources: what was built into it is served.
 *
 * @param root of the project
 * @returns undefined when it cannot be built; progress is told why, and what to do
 */
export async function findSettingsPage(progress: Progress, root = PROJECT): Promise<string | undefined> {
  const folder = path.join(root, BUILT);
  const built = existsSync(path.join(folder, "index.html"));
  if (!existsSync(path.join(root, "web/src"))) {
    if (built) return folder;
    progress(`there is no settings page: this installation has neither ${BUILT} nor web/src`);
    return undefined;
  }
  try {
    const fingerprint = await fingerprintOf(root, SOURCES);
    if (built && (await stampOf(folder)) === fingerprint) return folder;
    progress(
      `building the settings page${built ? ", whose sources have changed" : ""}; this takes some 10 s`,
    );
    await build(root, fingerprint);
    return folder;
  } catch (error) {
    progress(`the settings page could not be built: ${(error as Error).message}`);
    progress("the API runs without it; mend that, run `npm run build:web`, and start again");
    return undefined;
  }
}

/**
 * Builds the settings page into web/dist, whatever is there.
 *
 * @throws Error with what the build printed
 */
export async function buildSettingsPage(root = PROJECT): Promise<void> {
  await build(root, await fingerprintOf(root, SOURCES));
}

async function build(root: string, fingerprint: string): Promise<void> {
  const folder = path.join(root, BUILT);
  // Beside what is served now, so that a service that runs already never serves half of it.
  const fresh = path.join(root, ".cache", `web-${randomUUID()}`);
  try {
    await runVite(root, fresh);
    await writeFile(path.join(fresh, STAMP), fingerprint);
    await rm(folder, { recursive: true, force: true });
    await rename(fresh, folder).catch(async (error: unknown) => {
      // Another process that starts at the same moment was quicker.
      if ((await stampOf(folder)) !== fingerprint) throw error;
    });
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

async function runVite(root: string, outDir: string): Promise<void> {
  const manifest = createRequire(path.join(root, "package.json")).resolve("vite/package.json");
  const vite = path.join(path.dirname(manifest), "bin/vite.js");
  const child = spawn(process.execPath, [vite, "build", "web", "--outDir", outDir, "--logLevel", "warn"], {
    cwd: root,
    env: { ...serverEnvironment(), NODE_ENV: "production", NO_COLOR: "1" },
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

async function stampOf(folder: string): Promise<string | undefined> {
  return readFile(path.join(folder, STAMP), "utf8").catch(() => undefined);
}

/** `npm run build:web`. */
async function main(): Promise<void> {
  console.log("building the settings page");
  await buildSettingsPage();
  console.log(`built into ${BUILT}; a service that runs here serves it from now on`);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
