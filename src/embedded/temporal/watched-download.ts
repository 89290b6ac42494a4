import { spawn } from "node:child_process";
import type { Dirent } from "node:fs";
import { readdir, stat } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Progress } from "../../process/progress.ts";
import { downloadEnvironment } from "../process/child-environment.ts";

/** A program that downloads into a folder. */
export interface Download {
  /** The name of the download, for messages. */
  label: string;
  file: string;
  args: readonly string[];
  env?: Record<string, string>;
  /** The folder whose growth shows the progress. */
  folder: string;
  /** The idle timeout, in milliseconds. */
  idleMs: number;
  progress: Progress;
}

/** The polling interval, in milliseconds. */
const POLL_INTERVAL_MS = 200;
/** The interval between progress reports, in milliseconds. */
const PROGRESS_INTERVAL_MS = 2_000;
/** The maximum length of the kept output, in characters. */
const MAX_OUTPUT_CHARACTERS = 4_000;

/**
 * Runs a downloader until it ends, and reports its progress every 2 s.
 *
 * @returns its standard output
 * @throws Error if it does not run, fails, or receives nothing for `idleMs`; then it is killed with its child
 *   processes
 */
export async function runDownload(download: Download): Promise<string> {
  const { label, folder, progress } = download;
  const child = spawn(download.file, download.args, {
    cwd: folder,
    // A separate process group, so that a kill includes its child processes.
    detached: process.platform !== "win32",
    windowsHide: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: downloadEnvironment(download.env),
  });
  let output = "";
  let errors = "";
  child.stdout.on("data", (chunk: Buffer) => (output = (output + chunk).slice(-MAX_OUTPUT_CHARACTERS)));
  child.stderr.on("data", (chunk: Buffer) => (errors = (errors + chunk).slice(-MAX_OUTPUT_CHARACTERS)));
  let ended = false;
  const end = new Promise<number | null>((resolve, reject) =>
    child.once("error", reject).once("close", resolve),
  );
  const done = end.finally(() => {
    ended = true;
  });
  done.catch(() => {}); // Awaited below, but may reject before.

  let size = 0;
  let grewAt = Date.now();
  let toldAt = Date.now();
  while (!ended) {
    await Promise.race([done.catch(() => {}), sleep(POLL_INTERVAL_MS)]);
    const now = await sizeOf(folder);
    if (now !== size) [size, grewAt] = [now, Date.now()];
    if (Date.now() - toldAt >= PROGRESS_INTERVAL_MS) {
      toldAt = Date.now();
      progress(`downloading ${label} ... ${Math.floor(size / 1e6)} MB`);
    }
    if (!ended && Date.now() - grewAt >= download.idleMs) {
      killGroup(child.pid);
      throw new Error(`nothing received for ${download.idleMs / 1000} s`);
    }
  }
  const code = await done;
  if (code !== 0) throw new Error(lastLine(errors) || lastLine(output) || `ended with ${code ?? "a signal"}`);
  return output;
}

function killGroup(pid: number | undefined): void {
  if (pid === undefined) return;
  try {
    process.kill(process.platform === "win32" ? pid : -pid, "SIGKILL");
  } catch {
    // It has just ended.
  }
}

async function sizeOf(folder: string): Promise<number> {
  const entries: Dirent[] = await readdir(folder, { withFileTypes: true, recursive: true }).catch(() => []);
  const sizes = entries.map(async (entry) =>
    entry.isFile()
      ? stat(path.join(entry.parentPath, entry.name)).then(
          ({ size }) => size,
          () => 0,
        )
      : 0,
  );
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

function lastLine(text: string): string {
  return text.trim().split("\n").at(-1)?.trim() ?? "";
}
