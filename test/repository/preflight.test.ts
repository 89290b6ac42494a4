import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, existsSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { newFolder, read, root } from "./project.ts";

const preflight = path.join(root, "scripts/preflight.cjs");
const pretend = (version: string) =>
  `Object.defineProperty(process.versions, "node", { value: "${version}" }); require(${JSON.stringify(preflight)})`;

/** A Node of the system's that is older than what the service needs, where there is one. */
const olderNode = ["/usr/bin/node", "/usr/local/bin/node"].find(
  (file) =>
    existsSync(file) && Number.parseInt(String(execFileSync(file, ["-p", "process.versions.node"])), 10) < 24,
);

function outputOf(program: string, args: string[], cwd = root): [status: number | null, stderr: string] {
  const { status, stderr } = spawnSync(program, args, { cwd, encoding: "utf8" });
  return [status, stderr];
}

test("preflight is content with the Node that npm install brings, and says nothing", () => {
  expect(outputOf(process.execPath, [preflight])).toEqual([0, ""]);
});

const UNSUITABLE = [
  { which: "Node 0.12.18", program: process.execPath, args: ["-e", pretend("0.12.18")] },
  { which: "Node 24.4.1", program: process.execPath, args: ["-e", pretend("24.4.1")] },
  ...(olderNode ? [{ which: "the system's older Node", program: olderNode, args: [preflight] }] : []),
];

test.each(UNSUITABLE)("preflight under $which ends with 1 and says what to do", ({ program, args }) => {
  const [status, stderr] = outputOf(program, args);
  expect(status).toBe(1);
  expect(stderr).toMatch(/This needs Node 24\.5 or later, and runs under Node [\d.]+\.[\s\S]*npm rebuild/);
});

test("npm install where Node 26 does not run, because libatomic is missing, fails and says what to install", () => {
  const { postinstall } = JSON.parse(read("package.json")).scripts;
  const clone = newFolder({
    "package.json": JSON.stringify({ name: "clone", scripts: { postinstall } }),
    // As the linker ends it. npm itself runs under another Node.
    "node_modules/.bin/node": "#!/bin/sh\necho libatomic.so.1: not found >&2\nexit 127\n",
  });
  chmodSync(path.join(clone, "node_modules/.bin/node"), 0o755);
  const [status, stderr] = outputOf("npm", ["install", "--offline", "--no-audit", "--no-fund"], clone);
  expect(status).toBe(1);
  expect(stderr).toContain("apt-get install libatomic1");
});

test("preflight in a clone without dependencies ends with 1 and says to install them", () => {
  const clone = newFolder({ "preflight.cjs": read("scripts/preflight.cjs") });
  const [status, stderr] = outputOf(process.execPath, [path.join(clone, "preflight.cjs")]);
  expect(status).toBe(1);
  expect(stderr).toContain("Run `npm install` first.");
});
