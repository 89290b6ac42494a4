/**
 * Ends what a run has started once the run is over, however it ends: a process of its own, whose standard input ends with
 * the run's process.
 *
 *   node test/support/run/guardian.ts FOLDER [PID…]
 *
 * Every process that uses the folder for temporary files belongs to the run. The folder is removed at the end. The run is
 * over, too, when one of the processes that it was started by has ended: npm passes no signal on.
 */
import { rm } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { isAlive } from "../../../src/lib/dev-servers/process/processes.ts";
import { pids, readProc, statOf } from "./proc.ts";

/** PostgreSQL removes its shared memory on SIGQUIT, and is given this long, in milliseconds. */
const GRACE_MS = 2_000;
const INTERVAL_MS = 50;
/** The interval between two looks at the processes that the run was started by, in milliseconds. */
const WATCH_INTERVAL_MS = 500;

const [folder = "", ...startedBy] = process.argv.slice(2);
const run = process.ppid;

/** The processes of the run; none on systems without /proc, where only what the run itself stops is stopped. */
function processes(): number[] {
  const isOfRun = (pid: number) => readProc(pid, "environ").split("\0").includes(`TMPDIR=${folder}`);
  return pids().filter((pid) => pid !== process.pid && isOfRun(pid) && !isAwaitedWorker(pid));
}

/**
 * Whether it is a worker that Vitest is about to stop: after a run that ends in order. Vitest waits a minute for the answer of
 * a worker that is killed meanwhile ("Timeout terminating forks worker").
 */
function isAwaitedWorker(pid: number): boolean {
  const { name = "", parent } = statOf(pid) ?? {};
  return parent === run && name.startsWith("test: ");
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch {
    // It has ended.
  }
}

const isPostgres = (pid: number) => readProc(pid, "comm") === "postgres";

async function end(): Promise<void> {
  for (const pid of processes()) signal(pid, isPostgres(pid) ? "SIGQUIT" : "SIGKILL");
  for (let waited = 0; processes().length > 0; waited += INTERVAL_MS) {
    if (waited > GRACE_MS) for (const pid of processes()) signal(pid, "SIGKILL");
    await sleep(INTERVAL_MS);
  }
  await rm(folder, { recursive: true, force: true });
}

setInterval(() => {
  if (!startedBy.map(Number).every(isAlive)) signal(run, "SIGKILL");
}, WATCH_INTERVAL_MS).unref();
for (const name of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(name, () => {});
process.stdin.resume().once("close", () => void end());
