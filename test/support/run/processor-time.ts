import { pids, readProc, type Stat, statOf } from "./proc.ts";

/** Ticks of the processor per second, in the files of /proc; the same on all Linux systems that Node runs on. */
const TICKS = 100;
const INTERVAL_MS = 2_000;
/** How `runner.ts` names the process of a worker while a file runs in it. */
const WORKER = /^test: test\/([^/]+)\//;
/** How PostgreSQL names a process that serves a database of `createTestDatabase`. */
const BACKEND = /^postgres: \S+ test_(\d+)_/;

/** A process at a look. */
interface Process extends Stat {
  pid: number;
}

/**
 * Counts the processor time of this process and of all that it starts, by top folder of `test`. Looks at all processes again and
 * again, because their times are gone when they end; what ends between two looks is in its parent's times.
 *
 * @returns ends it, and answers the seconds by folder; null on systems without /proc
 */
export function countProcessorTime(): () => Map<string, number> | null {
  const seconds = new Map<string, number>();
  let seen = new Map<number, Process>();
  if (!statOf(process.pid)) return () => null;

  function look(): void {
    const all = pids().flatMap((pid): Process[] => {
      const stat = statOf(pid);
      return stat ? [{ pid, ...stat }] : [];
    });
    const byPid = new Map(all.map((one) => [one.pid, one]));
    const folders = new Map<number, string | undefined>([[process.pid, "the run itself"]]);
    /** The folder that a process works for; undefined if it does not belong to the run. */
    const folderOf = (pid: number): string | undefined => {
      if (folders.has(pid)) return folders.get(pid);
      const one = byPid.get(pid);
      const above = one && one.parent > 0 ? folderOf(one.parent) : undefined;
      const folder = above === undefined ? undefined : (ownFolder(pid) ?? above);
      folders.set(pid, folder);
      return folder;
    };
    const ownFolder = (pid: number): string | undefined => {
      const title = readProc(pid, "cmdline").replaceAll("\0", " ");
      const [, worker] = BACKEND.exec(title) ?? [];
      if (worker !== undefined) return folderOf(Number(worker));
      if (title.startsWith("postgres: ") || title.includes("/postgres -D ")) return "PostgreSQL itself";
      if (title.includes("start-dev")) return "Temporal";
      return WORKER.exec(title)?.[1];
    };
    const now = new Map<number, Process>();
    const gone = new Map<number, number>();
    for (const one of seen.values()) {
      if (!byPid.has(one.pid)) gone.set(one.parent, (gone.get(one.parent) ?? 0) + one.own + one.ended);
    }
    for (const one of all) {
      const folder = folderOf(one.pid);
      if (folder === undefined) continue;
      const before = seen.get(one.pid);
      const ended = one.ended - (before?.ended ?? 0) - (gone.get(one.pid) ?? 0);
      const ticks = one.own - (before?.own ?? 0) + Math.max(0, ended);
      seconds.set(folder, (seconds.get(folder) ?? 0) + ticks / TICKS);
      now.set(one.pid, one);
    }
    seen = now;
  }

  look();
  const timer = setInterval(look, INTERVAL_MS).unref();
  return () => {
    clearInterval(timer);
    look();
    return seconds;
  };
}

/** The times as lines, most first. */
export function processorTimeLines(seconds: ReadonlyMap<string, number>): string[] {
  const rows = [...seconds].filter(([, time]) => time >= 0.05).sort(([, one], [, other]) => other - one);
  const total = rows.reduce((sum, [, time]) => sum + time, 0);
  return [
    "Processor time, user and system, of all processes of the run:",
    ...[...rows, ["in all", total] as const].map(
      ([folder, time]) => `${time.toFixed(1).padStart(8)} s  ${folder}`,
    ),
  ];
}
