import { readdirSync, readFileSync } from "node:fs";

/** The processor time of a process and its ended children, in microseconds. */
export function processorTime(pid: number): number {
  return statOf(pid).ticks * 10_000;
}

/** The processor time of a process and all its current children, in microseconds. */
export function processorTimeOfFamily(pid: number): number {
  return sumOfFamily(pid, processorTime);
}

/** The resident memory of a process and all its children, in bytes. Linux only. */
export function memoryOfFamily(pid: number): number {
  return sumOfFamily(pid, (each) => {
    const kibibytes = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${each}/status`, "utf8"))?.[1];
    return Number(kibibytes) * 1_024;
  });
}

/** The number of open files and sockets of a process and all its children. Linux only. */
export function openFilesOfFamily(pid: number): number {
  return sumOfFamily(pid, (each) => readdirSync(`/proc/${each}/fd`).length);
}

/** The pid of a process's parent. */
export function parentOf(pid: number): number {
  return statOf(pid).parent;
}

function sumOfFamily(pid: number, of: (pid: number) => number): number {
  return [pid, ...childrenOf(pid)].reduce((sum, each) => sum + (unlessEnded(() => of(each)) ?? 0), 0);
}

/** The first child of a process; undefined if none. */
export function childOf(pid: number): number | undefined {
  return childrenOf(pid)[0];
}

function childrenOf(parent: number): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && unlessEnded(() => parentOf(pid)) === parent);
}

/** The parent of a process, and the processor time of itself and its ended children in hundredths of a second. */
function statOf(pid: number): { parent: number; ticks: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
  const ticks = [11, 12, 13, 14].reduce((sum, place) => sum + Number(fields[place]), 0);
  return { parent: Number(fields[1]), ticks };
}

/** The result of reading a process; undefined if it has ended. */
function unlessEnded<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
