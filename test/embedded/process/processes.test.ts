import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { isRoot, NOBODY, type Owner } from "../../../src/embedded/process/owner.ts";
import { findByCommand, markerOf, stopProcesses } from "../../../src/embedded/process/processes.ts";
import { runs, temporaryFolder, until } from "../support.ts";

const STEPS = [
  { signal: "SIGTERM", waitMs: 500 },
  { signal: "SIGKILL", waitMs: 5_000 },
] as const;

/** A shell that runs `script` with further arguments, as `user` if given, and has run its `echo`. */
async function shell(
  script: string,
  args: string[],
  program = ["/bin/sh"],
  user: Partial<Owner> = {},
): Promise<ChildProcess & { pid: number }> {
  const [file = "", ...before] = program;
  const child = spawn(file, [...before, "-c", script, "sh", ...args], user);
  onTestFinished(() => void child.kill("SIGKILL"));
  await once(child.stdout, "data");
  return child as ChildProcess & { pid: number };
}

test("a server that ignores the first signal ends by the second", async () => {
  const folder = await temporaryFolder();
  const marker = markerOf("-D", folder, "-c");
  const server = await shell("trap '' TERM; echo; while read line; do :; done", [
    "-D",
    folder,
    "-c",
    "port=1",
  ]);
  await stopProcesses(marker, STEPS);
  expect(findByCommand(marker)).toEqual([]);
  await until(() => server.signalCode !== null);
  expect(server.signalCode).toBe("SIGKILL");
});

test.runIf(process.platform === "linux")(
  "a process that only mentions a server's command line is not stopped",
  async () => {
    const folder = await temporaryFolder();
    const editor = await shell("echo; read line", [`postgres -D ${folder} -c port=1`]);
    const server = await shell("echo; read line", ["-D", folder, "-c", "port=1"]);
    await stopProcesses(markerOf("-D", folder, "-c"), STEPS);
    await until(() => server.signalCode !== null);
    expect(runs(editor.pid)).toBe(true);
  },
);

test.runIf(process.platform === "linux" && isRoot())(
  "a server in a container with the same path is not stopped",
  async () => {
    const folder = await temporaryFolder();
    // Another root folder, with the shell and its libraries.
    const libraries = execFileSync("ldd", ["/bin/sh"], { encoding: "utf8" }).match(/\/\S+/g) ?? [];
    for (const file of ["/bin/sh", ...libraries]) {
      await mkdir(path.join(folder, path.dirname(file)), { recursive: true });
      await copyFile(file, path.join(folder, file));
    }
    const args = ["-D", folder, "-c", "port=1"];
    const contained = await shell("echo; read line", args, ["chroot", folder, "/bin/sh"]);
    const server = await shell("echo; read line", args);
    await stopProcesses(markerOf("-D", folder, "-c"), STEPS);
    await until(() => server.signalCode !== null);
    expect(runs(contained.pid)).toBe(true);
  },
);

test.runIf(process.platform === "linux" && isRoot())(
  "root without CAP_SYS_PTRACE, as in a container, stops a server of another user",
  async () => {
    const folder = await temporaryFolder();
    const marker = markerOf("-D", folder, "-c");
    const server = await shell("echo; read line", ["-D", folder, "-c", "port=1"], ["/bin/sh"], NOBODY);
    const processes = new URL("../../../src/embedded/process/processes.ts", import.meta.url).href;
    const program = `import { stopProcesses } from "${processes}";
await stopProcesses(${JSON.stringify(marker)}, ${JSON.stringify(STEPS)});`;
    const limited = ["--bounding-set", "-sys_ptrace", process.execPath, "--input-type=module", "-e", program];
    execFileSync("setpriv", limited);
    await until(() => server.signalCode !== null);
  },
);
