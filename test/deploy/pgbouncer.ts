import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { anyPort } from "./any-port.ts";
import { startProgram } from "./program.ts";
import { eventually } from "./wait.ts";

/** A running PgBouncer in front of one PostgreSQL. */
export interface PgBouncer {
  /** The database's address by way of PgBouncer. */
  url: string;
  /** PEM file of the authority of its certificate. It speaks TLS with those who ask for it. */
  authorityFile: string;
  /** The answer to a command of its console, such as `show stats`. */
  console(command: string): Promise<Record<string, string>[]>;
  stop(): Promise<void>;
}

/** A PgBouncer program of this machine, or why there is none. */
export type Program = { file: string; version: string } | { missing: string };

/**
 * Finds a PgBouncer program: the one that an environment variable names, or else `pgbouncer` on PATH.
 *
 * @param variable the name of the environment variable
 * @param accepts whether a version, such as `[1, 18]`, is one that the tests need
 * @param wanted the versions that it accepts, in words
 */
export function findPgBouncer(
  variable: string,
  accepts: (version: readonly [number, number]) => boolean,
  wanted: string,
): Program {
  const file = process.env[variable] ?? "pgbouncer";
  const hint = `set ${variable} to a PgBouncer ${wanted}`;
  let told: string;
  try {
    told = execFileSync(file, ["--version"], { encoding: "utf8" });
  } catch (error) {
    return { missing: `${file} --version failed (${(error as NodeJS.ErrnoException).code}); ${hint}` };
  }
  const [, version = "", major, minor] = /^PgBouncer ((\d+)\.(\d+)\S*)/i.exec(told) ?? [];
  if (!accepts([Number(major), Number(minor)])) return { missing: `${file} is ${version}; ${hint}` };
  return { file, version };
}

/**
 * Starts PgBouncer in front of the PostgreSQL at `databaseUrl`, for its user, and waits until it accepts connections.
 *
 * @param settings further settings, or others than these, by name
 */
export async function startPgBouncer(
  file: string,
  databaseUrl: string,
  settings: Record<string, string> = {},
): Promise<PgBouncer> {
  const target = new URL(databaseUrl);
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-pgbouncer-"));
  const port = await anyPort();
  const inFolder = (name: string) => path.join(folder, name);
  const authority = await createLocalAuthority();
  const certificate = await authority.issue(["localhost", "127.0.0.1"]);
  const lines = Object.entries({
    listen_addr: "127.0.0.1",
    listen_port: String(port),
    unix_socket_dir: "",
    auth_type: "scram-sha-256",
    auth_file: inFolder("users.txt"),
    admin_users: target.username,
    pool_mode: "transaction",
    client_tls_sslmode: "prefer",
    client_tls_cert_file: inFolder("server.crt"),
    client_tls_key_file: inFolder("server.key"),
    ...settings,
  }).map(([name, value]) => `${name} = ${value}`);
  const databases = `* = host=${target.hostname} port=${target.port}`;
  const password = decodeURIComponent(target.password);
  await Promise.all([
    writeFile(inFolder("pgbouncer.ini"), `[databases]\n${databases}\n[pgbouncer]\n${lines.join("\n")}\n`),
    writeFile(inFolder("users.txt"), `"${target.username}" "${password}"\n`),
    writeFile(inFolder("authority.pem"), authority.cert),
    writeFile(inFolder("server.crt"), certificate.cert),
    writeFile(inFolder("server.key"), certificate.key),
  ]);
  // It does not run as root.
  const isRoot = process.getuid?.() === 0;
  if (isRoot) await chmod(folder, 0o755);
  const program = startProgram([file, ...(isRoot ? ["--user=nobody"] : []), inFolder("pgbouncer.ini")]);
  const stop = async () => {
    // What SIGTERM does differs between versions.
    await program.end("SIGKILL");
    await rm(folder, { recursive: true, force: true });
  };
  try {
    await eventually(() => answers(port));
  } catch (error) {
    await stop();
    throw new Error(`PgBouncer did not start: ${program.printed()}`, { cause: error });
  }
  const through = new URL(databaseUrl);
  through.hostname = "127.0.0.1";
  through.port = String(port);
  return {
    url: through.href,
    authorityFile: inFolder("authority.pem"),
    async console(command) {
      const own = new URL(through);
      own.pathname = "pgbouncer";
      const client = new pg.Client({ connectionString: own.href });
      await client.connect();
      try {
        return (await client.query(command)).rows;
      } finally {
        await client.end();
      }
    },
    stop,
  };
}

/** Resolves when it accepts a connection; rejects when it does not. */
async function answers(port: number): Promise<void> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
}
