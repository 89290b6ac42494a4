import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** The time for which a process without a command line may still be exiting, in milliseconds. */
const MAX_EXIT_MS = 2000;
/** The maximum size of the list of all processes, in bytes. */
const MAX_LIST_BYTES = 64 * 2 ** 20;
/** What separates the arguments in a command line. On Linux no argument can contain it. */
const SEPARATOR = process.platform === "linux" ? "\0" : " ";

/**
 * The part of a command line that consists of these whole arguments, followed by others. On Linux, a shell or an editor
 * that has such a command line in one of its arguments does not match.
 */
export function markerOf(...args: string[]): string {
  return ["", ...args, ""].join(SEPARATOR);
}

/** Whether a process with this id exists, of any user. */
export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The command line of a process, with arguments separated by spaces; null if it does not exist or is a zombie. */
export function commandOf(pid: number): string | null {
  return rawCommandOf(pid)?.replaceAll("\0", " ").trimEnd() ?? null;
}

/** The command line of a process, with arguments separated by `SEPARATOR`; null if it does not exist or is a zombie. */
function rawCommandOf(pid: number): string | null {
  if (!isAlive(pid)) return null;
  try {
    if (process.platform === "linux") return fromProc(pid);
    if (process.platform === "win32") return powershell(`-Filter "ProcessId=${pid}"`)[0]?.command ?? null;
    const line = execFileSync("ps", ["-ww", "-o", "command=", "-p", String(pid)], {
      encoding: "utf8",
    }).trim();
    return line === "" || line === "<defunct>" ? null : line;
  } catch {
    return null;
  }
}

/**
 * The pids of all processes whose command line contains `marker`, except this one and those of containers, where the
 * same path means another file.
 */
export function findByCommand(marker: string): number[] {
  return listProcesses()
    .filter(({ pid, command }) => pid !== process.pid && command.includes(marker) && sharesRoot(pid))
    .map(({ pid }) => pid);
}

/** Whether a process has the same root folder as this one, and this one may stop it. Known on Linux only. */
function sharesRoot(pid: number): boolean {
  if (process.platform !== "linux") return true;
  try {
    // Throws for another user's process, unless this one is root's.
    process.kill(pid, 0);
    return rootOf(pid) === rootOf("self");
  } catch {
    return false; // Ended in the meantime, or another user's.
  }
}

/**
 * The devices and folders mounted as the root of a process. Unlike `/proc/<pid>/root`, root can read them of other users'
 * processes without CAP_SYS_PTRACE, which containers lack.
 */
function rootOf(pid: number | "self"): string {
  return readFileSync(`/proc/${pid}/mountinfo`, "utf8")
    .split("\n")
    .map((mount) => mount.split(" "))
    .filter(([, , , , mountPoint]) => mountPoint === "/")
    .map(([, , device, folder]) => `${device} ${folder}`)
    .join("\n");
}

/** A signal, and the time to wait for the process to end, in milliseconds. */
export interface StopStep {
  signal: NodeJS.Signals;
  waitMs: number;
}

/**
 * Ends all processes whose command line contains `marker` by sending each step's signal until they have ended. There
 * can be several: a wrapper script and the program it runs. Looks for them again before each step, because a wrapper
 * may have started its program meanwhile and pids are reused.
 *
 * @throws Error if a process survives the last step
 */
export async function stopProcesses(marker: string, steps: readonly StopStep[]): Promise<void> {
  for (const { signal, waitMs } of steps) {
    const pids = findByCommand(marker);
    if (pids.length === 0) return;
    for (const pid of pids) signalProcess(pid, signal);
    await Promise.all(pids.map((pid) => waitForExit(pid, marker, waitMs)));
  }
  const left = findByCommand(marker);
  if (left.length > 0)
    throw new Error(`process ${left.join(", ")} did not end after the last signal; stop it manually`);
}

function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Waits up to `waitMs` milliseconds for the end of process `pid`. Returns whether it has ended. */
export async function waitForExit(pid: number, marker: string, waitMs: number): Promise<boolean> {
  const deadline = Date.now() + waitMs;
  let dyingSince: number | null = null;
  for (;;) {
    if (!isAlive(pid)) return true;
    const command = rawCommandOf(pid);
    if (command !== null && !command.includes(marker)) return true;
    if (command === null && isDead(pid)) return true;
    // The command line disappears before the ports are closed; but an unreaped zombie may stay forever.
    if (command === null) dyingSince ??= Date.now();
    if (dyingSince !== null && Date.now() - dyingSince > MAX_EXIT_MS) return true;
    if (Date.now() >= deadline) return false;
    await sleep(process.platform === "linux" ? 20 : 100);
  }
}

/** Whether `pid` is running with a command line that contains `marker`. */
export function isOurs(pid: number, marker: string): boolean {
  return rawCommandOf(pid)?.includes(marker) ?? false;
}

/** Whether a process has ended and only its exit code is left, without threads and ports. Linux only. */
function isDead(pid: number): boolean {
  if (process.platform !== "linux") return false;
  try {
    const state = /^State:\s+(\w)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
    return state === "Z" && readdirSync(`/proc/${pid}/task`).length === 1;
  } catch {
    return true;
  }
}

function fromProc(pid: number): string | null {
  const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
  // Zombies and kernel threads have an empty command line.
  return command === "" ? null : command;
}

function listProcesses(): { pid: number; command: string }[] {
  if (process.platform === "win32") return powershell("");
  if (process.platform !== "linux") {
    const lines = execFileSync("ps", ["-axww", "-o", "pid=,command="], {
      encoding: "utf8",
      maxBuffer: MAX_LIST_BYTES,
    });
    return lines.split("\n").flatMap((line) => {
      const [, pid, command] = /^\s*(\d+)\s+(.*)$/.exec(line) ?? [];
      return pid === undefined || command === undefined ? [] : [{ pid: Number(pid), command }];
    });
  }
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const command = fromProc(Number(name));
        return command === null ? [] : [{ pid: Number(name), command }];
      } catch {
        return []; // Ended in the meantime.
      }
    });
}

function powershell(filter: string): { pid: number; command: string }[] {
  // As base64, because PowerShell writes text in the code page of the console, which lacks letters of some paths.
  const script = [
    `$lines = Get-CimInstance Win32_Process ${filter} | ForEach-Object { "$($_.ProcessId) $($_.CommandLine)" }`,
    "[Convert]::ToBase64String([Text.Encoding]::UTF8.GetBytes(($lines -join [char]10)))",
  ].join("; ");
  const options = { encoding: "utf8", maxBuffer: MAX_LIST_BYTES } as const;
  return readWindowsProcesses(execFileSync("powershell", ["-NoProfile", "-Command", script], options));
}

/**
 * Reads lines of a pid and a Windows command line. Removes the quotes around arguments with spaces, because markers have
 * none; a path cannot contain quotes.
 *
 * @param output the lines in UTF-8 as base64
 */
export function readWindowsProcesses(output: string): { pid: number; command: string }[] {
  const lines = Buffer.from(output, "base64").toString("utf8");
  return lines.split(/\r?\n/).flatMap((line) => {
    const [, pid, command] = /^(\d+) (.+)$/.exec(line) ?? [];
    return pid === undefined || command === undefined
      ? []
      : [{ pid: Number(pid), command: command.replaceAll('"', "") }];
  });
}
