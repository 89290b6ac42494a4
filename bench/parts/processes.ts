import { readdirSync, readFileSync, readlinkSync } from "node:fs";

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
  return sumOfFamily(pid, memoryOf);
}

/** The resident memory of a process, in bytes. Linux only. */
export function memoryOf(pid: number): number {
  return memoryLine(pid, "VmRSS");
}

/** The most resident memory that a process has had, in bytes. Linux only. */
export function peakMemory(pid: number): number {
  return memoryLine(pid, "VmHWM");
}

/** What a process and all its children have open. */
export interface OpenFiles {
  /** TCP connections to the given ports. */
  connections: number;
  /** All other files and sockets. */
  others: number;
}

/** The open files of a process and all its children, with connections to some remote ports told apart. Linux only. */
export function openFilesOfFamily(pid: number, remotePorts: ReadonlySet<number>): OpenFiles {
  const inodes = inodesOfConnections(remotePorts);
  const openFiles: OpenFiles = { connections: 0, others: 0 };
  for (const each of [pid, ...childrenOf(pid)]) {
    const targets = unlessEnded(() => readdirSync(`/proc/${each}/fd`)) ?? [];
    for (const fd of targets) {
      const target = unlessEnded(() => readlinkSync(`/proc/${each}/fd/${fd}`));
      if (target === undefined) continue;
      const inode = /^socket:\[(\d+)\]$/.exec(target)?.[1];
      openFiles[inode !== undefined && inodes.has(inode) ? "connections" : "others"] += 1;
    }
  }
  return openFiles;
}

/** The inodes of all TCP connections of this machine to some remote ports. Columns: see proc_pid_net(5). */
function inodesOfConnections(remotePorts: ReadonlySet<number>): Set<string> {
  const lines = ["tcp", "tcp6"].flatMap((table) => readFileSync(`/proc/net/${table}`, "latin1").split("\n"));
  const inodes = new Set<string>();
  for (const line of lines) {
    const [, , remote, , , , , , , inode] = line.trim().split(/\s+/);
    const port = Number.parseInt(remote?.split(":").at(-1) ?? "", 16);
    if (inode !== undefined && remotePorts.has(port)) inodes.add(inode);
  }
  return inodes;
}

/** The pid of a process's parent. */
export function parentOf(pid: number): number {
  return statOf(pid).parent;
}

/** An amount of memory in the status of a process, in bytes. */
function memoryLine(pid: number, name: string): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(status)?.[1]) * 1_024;
}

function sumOfFamily(pid: number, of: (pid: number) => number): number {
  return [pid, ...childrenOf(pid)].reduce((sum, each) => sum + (unlessEnded(() => of(each)) ?? 0), 0);
}

/** The first child of a process; undefined if none. */
export function childOf(pid: number): number | undefined {
  return childrenOf(pid)[0];
}

/** All processes that a process has started and that still have a parent among these. Linux only. */
export function descendantsOf(pid: number): number[] {
  return childrenOf(pid).flatMap((child) => [child, ...descendantsOf(child)]);
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
