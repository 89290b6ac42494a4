import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { compareWithMain } from "../../scripts/check-breaking.ts";
import { newFolder } from "./project.ts";

const BUF = "version: v2\nmodules:\n  - path: proto\nbreaking:\n  use: [FILE]\n";
const PROTO = 'syntax = "proto3";\n\npackage a.v1;\n\nmessage A {\n  string name = 1;\n}\n';

function project(): { root: string; write: (proto: string) => void } {
  const root = newFolder();
  const write = (proto: string) => writeFileSync(path.join(root, "proto/a/v1/a.proto"), proto);
  mkdirSync(path.join(root, "proto/a/v1"), { recursive: true });
  writeFileSync(path.join(root, "buf.yaml"), BUF);
  write(PROTO);
  return { root, write };
}

function git(root: string, ...args: string[]): void {
  execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...args], { cwd: root });
}

function commit(root: string): void {
  git(root, "add", ".");
  git(root, "commit", "--quiet", "--message=a");
}

function commitToMain(root: string): void {
  git(root, "init", "--quiet", "--initial-branch=main");
  commit(root);
}

test("a field that was added breaks nobody; one that changed its number is told with its place", () => {
  const { root, write } = project();
  commitToMain(root);
  write(PROTO.replace("}", "  string more = 2;\n}"));
  expect(compareWithMain(root)).toEqual({ against: "main", broken: "" });
  write(PROTO.replace("= 1", "= 2"));
  expect(compareWithMain(root).broken).toMatch(/proto\/a\/v1\/a\.proto:\d+:\d+:.*field "1"/);
});

test("what came to main after a branch left it is not missing on the branch", () => {
  const { root, write } = project();
  commitToMain(root);
  git(root, "branch", "work");
  write(PROTO.replace("}", "  string more = 2;\n}"));
  commit(root);
  git(root, "switch", "--quiet", "work");
  expect(compareWithMain(root)).toEqual({ against: "main", broken: "" });
});

test("proto files that cannot be read do not pass", () => {
  const { root, write } = project();
  commitToMain(root);
  write("not a proto file");
  expect(compareWithMain(root).broken).toContain("a.proto:1:1:");
});

test("without a main there is nothing to compare with", () => {
  const { root } = project();
  expect(compareWithMain(root)).toEqual({ against: undefined, broken: "" });
});
