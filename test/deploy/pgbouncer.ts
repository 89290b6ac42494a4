import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import pg from "pg";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { anyPort } from "../support/any-port.ts";
import { startProgram } from "../support/program.ts";
import { eventually } from "../support/wait.ts";

/** A running PgBouncer in front of one PostgreSQL. */
export type PgBouncer = Awaited<ReturnType<typeof startPgBouncer>>;

/** Finds a PgBouncer, before 1.21 or since: that of an environment variable, or else `pgbouncer` on PATH. */
export function findPgBouncer(variable: string, which: "before" | "since") {
  const file = process.env[variable] ?? "pgbouncer";
  const told = String(spawnSync(file, ["--version"], { encoding: "utf8" }).stdout);
  const [, version, major, minor] = /^PgBouncer ((\d+)\.(\d+)\S*)/i.exec(told) ?? [];
  const isBefore = Number(major) === 1 && Number(minor) < 21;
  const isMissing = version === undefined || isBefore !== (which === "before");
  const found = isMissing ? `skipped: ${file} is ${version ?? "missing"}; set ${variable}` : version;
  return { file, isMissing, name: `PgBouncer ${which} 1.21 (${found})` };
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
) {
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
    await eventually(async () => {
      const socket = connect(port, "127.0.0.1");
      await once(socket, "connect");
      socket.destroy();
    });
  } catch (error) {
    await stop();
    throw new Error(`PgBouncer did not start: ${program.printed()}`, { cause: error });
  }
  const through = new URL(databaseUrl);
  through.hostname = "127.0.0.1";
  through.port = String(port);
  return {
    /** The database's address by way of PgBouncer. */
    url: through.href,
    /** PEM file of the authority of its certificate. It speaks TLS with those who ask for it. */
    authorityFile: inFolder("authority.pem"),
    /** The answer to a command of its console, such as `show stats`. */
    async console(command: string): Promise<Record<string, string>[]> {
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
