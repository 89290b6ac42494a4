import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/**
 * The release that upgrade tests compare with: its migrations and stored histories are frozen, and
 * `side-by-side.ts` runs its worker beside this one.
 */
export const RELEASED = { version: "0.4.0", commit: "5d14ac1dc7685cc4a8846387a05b06a723f6b7ef" } as const;

const PROJECT = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

/** The released version, ready to be started. */
export interface ReleasedCheckout {
  folder: string;
  remove(): Promise<void>;
}

/** Checks the release out into a worktree, with this project's packages where it needs the same ones. */
export async function checkOutRelease(): Promise<ReleasedCheckout> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-released-"));
  const git = (...args: string[]) => run("git", args, { cwd: PROJECT });
  const packages = path.join(folder, "node_modules");
  async function remove(): Promise<void> {
    // A link, or packages of its own: in neither case does git look into them.
    await rm(packages, { recursive: true, force: true });
    await git("worktree", "remove", "--force", folder);
  }
  await git("worktree", "add", "--detach", folder, RELEASED.commit);
  try {
    if ((await lockedPackages(folder)) === (await lockedPackages(PROJECT))) {
      await symlink(path.join(PROJECT, "node_modules"), packages, "dir");
    } else {
      await run("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline"], { cwd: folder });
    }
    // As `npm start` does first.
    await run(process.execPath, ["--disable-warning=ExperimentalWarning", "scripts/build.ts"], {
      cwd: folder,
    });
    return { folder, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** What package-lock.json installs, without the project's own version. */
async function lockedPackages(folder: string): Promise<string> {
  const { packages } = JSON.parse(await readFile(path.join(folder, "package-lock.json"), "utf8")) as {
    packages: Record<string, { version?: string }>;
  };
  return JSON.stringify({ ...packages, "": { ...packages[""], version: undefined } });
}
