import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { Client, Connection } from "@temporalio/client";
import { expect, onTestFinished, test, vi } from "vitest";
import { findByCommand, markerOf } from "../../../../src/lib/dev-servers/process/processes.ts";
import { startEmbeddedTemporal } from "../../../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { findTemporalCli } from "../../../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { assertTemporalServes } from "../../../../src/lib/dev-servers/temporal/temporal-client.ts";
import { anyPort } from "../../../support/any-port.ts";
import { part } from "../../../support/parts.ts";
import { useRefusingProxy } from "../../../support/refusing-proxy.ts";
import { until } from "../../../support/wait.ts";
import { killAfterTest, recorded, runProgram, runs, silent, temporaryFolder } from "../support.ts";

/** Options of a server on ports that are free. */
async function onAnyPorts(dataDir: string) {
  return { dataDir, progress: silent, port: await anyPort(), uiPort: await anyPort() };
}

test.each(["c#", "what?", "50%20off"])(
  "a folder named %j, whose file Temporal would take for another, is refused",
  async (name) => {
    const dataDir = path.join(await temporaryFolder(), name);
    const message = /because the path contains .+; set DATA_DIR to a folder without/;
    await expect(startEmbeddedTemporal({ dataDir, progress: silent })).rejects.toThrow(message);
  },
);

test("what a service killed with SIGKILL left running is stopped; its workflows and its ports are kept, and its UI answers", async () => {
  const options = await onAnyPorts(await temporaryFolder());
  const { dataDir, port, uiPort } = options;
  const { program, said } = await runProgram<{ pid: number; address: string }>("start-servers.ts", [
    dataDir,
    "temporal",
    String(port),
    String(uiPort),
  ]);
  const before = await Connection.connect({ address: said.address });
  await new Client({ connection: before }).workflow.start("kept", { workflowId: "kept", taskQueue: "none" });
  await before.close();
  await program.end("SIGKILL");

  const { lines, progress } = recorded();
  const settings = { searchAttributes: { FailingHosts: "KeywordList" }, namespace: "webhooks" } as const;
  const server = killAfterTest(await startEmbeddedTemporal({ ...options, ...settings, progress }));
  expect(lines).toContain(`stopping Temporal (pid ${said.pid}), left running by an earlier service`);
  expect(runs(said.pid)).toBe(false);
  expect(server).toMatchObject({ address: said.address, uiUrl: `http://127.0.0.1:${uiPort}` });
  expect((await fetch(server.uiUrl)).status).toBe(200);
  const connection = await Connection.connect({ address: server.address });
  onTestFinished(() => connection.close());
  const client = new Client({ connection });
  expect((await client.workflow.getHandle("kept").describe()).status.name).toBe("RUNNING");
  const { customAttributes } = await connection.operatorService.listSearchAttributes({
    namespace: "webhooks",
  });
  expect(customAttributes).toHaveProperty("FailingHosts");
});

test("a server that dies is restarted on the same ports", async () => {
  const { lines, progress } = recorded();
  const options = { ...(await onAnyPorts(await temporaryFolder())), progress, superviseRestart: true };
  const server = killAfterTest(await startEmbeddedTemporal(options));
  const { pid, address } = server;
  server.kill();
  await until(() => lines.some((line) => line.startsWith("Temporal is running again")));
  expect(server.pid).not.toBe(pid);
  await assertTemporalServes(address, "default", []);
});

test("a start that fails after the server has started stops the server", async () => {
  const dataDir = await temporaryFolder();
  const cli = await findTemporalCli(dataDir, silent);
  const script = path.join(dataDir, "bin/temporal");
  await mkdir(path.dirname(script));
  // The service stores its ports in this file once the server responds.
  const blocked = path.join(dataDir, "temporal/server.json/in-the-way");
  await writeFile(script, `#!/bin/sh\nmkdir -p '${blocked}'\nexec '${cli}' "$@"\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${path.dirname(script)}:${process.env.PATH}`);
  const servers = () => findByCommand(`${markerOf("--db-filename")}${dataDir}/`);
  onTestFinished(() => {
    vi.unstubAllEnvs();
    for (const pid of servers()) process.kill(pid, "SIGKILL");
  });
  await expect(startEmbeddedTemporal(await onAnyPorts(dataDir))).rejects.toThrow("server.json");
  expect(servers()).toEqual([]);
});

test("the embedded Temporal is reached directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  await assertTemporalServes((await part("temporal")).address, "default", []);
  expect(proxied()).toBe(0);
});
