import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Server } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import type { Attack, AttackReport } from "./hostile-client.ts";
import { type Ledger, startLedger } from "./ledger.ts";
import { type FaultParts, register, startFaultParts, storeEvents } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/** Deliveries of one measurement, stored before it. */
const DELIVERIES = FULL_SIZE ? 100_000 : 300;
/** Measurements of each kind, in turns. */
const REPEATS = FULL_SIZE ? 3 : 1;
/** How long an attack goes on at least, in milliseconds: longer than a second's worth of every kind of request. */
const ATTACK_MS = FULL_SIZE ? 20_000 : 2_000;
const REQUESTS_PER_SECOND = 100;
const PROBE_INTERVAL_MS = 20;
const MIB = 1_048_576;
/** The memory that a caller may cost, in bytes. */
const MAX_GROWTH = 100 * MIB;

let parts: FaultParts;
let service: ServiceProcess;
let ledger: Ledger;
let closing: Server;
let webhookId: bigint;
const output: string[] = [];

beforeAll(async () => {
  parts = await startFaultParts();
  ledger = await startLedger(parts.certificate, 0);
  service = await startServiceProcess({ ...parts.environment, HEARTBEAT_TIMEOUT: "20s" });
  service.process.stderr?.on("data", (chunk) => output.push(String(chunk)));
  webhookId = await register(service.grpcPort, parts.adminKey, `${ledger.url}/`);
  await webhooks().pauseWebhook({ webhookId });
  closing = createServer((socket) => socket.on("error", () => {}).destroy());
  await once(closing.listen(0, "127.0.0.1"), "listening");
  // The first deliveries of a process are slower than all that follow.
  await store();
  await drain();
});
afterAll(async () => {
  await service?.end("SIGTERM");
  await ledger?.close();
  closing?.close();
  await parts?.end();
});

let stored = 0;
const webhooks = () => createClient(WebhookService, keyedTransport(service.grpcPort, parts.adminKey));

async function store(): Promise<void> {
  await storeEvents(parts.db, [webhookId], DELIVERIES);
  stored += DELIVERIES;
}

/** Delivers what was stored while the webhook was paused; answers how many deliveries a second arrived. */
async function drain(): Promise<number> {
  const before = ledger.entries.length;
  await webhooks().resumeWebhook({ webhookId });
  await until(() => ledger.entries.length >= stored);
  const arrivals = ledger.entries.slice(before);
  const [first, last] = [arrivals[0], arrivals.at(-1)];
  await webhooks().pauseWebhook({ webhookId });
  return arrivals.length / (((last?.at ?? 0) - (first?.at ?? 0)) / 1_000);
}

/** Attacks while something goes on, and for `ATTACK_MS` at least. */
async function attacked<T>(attack: Omit<Attack, "requestsPerSecond">, work: () => Promise<T>): Promise<T> {
  const file = fileURLToPath(new URL("hostile-client.ts", import.meta.url));
  const argument = JSON.stringify({ ...attack, requestsPerSecond: REQUESTS_PER_SECOND } satisfies Attack);
  const client = fork(file, [argument]);
  try {
    const [{ sent }] = (await once(client, "message")) as [AttackReport];
    expect(sent).toBeGreaterThan(0);
    const [result] = await Promise.all([work(), wait(ATTACK_MS)]);
    return result;
  } finally {
    const gone = once(client, "exit");
    client.kill("SIGKILL");
    await gone;
  }
}

/** What a probe of /readyz saw meanwhile. */
interface Observed {
  /** How long answers took, in milliseconds. */
  latencies: number[];
  /** The most memory that the process had, in bytes. */
  peakBytes: number;
}

async function observed<T>(work: () => Promise<T>): Promise<Observed & { result: T }> {
  const latencies: number[] = [];
  let peakBytes = 0;
  let going = true;
  const probe = async () => {
    while (going) {
      const asked = performance.now();
      const answer = await fetch(`http://127.0.0.1:${service.httpPort}/readyz`);
      expect([answer.status, await answer.json()]).toMatchObject([200, { status: "ready" }]);
      latencies.push(performance.now() - asked);
      peakBytes = Math.max(peakBytes, residentBytes());
      await wait(PROBE_INTERVAL_MS);
    }
  };
  const probing = probe();
  try {
    const result = await Promise.race([
      work(),
      probing.then(() => Promise.reject(new Error("the probe ended"))),
    ]);
    return { result, latencies, peakBytes };
  } finally {
    going = false;
    await probing;
  }
}

function residentBytes(): number {
  const [, kib] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${service.pid}/status`, "utf8")) ?? [];
  return Number(kib) * 1_024;
}

const ownPorts = () => ({ httpPort: service.httpPort, grpcPort: service.grpcPort });
const closingPorts = () => {
  const { port } = closing.address() as AddressInfo;
  return { httpPort: port, grpcPort: port };
};
const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] as number;
const p99 = (values: number[]) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * 0.99)] as number;

type Measurement = Observed & { result: number };

/** One measurement: what was published is delivered beside the attack, if any. */
async function measure(attack?: Omit<Attack, "requestsPerSecond">): Promise<Measurement> {
  await store();
  return observed(() => (attack ? attacked(attack, drain) : drain()));
}

async function createKey(permission: Permission): Promise<string> {
  const keys = createClient(ApiKeyService, keyedTransport(service.grpcPort, parts.adminKey));
  return (await keys.createApiKey({ name: "hostile", permissions: [permission] })).secret;
}

const CALLERS: { name: string; permission?: Permission }[] = [
  { name: "with a key for Publish_Events", permission: Permission.PUBLISH_EVENTS },
  ...(FULL_SIZE
    ? [
        { name: "without a key" },
        {
          name: "with a key for Read_Administrative_Data",
          permission: Permission.READ_ADMINISTRATIVE_DATA,
        },
        {
          name: "with a key for Write_Administrative_Data",
          permission: Permission.WRITE_ADMINISTRATIVE_DATA,
        },
        { name: "with a key for Manage_Api_Keys", permission: Permission.MANAGE_API_KEYS },
      ]
    : []),
];

test.each(CALLERS)(
  "a hostile caller $name stops neither answers nor deliveries",
  async ({ name, permission }) => {
    const key = permission ? { key: await createKey(permission) } : {};
    const beside: Measurement[] = [];
    const alone: Measurement[] = [];
    const ratios: number[] = [];
    for (let n = 0; n < REPEATS; n += 1) {
      // A rate is compared with that beside a client as busy; memory needs none.
      const quiet = await measure(FULL_SIZE ? { ...closingPorts(), ...key } : undefined);
      const loud = await measure({ ...ownPorts(), ...key });
      alone.push(quiet);
      beside.push(loud);
      ratios.push(loud.result / quiet.result);
    }
    // Nothing was sent twice: the worker missed no heartbeat.
    expect(ledger.entries).toHaveLength(stored);
    expect(new Set(ledger.entries.map(({ deliveryId }) => deliveryId)).size).toBe(stored);
    expect(service.process.exitCode).toBeNull();
    // Every line on stderr is a fault: the log goes to stdout.
    expect(output.join("")).toBe("");

    const growth =
      Math.max(...beside.map((one) => one.peakBytes)) - Math.max(...alone.map((one) => one.peakBytes));
    const latency = p99(beside.flatMap((one) => one.latencies));
    tell(
      `hostile caller ${name}: /readyz p99 ${latency.toFixed(0)} ms, memory +${(growth / MIB).toFixed(0)} MiB, ` +
        `deliveries at ${ratios.map((ratio) => ratio.toFixed(2)).join(" / ")} of their rate ` +
        `(${alone.map((one) => one.result.toFixed(0)).join(" / ")}/s beside the listener that closes, where /readyz took ` +
        `${p99(alone.flatMap((one) => one.latencies)).toFixed(0)} ms)`,
    );
    expect(growth).toBeLessThan(MAX_GROWTH);
    if (!FULL_SIZE) return;
    expect(latency).toBeLessThan(250);
    expect(median(ratios)).toBeGreaterThan(0.8);
  },
);
