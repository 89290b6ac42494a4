import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { chown, readdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { Progress } from "../../process/index.ts";
import { serverEnvironment } from "../process/processes.ts";
import { excerpt } from "../process/server-process.ts";
import { keepSecret, readSecretFile } from "../process/state-file.ts";
import type { PostgresBinaries } from "./postgres-binaries.ts";
import type { Login } from "./postgres-client.ts";
import type { PostgresHome } from "./postgres-home.ts";

/** The superuser created by initdb. Used only while starting the embedded database. */
const SUPERUSER = "webhook";
/** The role of the service. It owns its database and has no other privileges. */
const SERVICE_ROLE = "webhook_service";

/** The file with the superuser's password, mode 0600. */
const superuserFile = (dataDir: string) => path.join(dataDir, "postgres-password");
/** The file with the password of the service's role, mode 0600. */
const serviceFile = (dataDir: string) => path.join(dataDir, "postgres-service-password");

const makePassword = () => randomBytes(24).toString("base64url");

/** The login of the service's role. Generates its password at the first start. */
export async function ensureServiceLogin(dataDir: string): Promise<Login> {
  return { role: SERVICE_ROLE, password: await keepSecret(serviceFile(dataDir), makePassword) };
}

/** The login of the service without creating anything; null before the first start. */
export async function findServiceLogin(dataDir: string): Promise<Login | null> {
  const password = await readSecretFile(serviceFile(dataDir));
  return password === null ? null : { role: SERVICE_ROLE, password };
}

/**
 * Ensures that `home` has a database cluster whose superuser has the password stored in `dataDir`.
 *
 * @throws Error with the output of initdb if it fails. An incomplete cluster is never used
 */
export async function ensureCluster(
  dataDir: string,
  home: PostgresHome,
  binaries: PostgresBinaries,
  progress: Progress,
): Promise<Login> {
  const kept = await readSecretFile(superuserFile(dataDir));
  const password = await keepSecret(superuserFile(dataDir), makePassword);
  if (!existsSync(home.data)) {
    progress("creating the database (first start)");
    await initialise(home, binaries, password);
  } else if (kept === null) {
    progress("the database's password was lost; setting a new one");
    // In PostgreSQL's single-user mode, which requires none and reads the statement from its input.
    const args = ["--single", "-D", home.data, "-c", "log_statement=none", "postgres"];
    await run(home, binaries.postgres, args, `alter role ${SUPERUSER} password '${password}';\n`);
  }
  return { role: SUPERUSER, password };
}

/**
 * Initializes the cluster under a temporary name and renames it when complete, so that an interrupted initdb leaves
 * no partial cluster.
 */
async function initialise(home: PostgresHome, { initdb }: PostgresBinaries, password: string): Promise<void> {
  for (const name of await readdir(home.folder)) await rm(path.join(home.folder, name), { recursive: true });
  const draft = path.join(home.folder, `draft-${randomUUID()}`);
  const secret = path.join(home.folder, `secret-${randomUUID()}`);
  try {
    // A file, because command lines are visible to all users. Owned by the user that initdb runs as.
    await writeFile(secret, password, { mode: 0o600 });
    if (home.owner !== null) await chown(secret, home.owner.uid, home.owner.gid);
    const access = ["-U", SUPERUSER, "-A", "scram-sha-256", `--pwfile=${secret}`];
    await run(home, initdb, ["-D", draft, ...access, "--encoding=UTF8", "--locale=C"]);
  } finally {
    await rm(secret, { force: true });
  }
  await rename(draft, home.data);
}

async function run(home: PostgresHome, file: string, args: string[], input = ""): Promise<void> {
  const child = spawn(file, args, { cwd: home.folder, env: serverEnvironment(), ...home.owner });
  const ended = new Promise<number | null>((resolve, reject) =>
    child.once("error", reject).once("close", resolve),
  );
  child.stdin.on("error", () => {}); // The process ended without reading; its exit code is checked below.
  child.stdin.end(input);
  const [code, output, errors] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
  if (code === 0) return;
  const said = excerpt((errors || output).trim());
  if (/user does not exist/.test(said)) {
    throw new Error(
      `${said}. PostgreSQL requires a user with a name in /etc/passwd: start as such a user, or set DATABASE_URL`,
    );
  }
  throw new Error(`${path.basename(file)} failed (${code ?? "killed"}):\n${said}`);
}
