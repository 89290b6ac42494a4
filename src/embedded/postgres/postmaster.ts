import { rm } from "node:fs/promises";
import path from "node:path";
import { isAlive, isOurs, type StopStep, waitForExit } from "../process/processes.ts";
import { readText } from "../process/state-file.ts";

/** PostgreSQL's fast shutdown, then its immediate one (it recovers at the next start), then force. */
export const POSTGRES_STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGINT", waitMs: 20_000 },
  { signal: "SIGQUIT", waitMs: 5_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/** Where a PostgreSQL keeps its data. */
interface DataFolder {
  data: string;
}

/** What only the command line of this data folder's PostgreSQL contains (the settings that follow end the path). */
export function postmasterMarker({ data }: DataFolder): string {
  return ` -D ${data} -c `;
}

/**
 * The PostgreSQL that runs on this data folder now, by the pid and port in its postmaster.pid, or null.
 * The pid counts only when its command line is ours.
 */
export async function findPostmaster(home: DataFolder): Promise<{ pid: number; port: number } | null> {
  const lines = await postmasterFile(home);
  const pid = Number(lines?.[0]);
  const port = Number(lines?.[3]);
  return isOurs(pid, postmasterMarker(home)) && port > 0 ? { pid, port } : null;
}

/**
 * To be called before a start: waits for the end of a dying predecessor, and removes a postmaster.pid whose pid has
 * become somebody else's. PostgreSQL would take either for another server of this folder and refuse to start.
 * A pid without a process is left to PostgreSQL, which then sees to what that server left behind.
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
