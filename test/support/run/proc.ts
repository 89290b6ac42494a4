import { readdirSync, readFileSync } from "node:fs";

/** The ids of all processes; none on systems without /proc. */
export function pids(): number[] {
  try {
    return readdirSync("/proc")
      .map(Number)
      .filter((pid) => pid > 0);
  } catch {
    return [];
  }
}

/** A file of a process in /proc, without white space around it; empty if the process has ended or belongs to another user. */
export function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8").trim();
  } catch {
    return "";
  }
}

/** The state of a process, from its `stat`. */
export interface Stat {
  /** Its name, cut by Linux after 15 characters. */
  name: string;
  parent: number;
  /** The processor time of the process itself, in ticks. */
  own: number;
  /** The processor time of its children that have ended, with all of theirs, in ticks. */
  ended: number;
}

/** Undefined if the process has ended. */
export function statOf(pid: number): Stat | undefined {
  const [, name = "", fields] = /^\d+ \((.*)\) \S (.*)$/s.exec(readProc(pid, "stat")) ?? [];
  if (fields === undefined) return undefined;
  const [parent = 0, ...rest] = fields.split(" ").map(Number);
  const [utime = 0, stime = 0, cutime = 0, cstime = 0] = rest.slice(9);
  return { name, parent, own: utime + stime, ended: cutime + cstime };
}
