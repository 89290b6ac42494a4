import { execFile, execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const root = fileURLToPath(new URL("../..", import.meta.url));
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

test("preflight in a clone without dependencies ends with 1 and says to install them", () => {
  const clone = realpathSync(mkdtempSync(path.join(os.tmpdir(), "webhook-clone-")));
  onTestFinished(() => rmSync(clone, { recursive: true }));
  mkdirSync(path.join(clone, "scripts"));
  copyFileSync(preflight, path.join(clone, "scripts/preflight.cjs"));
  const { status, stderr } = runWith(process.execPath, [path.join(clone, "scripts/preflight.cjs")]);
  expect(status).toBe(1);
  expect(stderr).toContain("Run `npm install` first.");
});
