import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Progress } from "../../process/index.ts";
import { downloadEnvironment } from "../process/child-environment.ts";

/** The polling interval, in milliseconds. */
const POLL_INTERVAL_MS = 200;
/** The interval between progress reports, in milliseconds. */
const PROGRESS_INTERVAL_MS = 2_000;

/**
 * Runs a program that downloads the Temporal CLI into `folder`, its working directory, and reports the progress every
 * 2 s.
 *
 * @param options.idleMs the idle timeout, in milliseconds
 * @throws Error if the program does not run, fails, or receives nothing for `idleMs`, or if `signal` aborts. It is
 *   killed then, with its child processes
 */
export async function runDownload(
  [file = "", ...args]: readonly string[],
  folder: string,
  { idleMs, progress, signal }: { idleMs: number; progress: Progress; signal?: AbortSignal | undefined },
): Promise<void> {
  const child = spawn(file, args, {
    cwd: folder,
    // A separate process group, so that a kill includes its child processes.
    detached: process.platform !== "win32",
    windowsHide: true,
    stdio: ["ignore", "ignore", "pipe"],
    // pip downloads into TMPDIR first. The other two override settings of the user that exclude --target.
    env: downloadEnvironment({ TMPDIR: folder, PIP_REQUIRE_VIRTUALENV: "false", PIP_USER: "false" }),
  });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => {
    errors += chunk;
  });
  const ended = once(child, "close") as Promise<[number | null]>;
  let end: [number | null] | undefined;
  let [size, grewAt, reportedAt] = [0, Date.now(), Date.now()];
  try {
    while (!end) {
      end = await Promise.race([ended, sleep(POLL_INTERVAL_MS, undefined, signal && { signal })]);
      const now = sizeOf(folder);
      if (now !== size) [size, grewAt] = [now, Date.now()];
      if (!end && Date.now() - grewAt >= idleMs) throw new Error(`nothing received for ${idleMs / 1_000} s`);
      if (Date.now() - reportedAt < PROGRESS_INTERVAL_MS) continue;
      reportedAt = Date.now();
      progress(`downloading the Temporal CLI ... ${Math.floor(size / 1e6)} MB`);
    }
  } catch (error) {
    try {
      if (child.pid) process.kill(-child.pid, "SIGKILL");
    } catch {
      child.kill("SIGKILL"); // Windows has no process groups.
    }
    await ended.catch(() => {});
    throw error;
  }
  if (end[0] !== 0) throw new Error(reasonIn(errors) || `ended with ${end[0] ?? "a signal"}`);
}

/** The size of all files in a folder, in bytes. */
function sizeOf(folder: string): number {
  try {
    const files = readdirSync(folder, { recursive: true, encoding: "utf8" });
    const sizes = files.map(
      (file) => statSync(path.join(folder, file), { throwIfNoEntry: false })?.size ?? 0,
    );
    return sizes.reduce((sum, size) => sum + size, 0);
  } catch {
    return 0; // A subfolder was removed meanwhile.
  }
}

/** The first line that pip marks as an error, else the last line. */
function reasonIn(errors: string): string {
  const lines = errors.trim().split("\n");
  return (lines.find((line) => line.startsWith("ERROR: ")) ?? lines.at(-1) ?? "").replace("ERROR: ", "");
}
