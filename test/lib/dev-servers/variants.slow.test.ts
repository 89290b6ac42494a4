import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { startEmbeddedTemporal } from "../../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { findTemporalCli } from "../../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { anyPort } from "../../support/any-port.ts";
import {
  killAfterTest,
  occupy,
  recorded,
  runProgram,
  runs,
  silent,
  stopAfterTest,
  temporalServers,
  temporaryFolder,
} from "./support.ts";

const anyPorts = async () => ({ port: await anyPort(), uiPort: await anyPort() });

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
  const { program, said } = await runProgram<{ pid: number; address: string }>("start-servers.ts", args);
  const leftOver = temporalServers(dataDir);
  expect(leftOver).toContain(said.pid);
  expect(leftOver).toHaveLength(exec ? 1 : 2);
  await program.end("SIGKILL");

  const { lines, progress } = recorded();
  const server = stopAfterTest(await startEmbeddedTemporal({ dataDir, progress, port, uiPort }));
  expect(lines).toContain(`stopping Temporal (pid ${said.pid}), left running by an earlier service`);
  expect(leftOver.filter(runs)).toEqual([]);
  expect(server.address).toBe(said.address);
  await server.stop();
  expect(temporalServers(dataDir)).toEqual([]);
});

test("two Temporals that start at once and wish for the same taken ports all come up on free ones, which are kept", async () => {
  const folders = [await temporaryFolder(), await temporaryFolder()];
  const ports = await anyPorts();
  const takers = [await occupy(ports.port), await occupy(ports.uiPort)];
  const start = async (dataDir: string) =>
    killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, ...ports }));
  const started = await Promise.all(folders.map(start));
  const addresses = started.flatMap(({ address, uiUrl }) => [address, uiUrl]);
  expect(new Set(addresses).size).toBe(4);
  expect(addresses).not.toContain(`127.0.0.1:${ports.port}`);
  const [first] = started;
  await first?.stop();
  for (const taker of takers) taker.close();
  const again = await start(folders[0] as string);
  expect(again).toMatchObject({ address: first?.address, uiUrl: first?.uiUrl });
});
