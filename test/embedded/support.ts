import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, realpath } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { onTestFinished } from "vitest";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import { commandOf } from "../../src/embedded/process/processes.ts";

/** A new folder, deleted with any database after the test. Closed to other users, unless `mode` says otherwise. */
export async function temporaryFolder(mode = 0o700): Promise<string> {
  const folder = await realpath(await mkdtemp(path.join(os.tmpdir(), "webhook-dev-")));
  await chmod(folder, mode);
  onTestFinished(() => removeDataDir(folder));
  return folder;
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
  options: {
    code?: string;
    node?: string;
    uid?: number;
    gid?: number;
    env?: NodeJS.ProcessEnv;
    cwd?: string;
  } = {},
): Promise<{ child: ChildProcess; said: T }> {
  const {
    code = fileURLToPath(new URL("../..", import.meta.url)),
    node = process.execPath,
    ...rest
  } = options;
  const child = spawn(node, [path.join(code, "test/embedded", name), ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    ...rest,
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  let errors = "";
  child.stderr.on("data", (chunk) => {
    errors += chunk;
  });
  const ended = once(child, "close").then(() => Promise.reject(new Error(`${name} ended: ${errors}`)));
  ended.catch(() => {});
  const [line] = (await Promise.race([once(createInterface({ input: child.stdout }), "line"), ended])) as [
    string,
  ];
  return { child, said: JSON.parse(line) as T };
}

/** SIGKILL, and its end. */
export async function killHard(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

/** Whether a process still runs; a dead one that its parent has not asked for yet does not. */
export function runs(pid: number): boolean {
  return commandOf(pid) !== null;
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

/** Resolves as soon as `check` holds, looking every 25 ms; a test's time-out ends it otherwise. */
export async function until(check: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await check())) await new Promise((resolve) => setTimeout(resolve, 25));
}
