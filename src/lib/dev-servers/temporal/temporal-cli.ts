import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readdirSync, statSync } from "node:fs";
import { access, constants, mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import sdk from "@temporalio/testing/package.json" with { type: "json" };
import type { Progress } from "../../process/index.ts";
import { downloadEnvironment, serverEnvironment, signalGroup } from "../process/processes.ts";

const SUFFIX = process.platform === "win32" ? ".exe" : "";
/** The name in the cache folder. An update of the SDK downloads the CLI of that version. */
export const CACHED_AS = `temporal-sdk-${sdk.version}${SUFFIX}`;
const DOWNLOADER = fileURLToPath(new URL("./temporal-sdk-download.ts", import.meta.url));
/** The interval between progress reports of a download, in milliseconds. */
const PROGRESS_INTERVAL_MS = 2_000;

/**
 * The path of a Temporal CLI that can start a server here: `temporal` on PATH; else the one in the cache folder; else
 * downloaded into it.
 *
 * @param idleMs the time without a byte after which a download is ended, in milliseconds; default 30 s
 * @throws Error with the remedies and the reason why the download failed, or if `signal` aborts
 */
export async function findTemporalCli(
  dataDir: string,
  progress: Progress,
  signal?: AbortSignal,
  idleMs = 30_000,
): Promise<string> {
  // An empty entry of PATH means the working directory, from which nothing should run unexpectedly.
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
  const onPath = folders.map((folder) => path.resolve(folder, `temporal${SUFFIX}`));
  const cached = path.join(await cacheFolder(dataDir), CACHED_AS);
  for (const program of [...onPath, cached]) if (await isUsable(program)) return program;
  try {
    progress("downloading the Temporal CLI (once)");
    await download(cached, progress, signal, idleMs);
    progress(`downloaded the Temporal CLI to ${cached}`);
    return cached;
  } catch (cause) {
    signal?.throwIfAborted();
    throw new Error(
      [
        `no Temporal server can be started: the Temporal CLI is not installed, and downloading it failed (${(cause as Error).message}). Do one of these:`,
        "  - set TEMPORAL_ADDRESS to an existing Temporal server",
        "  - install the Temporal CLI, so that `temporal` is on PATH",
        "  - make a download possible (network, proxy variables), then start again",
      ].join("\n"),
    );
  }
}

/** Downloads the CLI by a separate program into a separate folder, so that the cache never has a partial program. */
async function download(
  to: string,
  progress: Progress,
  signal: AbortSignal | undefined,
  idleMs: number,
): Promise<void> {
  const folder = await mkdtemp(path.join(path.dirname(to), ".download-"));
  const child = spawn(process.execPath, [DOWNLOADER], {
    cwd: folder,
    // A process group of its own, so that a kill includes its child processes.
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
    env: downloadEnvironment(),
  });
  const ended = once(child, "close");
  const errors = text(child.stderr);
  const isRunning = () => child.exitCode === null && child.signalCode === null;
  try {
    for (let [size, grewAt] = [0, Date.now()]; isRunning(); ) {
      await Promise.race([ended, sleep(PROGRESS_INTERVAL_MS, undefined, signal && { signal })]);
      const now = sizeOf(folder);
      progress(`downloading the Temporal CLI ... ${Math.floor(now / 1e6)} MB`);
      if (now !== size) [size, grewAt] = [now, Date.now()];
      else if (Date.now() - grewAt >= idleMs) throw new Error(`nothing received for ${idleMs / 1_000} s`);
    }
    // The SDK starts a server with a complete download, and only that may have failed.
    const [name] = globSync("temporal-*", { cwd: folder, exclude: ["*.downloading"] });
    if (name === undefined) throw new Error((await errors).trim().split("\n").at(-1));
    if (!(await isUsable(path.join(folder, name))))
      throw new Error("the downloaded program does not run on this machine");
    await rename(path.join(folder, name), to);
  } finally {
    if (isRunning()) signalGroup(child.pid as number, "SIGKILL");
    await ended;
    await rm(folder, { recursive: true, force: true });
  }
}

/** The size of all files in a folder, in bytes. */
function sizeOf(folder: string): number {
  const sizes = readdirSync(folder).map(
    (file) => statSync(path.join(folder, file), { throwIfNoEntry: false })?.size ?? 0,
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/**
 * The folder for downloads, shared by every DATA_DIR of this user: `webhook-service` below `$XDG_CACHE_HOME` or
 * `~/.cache`; DATA_DIR/cache if that is not writable. Creates the folder.
 */
async function cacheFolder(dataDir: string): Promise<string> {
  const caches = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
  const shared = path.join(caches, "webhook-service");
  try {
    await mkdir(shared, { recursive: true });
    await access(shared, constants.W_OK | constants.X_OK);
    return shared;
  } catch {
    const own = path.join(dataDir, "cache");
    await mkdir(own, { recursive: true });
    return own;
  }
}

/**
 * Whether a program is a usable Temporal CLI. Other programs are named `temporal` too (for example shims of version
 * managers), so it is executed.
 */
async function isUsable(program: string): Promise<boolean> {
  const options = { env: serverEnvironment(), timeout: 10_000 };
  return promisify(execFile)(program, ["server", "start-dev", "--help"], options).then(
    () => true,
    () => false,
  );
}
