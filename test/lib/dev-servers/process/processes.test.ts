import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { SECRETS_IN_FILES } from "../../../../src/config/secret-files.ts";
import { isRoot, NOBODY } from "../../../../src/lib/dev-servers/process/owner.ts";
import { choosePort } from "../../../../src/lib/dev-servers/process/ports.ts";
import {
  downloadEnvironment,
  serverEnvironment,
  stopGroup,
} from "../../../../src/lib/dev-servers/process/processes.ts";
import { writeState } from "../../../../src/lib/dev-servers/process/state-file.ts";
import { until } from "../../../support/wait.ts";
import { runs, temporaryFolder } from "../support.ts";

test("a server that ignores the first signal ends by the second, with what it has started", async () => {
  const script = "trap '' TERM; sleep 1000 & echo $!; while read line; do :; done";
  const server = spawn("/bin/sh", ["-c", script], { detached: true });
  onTestFinished(() => void server.kill("SIGKILL"));
  const [started] = await once(server.stdout, "data");
  await stopGroup(server.pid as number, [
    { signal: "SIGTERM", waitMs: 500 },
    { signal: "SIGKILL", waitMs: 5_000 },
  ]);
  await until(() => server.signalCode !== null);
  expect(server.signalCode).toBe("SIGKILL");
  expect(runs(Number(started))).toBe(false);
});

test.runIf(process.platform === "linux" && isRoot())(
  "root without CAP_SYS_PTRACE, as in a container, stops a server of another user",
  async () => {
    const server = spawn("/bin/sh", ["-c", "echo; read line"], { detached: true, ...NOBODY });
    onTestFinished(() => void server.kill("SIGKILL"));
    await once(server.stdout, "data");
    const processes = new URL("../../../../src/lib/dev-servers/process/processes.ts", import.meta.url).href;
    const program = `import { stopGroup } from "${processes}";
await stopGroup(${server.pid}, [{ signal: "SIGTERM", waitMs: 5_000 }]);`;
    const limited = ["--bounding-set", "-sys_ptrace", process.execPath, "--input-type=module", "-e", program];
    // Meanwhile this process does not ask for the exit code.
    execFileSync("setpriv", limited);
    await until(() => server.signalCode !== null);
  },
);

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
    expect(await choosePort([port])).not.toBe(port);
    server.close();
    await once(server, "close");
    expect(await choosePort([port])).toBe(port);
  },
);

test("state that cannot be written leaves no draft behind", async () => {
  const folder = await temporaryFolder();
  // A folder cannot be replaced by a file.
  await mkdir(path.join(folder, "state.json"));
  await expect(writeState(path.join(folder, "state.json"), { pid: 1 })).rejects.toThrow();
  expect(await readdir(folder)).toEqual(["state.json"]);
});
