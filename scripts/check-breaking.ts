import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** What came of holding proto/ against main's. */
export interface Comparison {
  /** The branch held against; undefined when there is none. */
  against: string | undefined;
  /** What clients of main would stumble over, one a line; empty when nothing. */
  broken: string;
}

/**
 * Holds the proto files of a working tree against those of main where the two parted, by the rules of buf.yaml. What
 * came to main since is not missing here, it is yet to be merged.
 *
 * @param root a git working tree with buf.yaml and proto/
 * @throws Error when buf or git cannot do their part
 */
export function compareWithMain(root: string): Comparison {
  const against = ["main", "origin/main"].find((ref) => git(root, ["merge-base", ref, "HEAD"]).status === 0);
  if (against === undefined) return { against, broken: "" };
  const parted = git(root, ["merge-base", against, "HEAD"]).stdout.toString().trim();
  const folder = mkdtempSync(path.join(os.tmpdir(), "proto-of-main-"));
  try {
    // Only proto/ is main's: what it imports of others is not ours to break.
    for (const name of ["buf.yaml", "third_party"]) {
      const from = path.join(root, name);
      if (existsSync(from)) cpSync(from, path.join(folder, name), { recursive: true });
    }
    const modules = path.join(root, "node_modules");
    if (existsSync(modules)) symlinkSync(modules, path.join(folder, "node_modules"), "junction");
    mkdirSync(path.join(folder, "proto"));
    const archive = git(root, ["archive", `${parted}:proto`]);
    must("git archive", archive);
    must("tar", run("tar", ["-x", "-C", path.join(folder, "proto")], root, archive.stdout));

    const found = run("buf", ["breaking", "--against", folder], root);
    // buf's own exit code for findings; files that it cannot read are among them.
    if (found.status === 100) return { against, broken: found.stdout.toString().trim() };
    must("buf breaking", found);
    return { against, broken: "" };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

type Outcome = ReturnType<typeof run>;

function run(program: string, args: string[], cwd: string, input?: Buffer) {
  const shell = process.platform === "win32";
  return spawnSync(program, args, { cwd, shell, maxBuffer: 2 ** 28, ...(input ? { input } : {}) });
}

function git(root: string, args: string[]): Outcome {
  return run("git", args, root);
}

function must(what: string, { status, error, stderr }: Outcome): void {
  if (status !== 0) throw new Error(`${what} failed: ${error?.message ?? stderr.toString().trim()}`);
}

function main(): number {
  const { against, broken } = compareWithMain(fileURLToPath(new URL("..", import.meta.url)));
  if (against === undefined) {
    console.log(
      "nothing to compare proto/ with: this copy has no main, or not its past (`git fetch --unshallow origin main` gets them)",
    );
    return 0;
  }
  if (broken === "") {
    console.log(`proto/ breaks no client of ${against}`);
    return 0;
  }
  console.error(broken);
  console.error(
    `proto/ breaks clients of ${against}. Add instead: numbers and names are kept for ever; what is no longer used is marked deprecated.`,
  );
  return 1;
}

if (import.meta.main) process.exitCode = main();
