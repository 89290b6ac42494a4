import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";

/** The time that a command of buf may take, in milliseconds. */
export const BUF_TIMEOUT_MS = 10_000;
/** The memory that buf's garbage collector aims at. */
const MEMORY = "256MiB";
const MAX_OUTPUT_BYTES = 32 * 1_024 * 1_024;
/** The exit status of buf if it found something in the files. */
const FOUND = 100;

/** A line of buf's output: what is wrong with a file. */
export interface Finding {
  path?: string;
  start_line?: number;
  /** The name of the rule. */
  type?: string;
  message: string;
}

/** A command of buf that took too long, or that failed for another reason than what it found. */
export class BufFailure extends Error {}

/** The path of buf's program, which the npm package brings: never that of another version in PATH. */
function program(): string {
  const arch = process.platform === "linux" && process.arch === "arm64" ? "aarch64" : process.arch;
  const name = `@bufbuild/buf-${process.platform}-${arch}`;
  const file = process.platform === "win32" ? "bin/buf.exe" : "bin/buf";
  try {
    const buf = createRequire(import.meta.url).resolve("@bufbuild/buf/package.json");
    return createRequire(buf).resolve(`${name}/${file}`);
  } catch (error) {
    throw new Error(
      `buf, which compiles event types, is not installed: the npm package ${name} is missing; install it with \`npm install\`, optional dependencies included`,
      { cause: error },
    );
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
 * @returns what it found; empty if nothing is wrong
 * @throws BufFailure
 * @throws Error if buf is missing, or the signal is aborted
 */
export function runBuf(args: readonly string[], folder: string, signal?: AbortSignal): Promise<Finding[]> {
  const options = {
    cwd: folder,
    // Nothing of the service's environment, which has secrets and may have settings of buf.
    env: {
      HOME: folder,
      TMPDIR: folder,
      TEMP: folder,
      TMP: folder,
      BUF_CACHE_DIR: folder,
      GOMEMLIMIT: MEMORY,
    },
    timeout: BUF_TIMEOUT_MS,
    killSignal: "SIGKILL" as const,
    maxBuffer: MAX_OUTPUT_BYTES,
    ...(signal ? { signal } : {}),
  };
  return new Promise((resolve, reject) => {
    execFile(program(), [...args, "--error-format=json"], options, (error, stdout, stderr) => {
      if (!error) resolve([]);
      else if (error.code === FOUND) resolve(findingsOf(stdout || stderr));
      else if (signal?.aborted) reject(signal.reason);
      else if (error.killed) reject(new BufFailure(`buf took longer than ${BUF_TIMEOUT_MS / 1_000} s`));
      else reject(new BufFailure(`buf failed: ${stderr.trim() || error.message}`));
    });
  });
}

function findingsOf(output: string): Finding[] {
  return output
    .trim()
    .split("\n")
    .map((line) => (line.startsWith("{") ? (JSON.parse(line) as Finding) : { message: line }));
}
