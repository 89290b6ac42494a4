import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readlinkSync } from "node:fs";
import { chmod, mkdtemp, realpath, rm } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import os from "node:os";
import path from "node:path";
import pg from "pg";
import { onTestFinished } from "vitest";
import { startEmbeddedPostgres } from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../../src/lib/dev-servers/postgres/postgres-home.ts";
import { commandOf } from "../../../src/lib/dev-servers/process/processes.ts";
import { anyPort } from "../../support/any-port.ts";
import { type Program, ROOT, startProgram } from "../../support/program.ts";
import { pids } from "../../support/run/proc.ts";

export const silent = () => {};
/** In a folder others can enter root keeps the data there too, which is where most tests look for it. */
export const OPEN = 0o711;

/** A new folder, deleted with any database after the test. Closed to other users, unless `mode` says otherwise. */
export async function temporaryFolder(mode = 0o700): Promise<string> {
  const folder = await realpath(await mkdtemp(path.join(os.tmpdir(), "webhook-dev-")));
  await chmod(folder, mode);
  onTestFinished(() => removeDataDir(folder));
  return folder;
}

let template: Promise<string> | undefined;

/**
 * A DATA_DIR whose database had its first start, which takes the most of a second, with a table `kept`; the file's first
 * call makes it.
 */
export async function preparedFolder(): Promise<string> {
  template ??= prepare();
  const folder = await temporaryFolder(OPEN);
  execFileSync("cp", ["-a", `${await template}/.`, folder]);
  return folder;
}

async function prepare(): Promise<string> {
  const dataDir = await realpath(await mkdtemp(path.join(os.tmpdir(), "webhook-dev-")));
  await chmod(dataDir, OPEN);
  const server = await startEmbeddedPostgres({ dataDir, progress: silent, port: await anyPort() });
  await query(server.url, "create table kept as select 42 as answer");
  await server.stop();
  // A copy makes its own choice of a port.
  await rm(path.join(dataDir, "postgres.json"));
  return dataDir;
}

/** Starts the database of a prepared folder until the end of the test. */
export async function startIn(
  dataDir: string,
  options: Partial<Parameters<typeof startEmbeddedPostgres>[0]> = {},
) {
  const port = await anyPort();
  return stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port, ...options }));
}

/** A progress sink that keeps its lines. */
export function recorded(): { lines: string[]; progress: (line: string) => void } {
  const lines: string[] = [];
  return { lines, progress: (line) => void lines.push(line) };
}

/** Ends what a test started once it is over, however it is over. */
export function stopAfterTest<T extends { stop(): Promise<void> }>(server: T): T {
  onTestFinished(() => server.stop());
  return server;
}

/** The same for a server that takes a second to stop, and whose state nobody needs any more. */
export function killAfterTest<T extends { kill(): void; stop(): Promise<void> }>(server: T): T {
  onTestFinished(async () => {
    // Asked to stop first, a supervised one does not come back.
    const stopped = server.stop();
    server.kill();
    await stopped;
  });
  return server;
}

/** Something of somebody else's that listens on `port`. */
export async function occupy(port: number): Promise<Server> {
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  return server;
}

/** A process of somebody else's, that of user `uid` if given; killed after the test. */
export async function stranger(uid?: number): Promise<ChildProcess & { pid: number }> {
  const child = spawn("sleep", ["1000"], {
    stdio: "ignore",
    cwd: "/",
    ...(uid === undefined ? {} : { uid }),
  });
  await once(child, "spawn");
  onTestFinished(() => void child.kill("SIGKILL"));
  return child as ChildProcess & { pid: number };
}

/** Runs one of the programs beside this file; it says one line of JSON when it is where the test wants it. */
export async function runProgram<T>(
  name: string,
  args: readonly string[],
): Promise<{ program: Program; said: T }> {
  const program = startProgram([process.execPath, path.join(ROOT, "test/lib/dev-servers", name), ...args]);
  onTestFinished(() => void program.process.kill("SIGKILL"));
  const [line] = await program.until(/^\{.*\}$/m);
  return { program, said: JSON.parse(line) as T };
}

/** Whether a process still runs; a dead one that its parent has not asked for yet does not. */
export function runs(pid: number): boolean {
  return commandOf(pid) !== null;
}

/** The processes of the Temporal server of a DATA_DIR: the program, and a script that runs it. */
export function temporalServers(dataDir: string): number[] {
  return pids().filter((pid) => {
    try {
      return readlinkSync(`/proc/${pid}/cwd`) === path.join(dataDir, "temporal");
    } catch {
      return false; // Ended in the meantime.
    }
  });
}

/** The rows one statement gives. */
export async function query(url: string, sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}
