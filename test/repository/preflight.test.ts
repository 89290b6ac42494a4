import { execFile, execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { newFolder, read, root } from "./project.ts";

const preflight = path.join(root, "scripts/preflight.cjs");

/** A Node of the system's that is older than what the service needs, where there is one. */
const olderNode = ["/usr/bin/node", "/usr/local/bin/node"].find((file) => {
  if (!existsSync(file)) return false;
  const [major = 0] = String(execFileSync(file, ["-p", "process.versions.node"]))
    .split(".")
    .map(Number);
  return major < 24;
});

function runWith(node: string, args: string[]): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(node, args, { encoding: "utf8" });
  return { status, stderr };
}

test("preflight is content with the Node that npm install brings, and says nothing", async () => {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [preflight]);
  expect(stdout + stderr).toBe("");
});

test.each(["0.12.18", "18.20.8", "24.4.1"])(
  "preflight under Node %s ends with 1 and says what to do",
  (version) => {
    const pretend = `Object.defineProperty(process.versions, "node", { value: "${version}" });`;
    const { status, stderr } = runWith(process.execPath, [
      "-e",
      `${pretend} require(${JSON.stringify(preflight)})`,
    ]);
    expect(status).toBe(1);
    expect(stderr).toContain(`This needs Node 24.5 or later, and runs under Node ${version}.`);
    expect(stderr).toContain("npm rebuild");
  },
);

test.skipIf(olderNode === undefined)("preflight can be read by an older Node that is really there", () => {
  const { status, stderr } = runWith(olderNode as string, [preflight]);
  expect(status).toBe(1);
  expect(stderr).toContain("This needs Node 24.5 or later");
});

test("npm install where Node 26 does not run, because libatomic is missing, fails and says what to install", () => {
  const clone = newFolder();
  const { scripts } = JSON.parse(read("package.json"));
  const { postinstall } = scripts;
  writeFileSync(
    path.join(clone, "package.json"),
    JSON.stringify({ name: "clone", scripts: { postinstall } }),
  );
  const programs = path.join(clone, "node_modules/.bin");
  mkdirSync(programs, { recursive: true });
  // As the linker ends it. npm itself runs under another Node.
  writeFileSync(path.join(programs, "node"), "#!/bin/sh\necho libatomic.so.1: not found >&2\nexit 127\n", {
    mode: 0o755,
  });
  const { status, stderr } = spawnSync("npm", ["install", "--offline", "--no-audit", "--no-fund"], {
    cwd: clone,
    encoding: "utf8",
  });
  expect(status).toBe(1);
  expect(stderr).toContain("apt-get install libatomic1");
});

test("preflight in a clone without dependencies ends with 1 and says to install them", () => {
  const clone = newFolder();
  mkdirSync(path.join(clone, "scripts"));
  copyFileSync(preflight, path.join(clone, "scripts/preflight.cjs"));
  const { status, stderr } = runWith(process.execPath, [path.join(clone, "scripts/preflight.cjs")]);
  expect(status).toBe(1);
  expect(stderr).toContain("Run `npm install` first.");
});
