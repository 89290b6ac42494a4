import { rm } from "node:fs/promises";
import path from "node:path";
import { isAlive, isOurs, markerOf, type StopStep, waitForExit } from "../process/processes.ts";
import { readText } from "../process/state-file.ts";

/** PostgreSQL's fast shutdown, then its immediate one (with recovery at the next start), then SIGKILL. */
export const POSTGRES_STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGINT", waitMs: 20_000 },
  { signal: "SIGQUIT", waitMs: 5_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/** The location of a PostgreSQL's data. */
interface DataFolder {
  data: string;
}

/**
 * A part of the command line that only this data folder's PostgreSQL has: the settings follow the folder.
 */
export function postmasterMarker({ data }: DataFolder): string {
  return markerOf("-D", data, "-c");
}

/**
 * The PostgreSQL that runs on this data folder, by the pid and port in its postmaster.pid; null if none. The pid
 * counts only if its command line matches.
 */
export async function findPostmaster(home: DataFolder): Promise<{ pid: number; port: number } | null> {
  const lines = await postmasterFile(home);
  const pid = Number(lines?.[0]);
  const port = Number(lines?.[3]);
  return isOurs(pid, postmasterMarker(home)) && port > 0 ? { pid, port } : null;
}

/**
 * Prepares a start: waits for the end of a dying predecessor, and removes a postmaster.pid whose pid now belongs to
 * another process. PostgreSQL would mistake either for another server of this folder and refuse to start. PostgreSQL
 * itself handles a pid without a process.
 */
export async function clearStalePidFile(home: DataFolder): Promise<void> {
  const marker = postmasterMarker(home);
  const pid = Number((await postmasterFile(home))?.[0]);
  if (!isAlive(pid) || isOurs(pid, marker)) return;
  await waitForExit(pid, marker, 5_000);
  if (isAlive(pid)) await rm(path.join(home.data, "postmaster.pid"), { force: true });
}

async function postmasterFile({ data }: DataFolder): Promise<string[] | undefined> {
  return (await readText(path.join(data, "postmaster.pid")))?.split("\n").map((line) => line.trim());
}
