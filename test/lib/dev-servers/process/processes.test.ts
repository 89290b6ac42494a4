import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdir, readdir } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { SECRETS_IN_FILES } from "../../../../src/config/secret-files.ts";
import {
  downloadEnvironment,
  serverEnvironment,
} from "../../../../src/lib/dev-servers/process/child-environment.ts";
import { isRoot, NOBODY, type Owner } from "../../../../src/lib/dev-servers/process/owner.ts";
import { isPortFree } from "../../../../src/lib/dev-servers/process/ports.ts";
import {
  findByCommand,
  markerOf,
  readWindowsProcesses,
  stopProcesses,
} from "../../../../src/lib/dev-servers/process/processes.ts";
import { writeState } from "../../../../src/lib/dev-servers/process/state-file.ts";
import { until } from "../../../support/wait.ts";
import { runs, temporaryFolder } from "../support.ts";

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
  "a process that only mentions a server's command line is not stopped, nor a server in a container with the same path",
  async () => {
    const folder = await temporaryFolder();
    const others = [await shell("echo; read line", [`postgres -D ${folder} -c port=1`])];
    const args = ["-D", folder, "-c", "port=1"];
    if (isRoot()) {
      // Another root folder, with the shell and its libraries.
      const libraries = execFileSync("ldd", ["/bin/sh"], { encoding: "utf8" }).match(/\/\S+/g) ?? [];
      for (const file of ["/bin/sh", ...libraries]) {
        await mkdir(path.join(folder, path.dirname(file)), { recursive: true });
        await copyFile(file, path.join(folder, file));
      }
      others.push(await shell("echo; read line", args, ["chroot", folder, "/bin/sh"]));
    }
    const server = await shell("echo; read line", args);
    await stopProcesses(markerOf("-D", folder, "-c"), STEPS);
    await until(() => server.signalCode !== null);
    expect(others.filter(({ pid }) => !runs(pid))).toEqual([]);
  },
);

test.runIf(process.platform === "linux" && isRoot())(
  "root without CAP_SYS_PTRACE, as in a container, stops a server of another user",
  async () => {
    const folder = await temporaryFolder();
    const marker = markerOf("-D", folder, "-c");
    const server = await shell("echo; read line", ["-D", folder, "-c", "port=1"], ["/bin/sh"], NOBODY);
    const processes = new URL("../../../../src/lib/dev-servers/process/processes.ts", import.meta.url).href;
    const program = `import { stopProcesses } from "${processes}";
await stopProcesses(${JSON.stringify(marker)}, ${JSON.stringify(STEPS)});`;
    const limited = ["--bounding-set", "-sys_ptrace", process.execPath, "--input-type=module", "-e", program];
    execFileSync("setpriv", limited);
    await until(() => server.signalCode !== null);
  },
);

test("a Windows command line with quotes around a path with spaces and umlauts contains the path's marker", () => {
  const data = "C:\\Users\\Jörg Doe\\.data\\postgres\\data";
  const lines = `4321 "C:\\Program Files\\pg\\postgres.exe" -D "${data}" -c port=5433\n4322 \n`;
  const [server, ...others] = readWindowsProcesses(`${Buffer.from(lines).toString("base64")}\r\n`);
  expect(server?.pid).toBe(4321);
  expect(server?.command).toContain(` -D ${data} -c `);
  expect(others).toEqual([]);
});

test("embedded servers and downloaders get none of the service's secrets, and Temporal's server tells its makers nothing", () => {
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const name of [...SECRETS_IN_FILES, "TEMPORAL_API_KEY"]) vi.stubEnv(name, "telling");
  vi.stubEnv("HTTPS_PROXY", "http://proxy.example");
  expect(JSON.stringify([serverEnvironment(), downloadEnvironment()])).not.toContain("telling");
  expect(serverEnvironment().TEMPORAL_VERSION_CHECK_DISABLED).toBe("true");
  expect(downloadEnvironment().HTTPS_PROXY).toBe("http://proxy.example");
});

const own = Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));

test.each(["127.0.0.1", "0.0.0.0", ...(own.includes("::1") ? ["::1", "::"] : [])])(
  "a port on which another program listens on %s is not free, and is free afterwards",
  async (address) => {
    const server = createServer().listen(0, address);
    onTestFinished(() => void server.close());
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    expect(await isPortFree(port)).toBe(false);
    server.close();
    await once(server, "close");
    expect(await isPortFree(port)).toBe(true);
  },
);

test("state that cannot be written leaves no draft behind", async () => {
  const folder = await temporaryFolder();
  // A folder cannot be replaced by a file.
  await mkdir(path.join(folder, "state.json"));
  await expect(writeState(path.join(folder, "state.json"), { pid: 1 })).rejects.toThrow();
  expect(await readdir(folder)).toEqual(["state.json"]);
});
