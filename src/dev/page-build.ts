import { spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { glob, mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { serverEnvironment } from "./child-environment.ts";
import type { Progress } from "./progress.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** Where the settings page is served from. */
const BUILT = path.join(root, "web/dist");
/** Tells which sources BUILT was built from. */
const STAMP = path.join(BUILT, ".built-from");
/** What the page is built from: its own sources, the contract, what is common to all, and the versions of its packages. */
const SOURCES = [
  "web/*.*",
  "web/{src,public}/**/*.*",
  "gen/**/*.ts",
  "src/page-paths.ts",
  "package-lock.json",
];

/**
 * The folder of the built settings page; builds it first where it is not built, or from other sources than there are
 * now. An image holds no sources: what was built into it is served.
 *
 * @returns undefined when it cannot be built; progress is told why, and what to do
 */
export async function findSettingsPage(progress: Progress): Promise<string | undefined> {
  const built = existsSync(path.join(BUILT, "index.html"));
  if (!existsSync(path.join(root, "web/src"))) {
    if (!built) progress("there is no settings page: this installation has neither web/dist nor web/src");
    return built ? BUILT : undefined;
  }
  const fingerprint = await fingerprintOfSources();
  if (built && (await readFile(STAMP, "utf8").catch(() => "")) === fingerprint) return BUILT;
  progress(`building the settings page${built ? ", whose sources have changed" : ""}; this takes some 15 s`);
  try {
    await build(fingerprint);
    return BUILT;
  } catch (error) {
    progress(`the settings page could not be built: ${(error as Error).message}`);
    progress("the API runs without it; `npm run build:web` tells more. After `npm install` start again");
    return undefined;
  }
}

/** @throws Error with what the build printed last */
async function build(fingerprint: string): Promise<void> {
  // Beside what is served now, so that a service that runs already never serves half of it.
  const fresh = path.join(root, ".cache", `web-${randomUUID()}`);
  try {
    await runVite(fresh);
    await writeFile(path.join(fresh, path.basename(STAMP)), fingerprint);
    await mkdir(path.dirname(BUILT), { recursive: true });
    await rm(BUILT, { recursive: true, force: true });
    await rename(fresh, BUILT).catch(async (error: unknown) => {
      // Another process that starts at the same moment was quicker.
      if ((await readFile(STAMP, "utf8").catch(() => "")) !== fingerprint) throw error;
    });
  } finally {
    await rm(fresh, { recursive: true, force: true });
  }
}

async function runVite(outDir: string): Promise<void> {
  const manifest = createRequire(import.meta.url).resolve("vite/package.json");
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

async function fingerprintOfSources(): Promise<string> {
  const files: string[] = [];
  for await (const file of glob(SOURCES, { cwd: root })) files.push(file);
  const hash = createHash("sha256");
  for (const file of files.sort()) {
    hash.update(`${file}\0`).update(await readFile(path.join(root, file)));
  }
  return hash.digest("hex");
}

/** `npm run build:web`: builds it in any case. */
async function main(): Promise<void> {
  console.log("building the settings page");
  await build(await fingerprintOfSources());
  console.log(`built into ${path.relative(process.cwd(), BUILT) || "."}; the service serves it from now on`);
}

if (import.meta.main) {
  main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
  });
}
