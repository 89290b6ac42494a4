import { execFileSync } from "node:child_process";
import { cp, mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Receiver, startReceiver } from "../../demo/receiver.ts";
import { listLiveWorkers } from "../../src/db/queue/workers.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { eventually, until } from "../support/wait.ts";
import {
  checkAttempts,
  type FaultParts,
  outcomes,
  publishMany,
  register,
  removeAll,
  startFaultParts,
  untilAllFinal,
} from "./parts.ts";

const EVENTS = 30;
/** A busy machine does not make them lose their leases. */
const PATIENT = { HEARTBEAT_TIMEOUT: "10s" };

let parts: FaultParts;
/** A program of this file's own, that it can take away. */
let node: string;
const started: ServiceProcess[] = [];

beforeAll(async () => {
  parts = await startFaultParts();
  node = path.join(await mkdtemp(path.join(tmpdir(), "webhook-test-node-")), "node");
  await cp(process.execPath, node);
});
afterAll(async () => {
  await Promise.all(started.map((service) => service.end("SIGTERM")));
  await parts?.end();
  await rm(path.dirname(node), { recursive: true });
});

async function start(settings: Record<string, string>, program?: string): Promise<ServiceProcess> {
  const environment = { ...parts.environment, ...PATIENT, ...settings };
  const service = await startServiceProcess(environment, [], undefined, program);
  started.push(service);
  return service;
}

/** The delivery processes that a service has started. */
function deliveryProcesses({ pid }: ServiceProcess): number[] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="], { encoding: "utf8" }).split("\n");
  return lines.flatMap((line) => {
    const [, own, parent, args = ""] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
    return Number(parent) === pid && /delivery/.test(args) ? [Number(own)] : [];
  });
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

const readyz = async ({ httpPort }: ServiceProcess) => {
  const response = await fetch(`http://127.0.0.1:${httpPort}/readyz`);
  const { reasons = [] } = (await response.json()) as { reasons?: string[] };
  return { code: response.status, reasons };
};

/** A webhook of its own for the test. */
async function freshReceiver(
  service: ServiceProcess,
  answerMs: number,
  reply: () => number = () => 200,
): Promise<Receiver> {
  await removeAll(parts.db);
  const receiver = await startReceiver(parts.certificate, async () => {
    await wait(answerMs);
    return reply();
  });
  onTestFinished(() => receiver.close());
  await register(service.grpcPort, parts.adminKey, `${receiver.url}/hooks?token=s3cret`);
  return receiver;
}

/** What is published now is delivered, once each, the first time. */
async function expectAllDelivered(receiver: Receiver, events: number): Promise<void> {
  await untilAllFinal(parts.db);
  expect(await outcomes(parts.db)).toEqual([{ state: "delivered", attempts: 1, n: events }]);
  expect(receiver.received).toHaveLength(events);
}

/**
 * Ends the service with deliveries in flight, and waits for its delivery processes to end.
 *
 * @param toAll whether the delivery processes get the signal too
 */
async function endAmidDeliveries(
  service: ServiceProcess,
  signal: NodeJS.Signals,
  toAll = false,
): Promise<Receiver> {
  const receiver = await freshReceiver(service, 300);
  const pids = deliveryProcesses(service);
  await publishMany(service.grpcPort, parts.adminKey, EVENTS);
  await receiver.until((received) => received.length >= 4);
  if (toAll) for (const pid of pids) process.kill(pid, signal);
  await service.end(signal);
  await until(() => !pids.some(isAlive));
  return receiver;
}

/** The lines of a service's log with this message. */
function logged(service: ServiceProcess, msg: string): Record<string, unknown>[] {
  const lines = service.printed().split("\n");
  const complete = lines.slice(0, -1).filter((line) => line.startsWith("{"));
  return complete.map((line) => JSON.parse(line)).filter((line) => line.msg === msg);
}

// Each test goes on with what the one before has left, since every process takes a second to start.
describe.skipIf(process.platform === "win32")("delivery processes beside the API", () => {
  let service: ServiceProcess;

  test("deliver, each once, and as many as DELIVERY_PROCESSES says have a lease of their own", async () => {
    service = await start({ DELIVERY_PROCESSES: "2", LOG_LEVEL: "info", RETRY_INITIAL_DELAY: "3s" });
    const receiver = await freshReceiver(service, 0);
    expect(deliveryProcesses(service)).toHaveLength(2);
    await until(async () => (await listLiveWorkers(parts.db)).length === 2);
    await publishMany(service.grpcPort, parts.adminKey, EVENTS);
    await expectAllDelivered(receiver, EVENTS);
  });

  test("log an outage in two lines of all processes together, and each busy run in one with its counts", async () => {
    let status = 503;
    const receiver = await freshReceiver(service, 0, () => status);
    await publishMany(service.grpcPort, parts.adminKey, 5);
    await until(() => logged(service, "webhook is failing").length > 0);
    status = 200;
    await untilAllFinal(parts.db);
    await until(() => logged(service, "webhook has recovered").length > 0);
    const { host } = new URL(receiver.url);
    for (const msg of ["webhook is failing", "webhook has recovered"])
      expect(logged(service, msg)).toEqual([expect.objectContaining({ host })]);
    const busy = () => logged(service, "dispatch run ended");
    const sum = (name: string) => busy().reduce((total, line) => total + Number(line[name]), 0);
    // With those of the test before, some of whose runs may only end now.
    const delivered = EVENTS + 5;
    await until(() => sum("delivered") === delivered);
    expect(sum("retried")).toBe(sum("attempts") - delivered);
    expect(sum("failed")).toBe(0);
    for (const line of busy()) expect(line.attempts).toBeGreaterThan(0);
    expect(service.printed()).not.toContain("s3cret");
  });

  test("that stop answering make the service not ready, unless another one answers", async () => {
    const pids = deliveryProcesses(service);
    onTestFinished(() => {
      for (const pid of pids.filter(isAlive)) process.kill(pid, "SIGCONT");
    });
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    const reasons = async () => (await readyz(service)).reasons;
    await until(async () => (await reasons()).includes("a delivery process does not respond"));
    process.kill(pids[1] as number, "SIGCONT");
    await until(async () => (await readyz(service)).code === 200);
  });

  test("finish what is in flight at SIGTERM of the service, and nothing is sent twice", async () => {
    // One that was stopped for long has lost its lease, and takes another.
    await until(async () => (await listLiveWorkers(parts.db)).length === 2);
    const receiver = await endAmidDeliveries(service, "SIGTERM");
    service = await start({ DELIVERY_PROCESSES: "1" }, node);
    await expectAllDelivered(receiver, EVENTS);
  });

  test("that are killed are started again and lose nothing; the API answers all the while", async () => {
    const receiver = await freshReceiver(service, 100);
    const [first] = deliveryProcesses(service);
    await publishMany(service.grpcPort, parts.adminKey, EVENTS);
    await receiver.until((received) => received.length >= 4);
    process.kill(first as number, "SIGKILL");
    await eventually(async () =>
      expect(await readyz(service)).toEqual({
        code: 503,
        reasons: ["a delivery process ended; restarting"],
      }),
    );
    await publishMany(service.grpcPort, parts.adminKey, EVENTS);
    await until(async () => (await readyz(service)).code === 200);
    const [second] = deliveryProcesses(service);
    expect(second).not.toBe(first);
    await untilAllFinal(parts.db);
    await checkAttempts(parts.db);
    expect((await outcomes(parts.db)).map(({ state, n }) => ({ state, n }))).toEqual([
      { state: "delivered", n: 2 * EVENTS },
    ]);
  });

  test("that cannot be started are tried again; the API answers all the while", async () => {
    const receiver = await freshReceiver(service, 0);
    await rename(node, `${node}-away`);
    process.kill(deliveryProcesses(service)[0] as number, "SIGKILL");
    await eventually(async () =>
      expect(await readyz(service)).toEqual({
        code: 503,
        reasons: ["a delivery process could not be started; retrying"],
      }),
    );
    await publishMany(service.grpcPort, parts.adminKey, 1);
    await rename(`${node}-away`, node);
    await until(async () => (await readyz(service)).code === 200);
    await receiver.until((received) => received.length === 1);
  });

  test("finish what is in flight at SIGHUP of all processes, as from a closed terminal", async () => {
    const receiver = await endAmidDeliveries(service, "SIGHUP", true);
    service = await start({ DELIVERY_PROCESSES: "2" });
    await expectAllDelivered(receiver, EVENTS);
  });

  test("stop by themselves at SIGKILL of the service and finish what is in flight; one with DELIVERY_PROCESSES=0 delivers the rest itself, and nothing is sent twice", async () => {
    const receiver = await endAmidDeliveries(service, "SIGKILL");
    service = await start({ DELIVERY_PROCESSES: "0" });
    expect(deliveryProcesses(service)).toEqual([]);
    await expectAllDelivered(receiver, EVENTS);
  });
});
