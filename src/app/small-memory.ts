import { readMemoryLimit } from "../lib/process/memory-limit.ts";

const MIB = 2 ** 20;
/** The memory per process from which the arguments of `npm start` are suitable, in bytes. */
const MIN_MEMORY_FOR_DEFAULTS = 2_048 * MIB;
/**
 * The divisor of the memory that gives the size of one semi-space of V8's young generation. A process has up to four
 * of them.
 */
const SEMI_SPACE_DIVISOR = 64;

/**
 * Settings of glibc. Without the thresholds, it keeps freed buffers of messages for later ones: in bench `guards`, an API with 512 MiB
 * used 290 to 301 MiB instead of 244 to 262.
 */
const MALLOC = {
  MALLOC_ARENA_MAX: "2",
  MALLOC_MMAP_THRESHOLD_: "131072",
  MALLOC_TRIM_THRESHOLD_: "131072",
};

/** Node's arguments and environment for a container with little memory. */
interface Fitting {
  arguments: string[];
  environment: Record<string, string>;
}

/**
 * Settings with which Node returns memory early, for processes with less than 2 GiB; undefined for others. With the
 * arguments of `npm start`, a process uses 200 MiB right after its start.
 *
 * @param sharedBy the number of processes that share the memory evenly, including this one
 */
export function fitting(sharedBy = 1): Fitting | undefined {
  const memory = readMemoryLimit();
  if (memory === undefined || memory / sharedBy >= MIN_MEMORY_FOR_DEFAULTS) return undefined;
  const youngMib = Math.max(2, Math.floor(memory / sharedBy / SEMI_SPACE_DIVISOR / MIB));
  return {
    arguments: [`--max-semi-space-size=${youngMib}`, "--heap-growing-percent=15"],
    environment: MALLOC,
  };
}

/**
 * Replaces this process by one with arguments that fit the container, because they cannot be changed at run time.
 * Does nothing if they already fit, or on Windows, which cannot replace a process.
 *
 * NODE_OPTIONS cannot do so: Node refuses `--heap-growing-percent` there, and only the process knows its memory. Without it, a worker
 * in 256 MiB, as docs/configuration.md promises, was killed after 250 payloads of 250 KiB.
 */
export function restartAsFits(): void {
  const fit = fitting();
  const isSo = fit?.arguments.every((argument) => process.execArgv.includes(argument)) ?? true;
  if (isSo || process.platform === "win32") return;
  process.execve?.(
    process.execPath,
    [process.execPath, ...process.execArgv, ...(fit?.arguments ?? []), ...process.argv.slice(1)],
    { ...process.env, ...fit?.environment },
  );
}
