import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

/** Variables passed to child processes. No others are passed, because they may contain secrets. */
const PASSED = /^(PATH|HOME|TMPDIR|TEMP|TMP|SYSTEMROOT|USERPROFILE|APPDATA)$/i;
/** Variables that a download also needs. */
const PASSED_TO_DOWNLOADS = /^((HTTPS?|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|PIP_\w+)$/i;
/** The interval between two checks whether processes have ended, in milliseconds. */
const POLL_INTERVAL_MS = 20;

const variables = (names: RegExp) =>
  Object.fromEntries(Object.entries(process.env).filter(([name]) => names.test(name)));

/**
 * The environment of a database or Temporal server: fixed language and time zone, without the service's settings. Temporal's server
 * would otherwise tell its makers its version and ask them for a newer one.
 */
export function serverEnvironment(): NodeJS.ProcessEnv {
  const fixed = { LC_ALL: "C", LANG: "C", TZ: "UTC", TEMPORAL_VERSION_CHECK_DISABLED: "true" };
  return { ...variables(PASSED), ...fixed };
}

/** The environment of a downloader: without the service's settings, with proxies and certificates. */
export function downloadEnvironment(): NodeJS.ProcessEnv {
  return { ...serverEnvironment(), ...variables(PASSED_TO_DOWNLOADS) };
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
  try {
    const command =
      process.platform === "linux"
        ? readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")
        : execFileSync("ps", ["-ww", "-o", "command=", "-p", String(pid)], { encoding: "utf8" });
    return command.trim() || null;
  } catch {
    return null;
  }
}

/** A signal, and the time to wait for the process to end, in milliseconds. */
export interface StopStep {
  signal: NodeJS.Signals;
  waitMs: number;
}

/**
 * Ends a process group by sending each step's signal until all its processes have ended. A wrapper script and the program
 * that it runs are in one group, whose id is the pid of the first.
 *
 * @throws Error if a process survives the last step
 */
export async function stopGroup(group: number, steps: readonly StopStep[]): Promise<void> {
  for (const { signal, waitMs } of steps) {
    signalGroup(group, signal);
    for (const deadline = Date.now() + waitMs; Date.now() < deadline; await sleep(POLL_INTERVAL_MS))
      if (membersOf(group).length === 0) return;
  }
  throw new Error(`process ${group} did not end after the last signal; stop it manually`);
}

/** Sends a signal to all processes of a group. Has no effect if they have ended. */
export function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(process.platform === "win32" ? group : -group, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** The processes of a group that still run. Without /proc only the first one is known. */
function membersOf(group: number): number[] {
  if (process.platform !== "linux") return isAlive(group) ? [group] : [];
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const [state, , groupOfPid] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
      if (Number(groupOfPid) !== group) return false;
      // A zombie without threads has closed its ports. It stays if its parent does not ask for its exit code.
      return state !== "Z" || readdirSync(`/proc/${pid}/task`).length > 1;
    } catch {
      return false; // Ended in the meantime.
    }
  });
}

/**
 * Whether a process of the group itself listens on TCP `port` of 127.0.0.1; another process could answer there. Returns
 * true on systems without /proc.
 */
export function listensOn(group: number, port: number): boolean {
  if (process.platform !== "linux") return true;
  const local = `0100007F:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const sockets = readFileSync("/proc/net/tcp", "utf8")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, address, , state]) => address === local && state === "0A")
    .map((fields) => `socket:[${fields[9]}]`);
  return membersOf(group).some((pid) => {
    try {
      const files = readdirSync(`/proc/${pid}/fd`);
      return files.some((file) => sockets.includes(readlinkSync(`/proc/${pid}/fd/${file}`)));
    } catch {
      return false; // Closed in the meantime: checked again.
    }
  });
}
