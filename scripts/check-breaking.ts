import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The result of comparing proto/ with main's. */
export interface Comparison {
  /** The branch compared with; undefined if there is none. */
  against: string | undefined;
  /** Breaking changes for clients of main, one per line; empty if none. */
  broken: string;
}

/**
 * Compares the proto files of a working tree with those of main at the merge base, by the rules of buf.yaml. Later
 * changes on main are ignored, because they are not merged yet.
 *
 * @param root a git working tree with buf.yaml and proto/
 * @throws Error if buf or git fails
 */
export function compareWithMain(root: string): Comparison {
  const against = ["main", "origin/main"].find((ref) => git(root, ["merge-base", ref, "HEAD"]).status === 0);
  if (against === undefined) return { against, broken: "" };
  const parted = git(root, ["merge-base", against, "HEAD"]).stdout.toString().trim();
  const folder = mkdtempSync(path.join(os.tmpdir(), "proto-of-main-"));
  try {
    // Only proto/ is compared; its imports are third-party files.
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
    // buf's exit code for findings, including unreadable files.
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
      "skipped: this clone has no main branch or no history of it; get them with `git fetch --unshallow origin main`",
    );
    return 0;
  }
  if (broken === "") {
    console.log(`proto/ breaks no client of ${against}`);
    return 0;
  }
  console.error(broken);
  console.error(
    `proto/ breaks clients of ${against}. Numbers and names must never change: add new fields, and mark unused ones as deprecated.`,
  );
  return 1;
}

if (import.meta.main) process.exitCode = main();
