import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { compareWithMain } from "../../scripts/check-breaking.ts";
import { newFolder } from "./project.ts";

const FILE = "proto/a/v1/a.proto";
const PROTO = 'syntax = "proto3";\n\npackage a.v1;\n\nmessage A {\n  string name = 1;\n}\n';
const MORE = PROTO.replace("}", "  string more = 2;\n}");
const project = () =>
  newFolder({
    "buf.yaml": "version: v2\nmodules:\n  - path: proto\nbreaking:\n  use: [FILE]\n",
    [FILE]: PROTO,
  });

function git(cwd: string, ...args: string[]): void {
  execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...args], { cwd });
}

/** A clone whose main has the project, and the field `more` since the branch `work` left it. */
function clone(): string {
  const root = project();
  git(root, "init", "--quiet", "--initial-branch=main");
  git(root, "add", ".");
  git(root, "commit", "--quiet", "--message=a");
  git(root, "branch", "work");
  writeFileSync(path.join(root, FILE), MORE);
  git(root, "commit", "--quiet", "--all", "--message=b");
  git(root, "switch", "--quiet", "work");
  return root;
}

test("additions to main after a branch began are not reported as missing; a breaking change is reported with its place", () => {
  const root = clone();
  const brokenBy = (proto: string) => {
    writeFileSync(path.join(root, FILE), proto);
    return compareWithMain(root);
  };
  expect(compareWithMain(root)).toEqual({ against: "main", broken: "" });
  expect(brokenBy(PROTO.replace("}", "  string other = 3;\n}")).broken).toBe("");
  expect(brokenBy(PROTO.replace("= 1", "= 2")).broken).toMatch(/proto\/a\/v1\/a\.proto:\d+:\d+:.*field "1"/);
  expect(brokenBy("not a proto file").broken).toContain("a.proto:1:1:");
});

test("without a main there is nothing to compare with", () => {
  expect(compareWithMain(project())).toEqual({ against: undefined, broken: "" });
});
