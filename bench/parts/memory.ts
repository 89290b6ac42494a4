import { memoryOfFamily } from "./processes.ts";

const MEBIBYTE = 1_048_576;
const EVERY_MS = 500;

/** Samples the resident memory of a process and its children twice a second. */
export interface MemoryWatch extends Disposable {
  /** Stops sampling. */
  stop(): {
    /** The most, in MiB. */ max: number /** Last quarter's median less the second's, in MiB. */;
    growth: number;
  };
}

/** Starts sampling process `pid` and its children. Linux only. */
export function watchMemory(pid: number): MemoryWatch {
  const samples = [memoryOfFamily(pid) / MEBIBYTE];
  const timer = setInterval(() => samples.push(memoryOfFamily(pid) / MEBIBYTE), EVERY_MS);
  return {
    [Symbol.dispose]: () => clearInterval(timer),
    stop() {
      clearInterval(timer);
      const quarter = (n: number) =>
        median(
          samples.slice(Math.floor((samples.length * n) / 4), Math.ceil((samples.length * (n + 1)) / 4)),
        );
      return { max: Math.max(...samples), growth: quarter(3) - quarter(1) };
    },
  };
}

function median(values: number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
