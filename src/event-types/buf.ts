import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

/** The time that a command of buf may take, in milliseconds, unless it is given. */
const BUF_TIMEOUT_MS = 10_000;
/** The memory that buf's garbage collector aims at. */
const MEMORY = "256MiB";
const MAX_OUTPUT_BYTES = 32 * 1_024 * 1_024;
/** The exit status of buf if it found something in the files. */
const FOUND = 100;

/** What buf says before what is wrong with a descriptor. */
const PREFIX =
  /^Failure: (?:(?:could not reparse image|input image): )?(?:proto: )?(?:[\w.]+: unable to resolve extension \d+: )?/;

/** A line of buf's output: what is wrong with a file. */
export interface Finding {
  path?: string;
  start_line?: number;
  /** The name of the rule. */
  type?: string;
  message: string;
}

/** The path of buf's program, which the npm package brings: never that of another version in PATH. */
function program(): string {
  const arch = process.platform === "linux" && process.arch === "arm64" ? "aarch64" : process.arch;
  const name = `@bufbuild/buf-${process.platform}-${arch}`;
  try {
    const buf = createRequire(import.meta.url).resolve("@bufbuild/buf/package.json");
    return createRequire(buf).resolve(`${name}/bin/buf${process.platform === "win32" ? ".exe" : ""}`);
  } catch (error) {
    throw new Error(`buf is not installed: npm install its optional package ${name}`, { cause: error });
  }
}

/** Runs something with a folder that only this user can read, and that is removed at the end. */
export async function inPrivateFolder<Result>(run: (folder: string) => Promise<Result>): Promise<Result> {
  // Created with the permissions 0700.
  const folder = await mkdtemp(path.join(os.tmpdir(), "event-types-"));
  try {
    return await run(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Runs a command of buf that checks files.
 *
 * @param folder its current folder, which also takes its temporary files
 * @param timeout in milliseconds
 * @returns what it found, or why it failed; empty if nothing is wrong
 * @throws Error if buf is missing, or the signal is aborted
 */
export function runBuf(
  args: readonly string[],
  folder: string,
  signal?: AbortSignal,
  timeout = BUF_TIMEOUT_MS,
): Promise<Finding[]> {
  const options = {
    cwd: folder,
    // Nothing of the service's environment, which has secrets and may have settings of buf.
    env: { HOME: folder, TMPDIR: folder, TEMP: folder, BUF_CACHE_DIR: folder, GOMEMLIMIT: MEMORY },
    timeout,
    killSignal: "SIGKILL" as const,
    maxBuffer: MAX_OUTPUT_BYTES,
    ...(signal ? { signal } : {}),
  };
  return new Promise((resolve, reject) => {
    execFile(program(), [...args, "--error-format=json"], options, (error, stdout, stderr) => {
      if (!error) resolve([]);
      else if (error.code === FOUND) resolve((stdout || stderr).trim().split("\n").map(findingOf));
      else if (signal?.aborted) reject(signal.reason);
      else if (error.killed) resolve([{ message: `buf took longer than ${timeout / 1_000} s` }]);
      else resolve([{ message: stderr.replace(PREFIX, "").trim() || error.message }]);
    });
  });
}

const findingOf = (line: string): Finding => (line.startsWith("{") ? JSON.parse(line) : { message: line });
