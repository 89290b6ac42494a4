import { createInterface } from "node:readline";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { type FaultParts, publishMany, register, startFaultParts, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const EVENTS = 5;

let parts: FaultParts;
let service: ServiceProcess;
let receiver: Receiver;
let status = 503;
const lines: Record<string, unknown>[] = [];
beforeAll(async () => {
  parts = await startFaultParts();
  receiver = await startReceiver(parts.certificate, () => status);
  service = await startServiceProcess({
    ...parts.environment,
    // The first attempts and their first retries fail; the endpoint is back for the others.
    RETRY_INITIAL_DELAY: "3s",
    LOG_LEVEL: "info",
    DELIVERY_PROCESSES: "2",
  });
  createInterface({ input: service.process.stdout as NodeJS.ReadableStream }).on("line", (line) => {
    if (line.startsWith("{")) lines.push(JSON.parse(line));
  });
}, 240_000);
afterAll(async () => {
  await service?.end("SIGTERM");
  await receiver?.close();
  await parts?.end();
});

const saying = (msg: string) => lines.filter((line) => line.msg === msg);

test("an outage is two lines of all processes together, and each busy run is one with its counts", async () => {
  const url = `${receiver.url}/hooks?token=s3cret`;
  const webhookId = String(await register(service.grpcPort, parts.adminKey, url));
  await publishMany(service.grpcPort, parts.adminKey, EVENTS);
  await expect.poll(() => saying("webhook is failing"), { timeout: 60_000 }).toHaveLength(1);
  status = 200;
  await untilAllFinal(parts.db);
  await expect.poll(() => saying("webhook has recovered"), { timeout: 60_000 }).toHaveLength(1);
  const { host } = new URL(url);
  expect(saying("webhook is failing")).toEqual([expect.objectContaining({ webhookId, host })]);
  expect(saying("webhook has recovered")).toEqual([expect.objectContaining({ webhookId, host })]);

  const sum = (name: string) =>
    saying("dispatch run ended").reduce((total, line) => total + Number(line[name]), 0);
  await expect.poll(() => sum("delivered"), { timeout: 60_000 }).toBe(EVENTS);
  expect(sum("retried")).toBe(sum("attempts") - EVENTS);
  expect(sum("failed")).toBe(0);
  for (const line of saying("dispatch run ended")) expect(line.attempts).toBeGreaterThan(0);
  expect(JSON.stringify(lines)).not.toContain("s3cret");
});
