import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const MEBIBYTE = 1_048_576;
const EVERY_MS = 500;

/** Samples the resident memory of a process twice a second. */
export interface MemoryWatch extends Disposable {
  /** Stops sampling. */
  stop(): {
    /** The most, in MiB. */ max: number /** Last quarter's median less the second's, in MiB. */;
    growth: number;
  };
}

/** Starts sampling process `pid`. */
export function watchMemory(pid: number): MemoryWatch {
  const samples = [residentMemory(pid)];
  const timer = setInterval(() => samples.push(residentMemory(pid)), EVERY_MS);
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

function residentMemory(pid: number): number {
  if (process.platform !== "linux")
    return (
      (Number(execFileSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" })) * 1_024) / MEBIBYTE
    );
  const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return (Number(kibibytes) * 1_024) / MEBIBYTE;
}

function median(values: number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
