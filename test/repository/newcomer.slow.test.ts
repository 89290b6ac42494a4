import { execFileSync, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { canReach, isRoot, NOBODY } from "../../src/lib/dev-servers/process/owner.ts";
import { findTemporalCli } from "../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { part } from "../support/parts.ts";
import { node, ROOT, startProgram } from "../support/program.ts";

/** What `git clone` does not bring, but for what an earlier run has unpacked and compiled, which takes long. */
/** `.cache`, but for the browser, is written by other tests of this run meanwhile. */
const NOT_CLONED = [".git", ".data", ".cache", "node_modules"];
const [UID, GID] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];

/** The parts of a run. */
const PARTS = { file: "test/support/parts.test.ts", test: "the parts of a run work" };
/** A service with embedded servers, as `npm start` starts it. */
const SERVICE = { file: "test/app/first-start.test.ts", test: "the first administrator finds a key" };

/** The command that gives a program a network and mounts of its own; empty if this machine does not let it. */
const NAMESPACE =
  [
    ["unshare", "--net", "--mount", "--"],
    ["unshare", "--user", "--map-current-user", "--keep-caps", "--net", "--mount", "--"],
  ].find(
    ([file = "", ...args]) => spawnSync(file, [...args, "ip", "link", "set", "lo", "up"]).status === 0,
  ) ?? [];
const where =
  NAMESPACE.length > 0
    ? "without network, a home that cannot be written"
    : "with network and root's own home, since no namespace can be made here";

/** A copy of the project after `npm install` and one start. */
let clone: string;

beforeAll(async () => {
  await Promise.all([part("workflows"), part("page"), part("chromium")]);
  clone = path.join(await mkdtemp(path.join(tmpdir(), "webhook-test-newcomer-")), "a newcomer's clone");
  const cli = await findTemporalCli(tmpdir(), () => {});
  await mkdir(path.join(clone, ".data/cache"), { recursive: true });
  await copyFile(cli, path.join(clone, ".data/cache", path.basename(cli)));
  const cloned = (await readdir(ROOT)).filter((name) => !NOT_CLONED.includes(name));
  execFileSync("cp", ["-a", ...cloned.map((name) => path.join(ROOT, name)), clone]);
  await mkdir(path.join(clone, ".cache"));
  const browsers = (await readdir(path.join(ROOT, ".cache"))).filter((name) => name.startsWith("chromium"));
  execFileSync("cp", [
    "-a",
    ...browsers.map((name) => path.join(ROOT, ".cache", name)),
    path.join(clone, ".cache"),
  ]);
  // A folder that takes Vite's files, as that of an installation does.
  await mkdir(path.join(clone, "node_modules"));
  for (const name of await readdir(path.join(ROOT, "node_modules")))
    if (!name.startsWith(".vite"))
      await symlink(path.join(ROOT, "node_modules", name), path.join(clone, "node_modules", name));
});

// The service of root starts in every run of `npm test` by root.
test
  .runIf(process.platform === "linux")
  .for([
    ...(isRoot() ? [{ who: "root", uid: UID, gid: GID, runs: [PARTS] }] : []),
    isRoot()
      ? { who: "another user", ...NOBODY, runs: [PARTS, SERVICE] }
      : { who: "the user of this run", uid: UID, gid: GID, runs: [PARTS, SERVICE] },
  ])(
  `npm test passes for $who, in a folder with a space, with taken ports, ${where}`,
  async ({ uid, gid, who, runs }, { skip }) => {
    const parent = path.dirname(clone);
    if (uid !== UID) {
      skip(!(await canReach({ uid, gid }, ROOT)), `${ROOT} is closed to other users`);
      execFileSync("chmod", ["0755", parent]);
      execFileSync("chown", ["-R", `${uid}:${gid}`, clone]);
    }
    const names = Object.keys(process.env).filter((name) => /^(VITEST|npm_|XDG_|NODE_COMPILE)/.test(name));
    const folder = await mkdtemp(path.join(tmpdir(), "newcomer-"));
    execFileSync("chown", [`${uid}:${gid}`, folder]);
    const home = path.join(parent, `home-${uid}`);
    await mkdir(home, { mode: 0o555 });
    const asUser = node(path.join(ROOT, "test/repository/busy-machine.ts"), String(uid), String(gid));
    const only = ["--testNamePattern", runs.map((run) => run.test).join("|")];
    const run = startProgram(
      [...NAMESPACE, ...asUser, "npm", "test", "--", ...only, ...runs.map(({ file }) => file)],
      {
        cwd: clone,
        environment: {
          ...Object.fromEntries(names.map((name) => [name, undefined])),
          HOME: home,
          TMPDIR: folder,
          IN_NAMESPACE: NAMESPACE.length > 0 ? "true" : undefined,
        },
      },
    );
    onTestFinished(() => void run.process.kill("SIGKILL"));
    expect(await run.ended, `${who}:\n${run.printed()}`).toBe(0);
    expect(run.printed()).toMatch(new RegExp(`Tests +${runs.length} passed`));
  },
);
