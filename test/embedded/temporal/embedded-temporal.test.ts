import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { Client, Connection } from "@temporalio/client";
import { expect, onTestFinished, test, vi } from "vitest";
import { findByCommand, markerOf } from "../../../src/embedded/process/processes.ts";
import { startEmbeddedTemporal } from "../../../src/embedded/temporal/embedded-temporal.ts";
import { findTemporalCli } from "../../../src/embedded/temporal/temporal-cli.ts";
import { anyPort } from "../../support/any-port.ts";
import {
  killAfterTest,
  killHard,
  occupy,
  recorded,
  runProgram,
  runs,
  stopAfterTest,
  temporaryFolder,
  until,
} from "../support.ts";

const silent = () => {};

interface Started {
  pid: number;
  address: string;
}

async function anyPorts(): Promise<{ port: number; uiPort: number }> {
  return { port: await anyPort(), uiPort: await anyPort() };
}

async function withClient<T>(address: string, use: (client: Client) => Promise<T>): Promise<T> {
  const connection = await Connection.connect({ address });
  try {
    return await use(new Client({ connection }));
  } finally {
    await connection.close();
  }
}

test.each(["c#", "what?", "50%20off"])(
  "a folder named %j, whose file Temporal would take for another, is refused",
  async (name) => {
    const dataDir = path.join(await temporaryFolder(), name);
    const message = /because the path contains .+; set DATA_DIR to a folder without/;
    await expect(startEmbeddedTemporal({ dataDir, progress: silent })).rejects.toThrow(message);
  },
);

test("its workflows and its address are kept over a stop and a start, and its UI answers", async () => {
  const dataDir = await temporaryFolder();
  const options = { dataDir, progress: silent, ...(await anyPorts()) };
  const settings = { searchAttributes: { FailingHosts: "KeywordList" }, namespace: "webhooks" } as const;
  const first = killAfterTest(await startEmbeddedTemporal({ ...options, ...settings }));
  expect(first.address).toBe(`127.0.0.1:${options.port}`);
  expect(first.uiUrl).toBe(`http://127.0.0.1:${options.uiPort}`);
  expect((await fetch(first.uiUrl)).status).toBe(200);
  await withClient(first.address, async ({ connection }) => {
    const { customAttributes } = await connection.operatorService.listSearchAttributes({
      namespace: "webhooks",
    });
    expect(customAttributes).toHaveProperty("FailingHosts");
    const client = new Client({ connection, namespace: "webhooks" });
    await client.workflow.start("kept", { workflowId: "kept", taskQueue: "none" });
  });
  await first.stop();
  expect(runs(first.pid)).toBe(false);

  const second = killAfterTest(await startEmbeddedTemporal({ ...options, ...settings }));
  expect(second.address).toBe(first.address);
  await withClient(second.address, async ({ connection }) => {
    const client = new Client({ connection, namespace: "webhooks" });
    expect((await client.workflow.getHandle("kept").describe()).status.name).toBe("RUNNING");
  });
});

test("what a service killed with SIGKILL left running is stopped; its workflows and its ports are kept", async () => {
  const dataDir = await temporaryFolder();
  const { port, uiPort } = await anyPorts();
  const args = [dataDir, "temporal", String(port), String(uiPort)];
  const { child, said } = await runProgram<Started>("start-servers.ts", args);
  await withClient(said.address, (client) =>
    client.workflow.start("kept", { workflowId: "kept", taskQueue: "none" }),
  );
  await killHard(child);
  const { lines, progress } = recorded();
  const server = killAfterTest(await startEmbeddedTemporal({ dataDir, progress, port, uiPort }));
  expect(lines).toContain(`stopping Temporal (pid ${said.pid}), left running by an earlier service`);
  expect(runs(said.pid)).toBe(false);
  expect(server.address).toBe(said.address);
  await withClient(server.address, async (client) => {
    expect((await client.workflow.getHandle("kept").describe()).status.name).toBe("RUNNING");
  });
});

test("a left-over on other ports is stopped, even one no record tells of, and one on ours started", async () => {
  const dataDir = await temporaryFolder();
  const { port, uiPort } = await anyPorts();
  const args = [dataDir, "temporal", String(port), String(uiPort)];
  const { child, said } = await runProgram<Started>("start-servers.ts", args);
  await killHard(child);
  await writeFile(path.join(dataDir, "temporal/server.json"), "torn");
  const wished = await anyPorts();
  const server = killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, ...wished }));
  expect(runs(said.pid)).toBe(false);
  expect(server.address).toBe(`127.0.0.1:${wished.port}`);
});

test.each([
  ["replaces itself with the program, like a version manager's", "exec"],
  ["waits for the program", ""],
])("a CLI on PATH that is a script and %s works; its left-over is found and stopped", async (_, exec) => {
  const dataDir = await temporaryFolder();
  const cli = await findTemporalCli(dataDir, silent);
  const script = path.join(dataDir, "bin/temporal");
  await mkdir(path.dirname(script));
  await writeFile(script, `#!/bin/sh\n${exec} '${cli}' "$@"\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${path.dirname(script)}:${process.env.PATH}`);
  onTestFinished(() => void vi.unstubAllEnvs());

  const { port, uiPort } = await anyPorts();
  const args = [dataDir, "temporal", String(port), String(uiPort)];
  const { child, said } = await runProgram<Started>("start-servers.ts", args);
  const servers = () => findByCommand(`${markerOf("--db-filename")}${dataDir}/`);
  const leftOver = servers();
  expect(leftOver).toContain(said.pid);
  expect(leftOver).toHaveLength(exec ? 1 : 2);
  await killHard(child);

  const { lines, progress } = recorded();
  const options = { dataDir, progress, port, uiPort, superviseRestart: true };
  const server = stopAfterTest(await startEmbeddedTemporal(options));
  expect(lines).toContain(
    `stopping Temporal (pid ${leftOver.join(", ")}), left running by an earlier service`,
  );
  expect(leftOver.filter(runs)).toEqual([]);
  expect(server.address).toBe(said.address);
  server.kill();
  await until(() => lines.some((line) => line.startsWith("Temporal is running again")));
  await withClient(server.address, (client) => client.connection.workflowService.getSystemInfo({}));
  await server.stop();
  expect(servers()).toEqual([]);
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
  const failing = startEmbeddedTemporal({ dataDir, progress: silent, ...(await anyPorts()) });
  await expect(failing).rejects.toThrow("server.json");
  expect(servers()).toEqual([]);
});

test("taken ports lead to free ones, which are kept", async () => {
  const dataDir = await temporaryFolder();
  const { port, uiPort } = await anyPorts();
  const takers = [await occupy(port), await occupy(uiPort)];
  const first = killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, port, uiPort }));
  expect(first.address).not.toBe(`127.0.0.1:${port}`);
  expect(first.uiUrl).not.toBe(`http://127.0.0.1:${uiPort}`);
  await first.stop();
  for (const taker of takers) taker.close();
  const second = killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, port, uiPort }));
  expect(second).toMatchObject({ address: first.address, uiUrl: first.uiUrl });
});

test("three that start at once and wish for the same ports all come up", async () => {
  const folders = [await temporaryFolder(), await temporaryFolder(), await temporaryFolder()];
  const ports = await anyPorts();
  const start = async (dataDir: string) =>
    killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, ...ports }));
  const servers = await Promise.all(folders.map(start));
  expect(new Set(servers.flatMap(({ address, uiUrl }) => [address, uiUrl])).size).toBe(6);
});

test("one that dies unasked is started again on the same ports, and can be by hand", async () => {
  const dataDir = await temporaryFolder();
  const { lines, progress } = recorded();
  const options = { dataDir, progress, ...(await anyPorts()), superviseRestart: true };
  const server = killAfterTest(await startEmbeddedTemporal(options));
  const { pid } = server;
  server.kill();
  await until(() => lines.some((line) => line.startsWith("Temporal is running again")));
  expect(server.pid).not.toBe(pid);
  server.kill();
  await server.restart();
  await withClient(server.address, (client) => client.connection.workflowService.getSystemInfo({}));
});
