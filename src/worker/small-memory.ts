import { readMemoryLimit } from "../delivery/limits/process-limits.ts";

const MIB = 2 ** 20;
/** From here on the arguments of `npm start` fit. */
const ENOUGH_MEMORY = 2_048 * MIB;
/** The part of the memory that a half of V8's young generation may grow to: a process has up to four of them. */
const YOUNG_GENERATION_PART = 64;

/** How Node is to be run in a container with little memory. */
interface Fitting {
  arguments: string[];
  environment: Record<string, string>;
}

/**
 * What makes Node return memory early, where the container has less than 2 GiB: with the arguments of `npm start` a process
 * takes 200 MiB before it has done anything. Undefined where there is more.
 *
 * @param sharedBy processes that share the memory evenly, this one included
 */
export function fitting(sharedBy = 1): Fitting | undefined {
  const memory = readMemoryLimit();
  if (memory === undefined || memory / sharedBy >= ENOUGH_MEMORY) return undefined;
  const youngMib = Math.max(2, Math.floor(memory / sharedBy / YOUNG_GENERATION_PART / MIB));
  return {
    arguments: [`--max-semi-space-size=${youngMib}`, "--heap-growing-percent=15"],
    environment: { MALLOC_ARENA_MAX: "2" },
  };
}

/**
 * Replaces this process by one that is run as fits the container: neither can be changed later. Does nothing where it is
 * run so already, and on Windows, which cannot replace a process.
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
