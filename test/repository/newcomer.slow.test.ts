import { execFileSync, spawnSync } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readdir, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { canReach, isRoot, NOBODY } from "../../src/embedded/process/owner.ts";
import { findTemporalCli } from "../../src/embedded/temporal/temporal-cli.ts";
import { part } from "../support/parts.ts";
import { node, ROOT, startProgram } from "../support/program.ts";

/** A service with embedded servers, and the parts of a run. */
const FILES = ["test/startup/first-start.test.ts", "test/support/parts.test.ts"];
/** What `git clone` does not bring, but for what an earlier run has unpacked and compiled, which takes long. */
const NOT_CLONED = [".git", ".data", "node_modules"];
const [UID, GID] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];

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

/** A copy of the project after `npm install` and one start with the home that cannot be written. */
let clone: string;

beforeAll(async () => {
  await Promise.all([part("workflows"), part("page"), part("chromium")]);
  clone = path.join(await mkdtemp(path.join(tmpdir(), "webhook-test-newcomer-")), "a newcomer's clone");
  await mkdir(clone);
  const cloned = (await readdir(ROOT)).filter((name) => !NOT_CLONED.includes(name));
  execFileSync("cp", ["-a", ...cloned.map((name) => path.join(ROOT, name)), clone]);
  // A folder that takes Vite's files, as that of an installation does.
  await mkdir(path.join(clone, "node_modules"));
  for (const name of await readdir(path.join(ROOT, "node_modules")))
    if (!name.startsWith(".vite"))
      await symlink(path.join(ROOT, "node_modules", name), path.join(clone, "node_modules", name));
  const cli = await findTemporalCli(tmpdir(), () => {});
  await mkdir(path.join(clone, ".data/cache"), { recursive: true });
  await copyFile(cli, path.join(clone, ".data/cache", path.basename(cli)));
});

test
  .runIf(process.platform === "linux")
  .for([
    { who: isRoot() ? "root" : "the user of this run", uid: UID, gid: GID },
    ...(isRoot() ? [{ who: "another user", ...NOBODY }] : []),
  ])(
  `npm test passes for $who, in a folder with a space, with taken ports, ${where}`,
  async ({ uid, gid, who }, { skip }) => {
    if (uid !== UID) {
      skip(!(await canReach({ uid, gid }, ROOT)), `${ROOT} is closed to other users`);
      execFileSync("chmod", ["0755", path.dirname(clone)]);
      execFileSync("chown", ["-R", `${uid}:${gid}`, clone]);
    }
    const names = Object.keys(process.env).filter((name) => /^(VITEST|npm_|XDG_|NODE_COMPILE)/.test(name));
    const environment = Object.fromEntries(names.map((name) => [name, undefined]));
    const folder = await mkdtemp(path.join(tmpdir(), "newcomer-"));
    execFileSync("chown", [`${uid}:${gid}`, folder]);
    const home = path.join(path.dirname(clone), `home-${uid}`);
    await mkdir(home, { mode: 0o555 });
    const run = startProgram(
      [
        ...NAMESPACE,
        ...node(path.join(ROOT, "test/repository/busy-machine.ts"), String(uid), String(gid)),
        ...["npm", "test", "--", ...FILES],
      ],
      {
        cwd: clone,
        environment: {
          ...environment,
          HOME: home,
          TMPDIR: folder,
          IN_NAMESPACE: NAMESPACE.length > 0 ? "true" : undefined,
        },
      },
    );
    onTestFinished(() => void run.process.kill("SIGKILL"));
    expect(await run.ended, `${who}:\n${run.printed()}`).toBe(0);
    expect(run.printed()).toMatch(new RegExp(`Test Files +${FILES.length} passed`));
  },
);
