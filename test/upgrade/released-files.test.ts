import { execFileSync } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { RELEASED } from "./release.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const MIGRATIONS = "src/schema/migrations";
const HISTORIES = `test/upgrade/histories/${RELEASED.version}`;

function git(...args: string[]): string {
  try {
    return execFileSync("git", args, { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 });
  } catch (cause) {
    throw new Error(`git ${args.join(" ")} failed; this needs a full clone, not a shallow one`, { cause });
  }
}

/** The files of a folder at the released commit, by their paths. */
function releasedFiles(folder: string): Record<string, string> {
  const files = git("ls-tree", "-r", "--name-only", RELEASED.commit, "--", folder).trim().split("\n");
  return Object.fromEntries(
    files.filter(Boolean).map((file) => [file, git("show", `${RELEASED.commit}:${file}`)]),
  );
}

const today = (files: string[]) =>
  Object.fromEntries(files.map((file) => [file, readFileSync(path.join(root, file), "utf8")]));

test("released migrations stay as they were released, and later ones come after them", () => {
  const released = releasedFiles(MIGRATIONS);
  const names = Object.keys(released);
  expect(names.length).toBeGreaterThan(0);
  expect(today(names)).toEqual(released);
  const all = globSync(`${MIGRATIONS}/*.ts`, { cwd: root }).sort();
  expect(all.slice(0, names.length)).toEqual(names);
});

test("released histories stay as they were released", () => {
  const released = releasedFiles(HISTORIES);
  expect(today(Object.keys(released))).toEqual(released);
});

test("the lock file, the client package and the Helm chart have the version of the service", () => {
  const read = (file: string) => readFileSync(path.join(root, file), "utf8");
  const { version } = JSON.parse(read("package.json")) as { version: string };
  const lock = JSON.parse(read("package-lock.json"));
  const client = JSON.parse(read("clients/package.json"));
  expect([lock.version, lock.packages[""].version, client.version]).toEqual([version, version, version]);
  expect(read("deploy/helm/Chart.yaml").split("\n")).toContain(`appVersion: ${version}`);
});

test("the changelog names the commit of the release", () => {
  const changelog = readFileSync(path.join(root, "CHANGELOG.md"), "utf8");
  const headings = changelog.split("\n").filter((line) => line.startsWith(`## [${RELEASED.version}]`));
  expect(headings).toEqual([expect.stringContaining(RELEASED.commit)]);
  expect(git("cat-file", "-t", RELEASED.commit).trim()).toBe("commit");
});
