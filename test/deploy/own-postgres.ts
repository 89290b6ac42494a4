import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { appendFile, chmod, chown, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { anyPort } from "../support/any-port.ts";

const run = promisify(execFile);

/** The folder of PostgreSQL's programs: POSTGRES_BIN, else the newest of Debian's packages. */
export const postgresBin =
  process.env.POSTGRES_BIN ??
  (existsSync("/usr/lib/postgresql") ? readdirSync("/usr/lib/postgresql") : [])
    .sort((one, other) => Number(other) - Number(one))
    .map((version) => `/usr/lib/postgresql/${version}/bin`)
    .find((folder) => existsSync(path.join(folder, "initdb")));

/** The programs of PostgreSQL by their paths, for `describeWith`. */
export const POSTGRES_PROGRAMS = ["initdb", "pg_ctl", "pg_dump", "pg_restore", "pg_basebackup"].map((name) =>
  postgresBin ? path.join(postgresBin, name) : name,
);

/** A PostgreSQL of an operator's, whose WAL is archived. */
export type OwnPostgres = Awaited<ReturnType<typeof startOwnPostgres>>;

/** Makes a folder with an archive for WAL, and a cluster `data` in it that is running. */
export async function startOwnPostgres() {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-restore-"));
  const port = await anyPort();
  // PostgreSQL refuses to run as root.
  const ids = await serverIds();
  await chmod(folder, 0o755);
  for (const name of ["", "archive", "backup"]) {
    const each = path.join(folder, name);
    await mkdir(each, { recursive: true });
    if (ids) await chown(each, ids.uid, ids.gid);
  }
  const program = (name: string) => path.join(postgresBin as string, name);
  /** Runs one of PostgreSQL's programs as its user; returns what it prints. */
  const call = async (name: string, ...args: string[]) =>
    (await run(program(name), args, { ...ids, cwd: folder, maxBuffer: 2 ** 26 })).stdout.trim();
  const running = new Set<string>();
  const postgres = {
    folder,
    /** The address of a database, for the superuser unless told otherwise. */
    url: (database: string, user = "postgres") => `postgres://${user}@127.0.0.1:${port}/${database}`,
    call,
    /** Starts a server on a data folder, and waits until it takes writes. */
    async start(data: string) {
      // Its output is a pipe that the server would keep open.
      const child = spawn(program("pg_ctl"), ["start", "--wait", "--pgdata", data, "--log", `${data}.log`], {
        ...ids,
        cwd: folder,
        stdio: "ignore",
      });
      const [code] = await once(child, "exit");
      if (code !== 0) throw new Error(`pg_ctl start ended with ${code}; see ${data}.log`);
      running.add(data);
    },
    async stop(data: string) {
      running.delete(data);
      await call("pg_ctl", "stop", "--wait", "--mode=fast", "--pgdata", data);
    },
    async end() {
      for (const data of running) await postgres.stop(data);
      await rm(folder, { recursive: true, force: true });
    },
  };
  const data = path.join(folder, "data");
  await call("initdb", "--pgdata", data, "--username=postgres", "--auth=trust", "--encoding=UTF8");
  await appendFile(
    path.join(data, "postgresql.conf"),
    [
      "",
      `port = ${port}`,
      "listen_addresses = '127.0.0.1'",
      `unix_socket_directories = '${folder}'`,
      "archive_mode = on",
      `archive_command = 'test ! -f ${folder}/archive/%f && cp %p ${folder}/archive/%f'`,
      "",
    ].join("\n"),
  );
  await postgres.start(data);
  return postgres;
}

/** Prepares a stopped server to recover from the archive up to a moment at its next start. */
export async function recoverUpTo(postgres: OwnPostgres, data: string, moment: string): Promise<void> {
  await appendFile(
    path.join(data, "postgresql.auto.conf"),
    [
      `restore_command = 'cp ${postgres.folder}/archive/%f %p'`,
      `recovery_target_time = '${moment}'`,
      "recovery_target_action = 'promote'",
      "",
    ].join("\n"),
  );
  await writeFile(path.join(data, "recovery.signal"), "");
}

/** The user that runs the server: `postgres` instead of root; undefined for the user of this process. */
async function serverIds(): Promise<{ uid: number; gid: number } | undefined> {
  if (userInfo().uid !== 0) return undefined;
  const id = async (option: string) => Number((await run("id", [option, "postgres"])).stdout);
  return { uid: await id("-u"), gid: await id("-g") };
}
