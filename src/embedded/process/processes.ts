import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** How long a process without a command line may still be on its way out, in milliseconds. */
const DYING_MS = 2000;

/** Whether a process of this id exists; it may be anybody's. */
export function isAlive(pid: number): boolean {
  if (!Number.isSafeInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** The command line of a process, its arguments joined by blanks; null when it is gone or only a zombie. */
export function commandOf(pid: number): string | null {
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

/** Every process whose command line contains `marker`, this one excepted. */
export function findByCommand(marker: string): { pid: number; command: string }[] {
  return listProcesses().filter(({ pid, command }) => pid !== process.pid && command.includes(marker));
}

/** One signal and how long to wait for the end it should bring, in milliseconds. */
export interface StopStep {
  signal: NodeJS.Signals;
  waitMs: number;
}

/**
 * Ends a process, sending each step's signal until it is gone. Before each it looks again whether the command
 * line still contains `marker`, because a pid may be somebody else's by now; that counts as gone.
 *
 * @throws Error when it outlives the last step.
 */
export async function stopProcess(pid: number, marker: string, steps: readonly StopStep[]): Promise<void> {
  for (const { signal, waitMs } of steps) {
    if (!isOurs(pid, marker)) return;
    try {
      process.kill(pid, signal);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    }
    if (await waitForExit(pid, marker, waitMs)) return;
  }
  throw new Error(`process ${pid} cannot be stopped`);
}

/** Waits up to `waitMs` for the end of our process `pid`; whether it has ended. */
export async function waitForExit(pid: number, marker: string, waitMs: number): Promise<boolean> {
  const deadline = Date.now() + waitMs;
  let dyingSince: number | null = null;
  for (;;) {
    if (!isAlive(pid)) return true;
    const command = commandOf(pid);
    if (command !== null && !command.includes(marker)) return true;
    if (command === null && isDead(pid)) return true;
    // Its command line goes before its ports do; but a zombie nobody reaps may stay for ever.
    if (command === null) dyingSince ??= Date.now();
    if (dyingSince !== null && Date.now() - dyingSince > DYING_MS) return true;
    if (Date.now() >= deadline) return false;
    await sleep(process.platform === "linux" ? 20 : 100);
  }
}

/** Whether `pid` is running now with a command line that contains `marker`. */
export function isOurs(pid: number, marker: string): boolean {
  return commandOf(pid)?.includes(marker) ?? false;
}

/** On Linux: whether all of it but its exit code is gone, every thread and so every port included. */
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
  // A zombie, and a kernel thread, have an empty one.
  return command === "" ? null : command.replace(/\0+$/, "").replaceAll("\0", " ");
}

function listProcesses(): { pid: number; command: string }[] {
  if (process.platform === "win32") return powershell("");
  if (process.platform !== "linux") {
    const lines = execFileSync("ps", ["-axww", "-o", "pid=,command="], {
      encoding: "utf8",
      maxBuffer: 64 << 20,
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
        return []; // Gone since the folder was read.
      }
    });
}

function powershell(filter: string): { pid: number; command: string }[] {
  const script = `Get-CimInstance Win32_Process ${filter} | ForEach-Object { "$($_.ProcessId) $($_.CommandLine)" }`;
  const lines = execFileSync("powershell", ["-NoProfile", "-Command", script], { encoding: "utf8" });
  return lines.split(/\r?\n/).flatMap((line) => {
    const [, pid, command] = /^(\d+) (.+)$/.exec(line) ?? [];
    return pid === undefined || command === undefined ? [] : [{ pid: Number(pid), command }];
  });
}
