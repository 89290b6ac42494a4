import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { access, chown, readdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import { serverEnvironment } from "./child-environment.ts";
import { excerpt } from "./log-file.ts";
import type { PostgresBinaries } from "./postgres-binaries.ts";
import { ROLE } from "./postgres-client.ts";
import type { PostgresHome } from "./postgres-home.ts";
import type { Progress } from "./progress.ts";
import { keepSecret, readText } from "./state-file.ts";

/** Where the role's password is kept, 0600. */
export function passwordFile(dataDir: string): string {
  return path.join(dataDir, "postgres-password");
}

/**
 * Makes sure that `home` has a database cluster whose password is the one kept in `dataDir`, and returns that.
 *
 * @throws Error with what initdb said when it fails; a cluster half made is never used.
 */
export async function ensureCluster(
  dataDir: string,
  home: PostgresHome,
  binaries: PostgresBinaries,
  progress: Progress,
): Promise<string> {
  const kept = await readText(passwordFile(dataDir));
  const password = await keepSecret(passwordFile(dataDir), () => randomBytes(24).toString("base64url"));
  if (!(await hasCluster(home))) {
    progress("making the database (first start)");
    await initialise(home, binaries, password);
  } else if (kept === null) {
    progress("the database's password was lost; setting a new one");
    await setPassword(home, binaries, password);
  }
  return password;
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
      ROLE,
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
  const statement = `alter role ${ROLE} password '${password}';\n`;
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
