import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { access, chown, readdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import type { Progress } from "../../process/progress.ts";
import { serverEnvironment } from "../process/child-environment.ts";
import { excerpt } from "../process/log-file.ts";
import { keepSecret, readText } from "../process/state-file.ts";
import type { PostgresBinaries } from "./postgres-binaries.ts";
import { type Login, SERVICE_ROLE, SUPERUSER } from "./postgres-client.ts";
import type { PostgresHome } from "./postgres-home.ts";

/** Where the superuser's password is kept, 0600. */
function superuserFile(dataDir: string): string {
  return path.join(dataDir, "postgres-password");
}

/** Where the password of the service's role is kept, 0600. */
function serviceFile(dataDir: string): string {
  return path.join(dataDir, "postgres-service-password");
}

/** Makes a password at the first start; after that, and in later starts, it is the kept one. */
export async function ensureServiceLogin(dataDir: string): Promise<Login> {
  return { role: SERVICE_ROLE, password: await keepSecret(serviceFile(dataDir), makePassword) };
}

/**
 * Whom the service connects as, without making anything; null before the first start. A database of an earlier version,
 * which was not started since, has the superuser alone.
 */
export async function findServiceLogin(dataDir: string): Promise<Login | null> {
  const service = await readText(serviceFile(dataDir));
  if (service !== null) return { role: SERVICE_ROLE, password: service.trim() };
  const superuser = await readText(superuserFile(dataDir));
  return superuser === null ? null : { role: SUPERUSER, password: superuser.trim() };
}

const makePassword = () => randomBytes(24).toString("base64url");

/**
 * Makes sure that `home` has a database cluster whose superuser has the password that is kept in `dataDir`.
 *
 * @throws Error with what initdb said when it fails; a cluster half made is never used.
 */
export async function ensureCluster(
  dataDir: string,
  home: PostgresHome,
  binaries: PostgresBinaries,
  progress: Progress,
): Promise<Login> {
  const kept = await readText(superuserFile(dataDir));
  const password = await keepSecret(superuserFile(dataDir), makePassword);
  if (!(await hasCluster(home))) {
    progress("making the database (first start)");
    await initialise(home, binaries, password);
  } else if (kept === null) {
    progress("the database's password was lost; setting a new one");
    await setPassword(home, binaries, password);
  }
  return { role: SUPERUSER, password };
}

async function hasCluster({ data }: PostgresHome): Promise<boolean> {
  return access(data).then(
    () => true,
    () => false,
  );
}

/** Made under another name and renamed when whole, so that a kill amid initdb leaves nothing to trip over. */
async function initialise(home: PostgresHome, { initdb }: PostgresBinaries, password: string): Promise<void> {
  for (const name of await readdir(home.folder)) await rm(path.join(home.folder, name), { recursive: true });
  const draft = path.join(home.folder, `draft-${randomUUID()}`);
  const secret = path.join(home.folder, `secret-${randomUUID()}`);
  try {
    // A file, because the command line is everybody's to read; of its owner, because it runs as that user.
    await writeFile(secret, password, { mode: 0o600 });
    if (home.owner !== null) await chown(secret, home.owner.uid, home.owner.gid);
    const locale = ["--encoding=UTF8", "--locale=C"];
    await run(home, initdb, [
      "-D",
      draft,
      "-U",
      SUPERUSER,
      "-A",
      "scram-sha-256",
      `--pwfile=${secret}`,
      ...locale,
    ]);
  } finally {
    await rm(secret, { force: true });
  }
  await rename(draft, home.data);
}

/** PostgreSQL's single-user mode asks for no password, and takes the statement from its input. */
async function setPassword(
  home: PostgresHome,
  { postgres }: PostgresBinaries,
  password: string,
): Promise<void> {
  const statement = `alter role ${SUPERUSER} password '${password}';\n`;
  await run(home, postgres, ["--single", "-D", home.data, "-c", "log_statement=none", "postgres"], statement);
}

async function run(home: PostgresHome, file: string, args: string[], input = ""): Promise<void> {
  const child = spawn(file, args, {
    cwd: home.folder,
    env: serverEnvironment(),
    windowsHide: true,
    ...home.owner,
  });
  const ended = new Promise<number | null>((resolve, reject) =>
    child.once("error", reject).once("close", resolve),
  );
  child.stdin.on("error", () => {}); // It ended without reading; its code tells.
  child.stdin.end(input);
  const [code, output, errors] = await Promise.all([ended, text(child.stdout), text(child.stderr)]);
  if (code === 0) return;
  const said = excerpt((errors || output).trim());
  if (/user does not exist/.test(said)) {
    throw new Error(
      `${said}. PostgreSQL needs a user with a name (in /etc/passwd): start as one, or set DATABASE_URL`,
    );
  }
  throw new Error(`${path.basename(file)} failed (${code ?? "killed"}):\n${said}`);
}
