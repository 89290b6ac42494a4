import { fork } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { Permission, PermissionSchema } from "../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import type { Attack } from "./hostile-client.ts";
import { startLedger } from "./ledger.ts";
import { register, startFaultParts, storeEvents } from "./parts.ts";
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

/** The permissions of the callers' keys; one has no key. */
const CALLERS = [
  Permission.PUBLISH_EVENTS,
  undefined,
  Permission.READ_ADMINISTRATIVE_DATA,
  Permission.WRITE_ADMINISTRATIVE_DATA,
  Permission.MANAGE_API_KEYS,
  Permission.MANAGE_EVENT_TYPES,
];

interface Measurement {
  /** Deliveries a second. */
  rate: number;
  /** The times of answers of /readyz, in milliseconds. */
  latencies: number[];
  /** The most memory that the process had. */
  peakBytes: number;
}

const quantile = (values: number[], part: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * part)] as number;
const p99 = (all: Measurement[]) =>
  quantile(
    all.flatMap(({ latencies }) => latencies),
    0.99,
  );
const peak = (all: Measurement[]) => Math.max(...all.map(({ peakBytes }) => peakBytes));

test("hostile callers stop neither answers nor deliveries", async () => {
  const parts = await startFaultParts();
  onTestFinished(parts.end);
  const ledger = await startLedger(parts.certificate, 0);
  onTestFinished(ledger.close);
  const service = await startServiceProcess({ ...parts.environment, HEARTBEAT_TIMEOUT: "20s" });
  onTestFinished(async () => void (await service.end("SIGTERM")));
  const output: string[] = [];
  service.process.stderr?.on("data", (chunk) => output.push(String(chunk)));
  const transport = keyedTransport(service.grpcPort, parts.adminKey);
  const webhooks = createClient(WebhookService, transport);
  const keys = createClient(ApiKeyService, transport);
  const webhookId = await register(service.grpcPort, parts.adminKey, `${ledger.url}/`);
  await webhooks.pauseWebhook({ webhookId });
  /** Closes every connection, so that a client beside it is as busy. */
  const closing = createServer((socket) => socket.on("error", () => {}).destroy());
  await once(closing.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void closing.close());
  const { port: closingPort } = closing.address() as AddressInfo;
  let stored = 0;

  async function store(): Promise<void> {
    await storeEvents(parts.db, [webhookId], DELIVERIES);
    stored += DELIVERIES;
  }

  /** Delivers what was stored while the webhook was paused; answers how many deliveries a second arrived. */
  async function drain(): Promise<number> {
    const before = ledger.entries.length;
    await webhooks.resumeWebhook({ webhookId });
    await until(() => ledger.entries.length >= stored);
    const arrivals = ledger.entries.slice(before);
    await webhooks.pauseWebhook({ webhookId });
    const tookMs = (arrivals.at(-1)?.at ?? 0) - (arrivals[0]?.at ?? 0);
    return arrivals.length / (tookMs / 1_000);
  }

  function residentBytes(): number {
    const [, kib] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${service.pid}/status`, "utf8")) ?? [];
    return Number(kib) * 1_024;
  }

  /** Delivers beside an attack. */
  async function measure(attack: Omit<Attack, "requestsPerSecond">): Promise<Measurement> {
    await store();
    const file = fileURLToPath(new URL("hostile-client.ts", import.meta.url));
    const client = fork(file, [JSON.stringify({ ...attack, requestsPerSecond: REQUESTS_PER_SECOND })]);
    const latencies: number[] = [];
    let peakBytes = 0;
    let isOver = false;
    const probe = async () => {
      while (!isOver) {
        const asked = performance.now();
        const answer = await fetch(`http://127.0.0.1:${service.httpPort}/readyz`);
        // On a slow machine, the attack may keep delivery processes from reporting.
        expect(FULL_SIZE ? [200] : [200, 503], await answer.text()).toContain(answer.status);
        latencies.push(performance.now() - asked);
        peakBytes = Math.max(peakBytes, residentBytes());
        await wait(PROBE_INTERVAL_MS);
      }
    };
    const work = async () => {
      try {
        // Its first report: it has begun.
        await once(client, "message");
        const [rate] = await Promise.all([drain(), wait(ATTACK_MS)]);
        return rate;
      } finally {
        isOver = true;
        client.kill("SIGKILL");
      }
    };
    const [rate] = await Promise.all([work(), probe()]);
    return { rate, latencies, peakBytes };
  }

  // The first deliveries of a process are slower than all that follow.
  await store();
  await drain();
  for (const permission of FULL_SIZE ? CALLERS : CALLERS.slice(0, 1)) {
    const created = permission && (await keys.createApiKey({ name: "hostile", permissions: [permission] }));
    const key = created ? { key: created.secret } : {};
    const alone: Measurement[] = [];
    const beside: Measurement[] = [];
    for (let n = 0; n < REPEATS; n += 1) {
      alone.push(await measure({ httpPort: closingPort, grpcPort: closingPort, ...key }));
      beside.push(await measure({ httpPort: service.httpPort, grpcPort: service.grpcPort, ...key }));
    }
    // Nothing was sent twice: the worker missed no heartbeat.
    expect(ledger.entries).toHaveLength(stored);
    expect(new Set(ledger.entries.map(({ deliveryId }) => deliveryId)).size).toBe(stored);
    expect(service.process.exitCode).toBeNull();
    // Every line on stderr is a fault: the log goes to stdout.
    expect(output.join("")).toBe("");
    const ratios = beside.map(({ rate }, n) => rate / (alone[n] as Measurement).rate);
    const growth = peak(beside) - peak(alone);
    tell(
      `hostile caller with ${permission ? PermissionSchema.value[permission]?.name : "no key"}: /readyz p99 ${p99(beside).toFixed(0)} ms, memory +${(growth / MIB).toFixed(0)} MiB, ` +
        `deliveries at ${ratios.map((ratio) => ratio.toFixed(2)).join(" / ")} of their rate beside the listener that closes, ` +
        `where /readyz took ${p99(alone).toFixed(0)} ms`,
    );
    expect(growth).toBeLessThan(MAX_GROWTH);
    if (!FULL_SIZE) continue;
    expect(p99(beside)).toBeLessThan(250);
    expect(quantile(ratios, 0.5)).toBeGreaterThan(0.8);
  }
});
