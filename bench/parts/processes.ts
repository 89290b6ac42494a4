import { readdirSync, readFileSync } from "node:fs";

/** Processor time of a process and its ended children so far, in microseconds. */
export function processorTime(pid: number): number {
  return statOf(pid).ticks * 10_000;
}

/** The same of a process and all children that it has now. */
export function processorTimeOfFamily(pid: number): number {
  return [pid, ...childrenOf(pid)].reduce(
    (sum, each) => sum + (unlessEnded(() => processorTime(each)) ?? 0),
    0,
  );
}

/** Its parent's pid. */
export function parentOf(pid: number): number {
  return statOf(pid).parent;
}

/** The first child of a process, if it has one. */
export function childOf(pid: number): number | undefined {
  return childrenOf(pid)[0];
}

function childrenOf(parent: number): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc")
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && unlessEnded(() => parentOf(pid)) === parent);
}

/** The state of a process: its parent, and its own and its ended children's processor time in hundredths of a second. */
function statOf(pid: number): { parent: number; ticks: number } {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
  const ticks = [11, 12, 13, 14].reduce((sum, place) => sum + Number(fields[place]), 0);
  return { parent: Number(fields[1]), ticks };
}

/** What can be read of a process; undefined when it has ended meanwhile. */
function unlessEnded<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
