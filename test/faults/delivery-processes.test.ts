import { execFileSync } from "node:child_process";
import { cp, mkdtemp, rename, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { listLiveWorkers } from "../../src/queue/workers.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { eventually, until } from "../support/wait.ts";
import { type Ledger, startLedger } from "./ledger.ts";
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
const PATIENT = { HEARTBEAT_TIMEOUT: "10s", DISPATCH_INTERVAL: "3s" };

let parts: FaultParts;
/** A program of this file's own, that it can take away. */
let node: string;
/** The last one. Each test goes on with what the one before has left, since every process takes a second to start. */
let service: ServiceProcess;

beforeAll(async () => {
  parts = await startFaultParts();
  node = path.join(await mkdtemp(path.join(tmpdir(), "webhook-test-node-")), "node");
  await cp(process.execPath, node);
});
afterAll(async () => {
  await service?.end("SIGTERM");
  await parts?.end();
  await rm(path.dirname(node), { recursive: true });
});

async function start(settings: Record<string, string>, program?: string): Promise<void> {
  const environment = { ...parts.environment, ...PATIENT, ...settings };
  service = await startServiceProcess(environment, [], undefined, program);
}

/** The delivery processes that the service has started. */
function deliveryProcesses(): number[] {
  const lines = execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="], { encoding: "utf8" }).split("\n");
  return lines.flatMap((line) => {
    const [, own, parent, args = ""] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line) ?? [];
    return Number(parent) === service.pid && /delivery/.test(args) ? [Number(own)] : [];
  });
}

const isAlive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

async function readyz() {
  const response = await fetch(`http://127.0.0.1:${service.httpPort}/readyz`);
  const { reasons = [] } = (await response.json()) as { reasons?: string[] };
  return { code: response.status, reasons };
}

const publish = (events: number) => publishMany(service.grpcPort, parts.adminKey, events);

/** A webhook of its own for the test. */
async function freshReceiver(answerMs: number, reply: () => number = () => 200): Promise<Ledger> {
  await removeAll(parts.db);
  const ledger = await startLedger(parts.certificate, answerMs, reply);
  onTestFinished(ledger.close);
  await register(service.grpcPort, parts.adminKey, `${ledger.url}/hooks?token=s3cret`);
  return ledger;
}

/** What is published now is delivered, once each, the first time. */
async function expectAllDelivered({ entries }: Ledger): Promise<void> {
  await untilAllFinal(parts.db);
  expect(await outcomes(parts.db)).toEqual([{ state: "delivered", attempts: 1, n: EVENTS }]);
  expect(entries).toHaveLength(EVENTS);
}

/** Publishes, and ends the service by `end` with deliveries in flight; waits for its delivery processes to end. */
async function endAmidDeliveries(end: (processes: number[]) => Promise<unknown>): Promise<Ledger> {
  const ledger = await freshReceiver(300);
  const pids = deliveryProcesses();
  await publish(EVENTS);
  await until(() => ledger.entries.length >= 4);
  await end(pids);
  await until(() => !pids.some(isAlive));
  return ledger;
}

/** The lines of the service's log with this message. */
function logged(msg: string): Record<string, unknown>[] {
  const complete = service.printed().split("\n").slice(0, -1);
  const lines = complete.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
  return lines.filter((line) => line.msg === msg);
}

describe.skipIf(process.platform === "win32")("beside the API,", () => {
  test("delivery processes have as many leases as DELIVERY_PROCESSES says, deliver each event once, and log an outage in two lines of all and each busy run in one with its counts", async () => {
    await start({ DELIVERY_PROCESSES: "2", LOG_LEVEL: "info", RETRY_INITIAL_DELAY: "3s" });
    const ledger = await freshReceiver(0);
    expect(deliveryProcesses()).toHaveLength(2);
    await until(async () => (await listLiveWorkers(parts.db)).length === 2);
    await publish(EVENTS);
    await expectAllDelivered(ledger);

    let status = 503;
    const { url } = await freshReceiver(0, () => status);
    await publish(5);
    await until(() => logged("webhook is failing").length > 0);
    status = 200;
    await untilAllFinal(parts.db);
    await until(() => logged("webhook has recovered").length > 0);
    const { host } = new URL(url);
    for (const msg of ["webhook is failing", "webhook has recovered"])
      expect(logged(msg)).toEqual([expect.objectContaining({ host })]);
    const busy = () => logged("dispatch run ended");
    const sum = (name: string) => busy().reduce((total, line) => total + Number(line[name]), 0);
    await until(() => sum("delivered") === EVENTS + 5);
    expect([sum("retried"), sum("failed")]).toEqual([sum("attempts") - sum("delivered"), 0]);
    for (const line of busy()) expect(line.attempts).toBeGreaterThan(0);
    expect(service.printed()).not.toContain("s3cret");
  });

  test("delivery processes that stop answering make the service not ready, unless another one answers", async () => {
    const pids = deliveryProcesses();
    onTestFinished(() => {
      for (const pid of pids.filter(isAlive)) process.kill(pid, "SIGCONT");
    });
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    await until(async () => (await readyz()).reasons.includes("a delivery process does not respond"));
    process.kill(pids[1] as number, "SIGCONT");
    await until(async () => (await readyz()).code === 200);
  });

  test("delivery processes finish what is in flight at SIGHUP of all, as from a closed terminal, and nothing is sent twice", async () => {
    // One that was stopped for long has lost its lease, and takes another.
    await until(async () => (await listLiveWorkers(parts.db)).length === 2);
    const ledger = await endAmidDeliveries(async (pids) => {
      for (const pid of pids) process.kill(pid, "SIGHUP");
      await service.end("SIGHUP");
    });
    await start({ DELIVERY_PROCESSES: "1" }, node);
    await expectAllDelivered(ledger);
  });

  test("a delivery process that is killed is started again, also if that fails at first, and loses nothing; the API answers all the while", async () => {
    const { entries } = await freshReceiver(100);
    await publish(EVENTS);
    await until(() => entries.length >= 4);
    await rename(node, `${node}-away`);
    process.kill(deliveryProcesses()[0] as number, "SIGKILL");
    const reasons = ["a delivery process could not be started; retrying"];
    await eventually(async () => expect(await readyz()).toEqual({ code: 503, reasons }));
    expect(logged("a delivery process ended; restarting")).toMatchObject([{ signal: "SIGKILL" }]);
    await publish(EVENTS);
    await rename(`${node}-away`, node);
    await until(async () => (await readyz()).code === 200);
    await untilAllFinal(parts.db);
    await checkAttempts(parts.db);
    const states = (await outcomes(parts.db)).map(({ state, n }) => ({ state, n }));
    expect(states).toEqual([{ state: "delivered", n: 2 * EVENTS }]);
  });

  test("delivery processes stop by themselves at SIGKILL of the service and finish what is in flight; one with DELIVERY_PROCESSES=0 delivers the rest itself, and nothing is sent twice", async () => {
    const ledger = await endAmidDeliveries(() => service.end("SIGKILL"));
    await start({ DELIVERY_PROCESSES: "0" });
    expect(deliveryProcesses()).toEqual([]);
    await expectAllDelivered(ledger);
  });
});
