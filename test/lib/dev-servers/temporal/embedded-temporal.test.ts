import path from "node:path";
import { Client, Connection } from "@temporalio/client";
import { expect, onTestFinished, test } from "vitest";
import {
  assertTemporalServes,
  startEmbeddedTemporal,
} from "../../../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { anyPort } from "../../../support/any-port.ts";
import { part } from "../../../support/parts.ts";
import { useRefusingProxy } from "../../../support/refusing-proxy.ts";
import { until } from "../../../support/wait.ts";
import { killAfterTest, recorded, runProgram, runs, silent, temporaryFolder } from "../support.ts";

/** Options of a server on ports that are free. */
async function onAnyPorts(dataDir: string) {
  return { dataDir, progress: silent, port: await anyPort(), uiPort: await anyPort() };
}

test("what a service killed with SIGKILL left running is stopped; its workflows and its ports are kept, and its UI answers, in any folder", async () => {
  const options = await onAnyPorts(path.join(await temporaryFolder(), "c# 50%20off?"));
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

test("the embedded Temporal is reached directly, whatever the proxy variables say", async () => {
  const proxied = await useRefusingProxy();
  await assertTemporalServes((await part("temporal")).address, "default", []);
  expect(proxied()).toBe(0);
});
