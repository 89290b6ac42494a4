import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { createTestDatabase } from "../database.ts";
import { orderEvent } from "../grpc-calls.ts";
import { startServiceProcess } from "../service-process.ts";
import type { KnownValues } from "./fuzz-messages.ts";
import type { Ports } from "./senders.ts";

/** Which level a line of the log must not have: error. */
const ERROR_LEVEL = 50;

/** How the process does. */
export interface Vitals {
  /** The longest delay of a timer since the last question, in milliseconds. A busy machine adds to it. */
  delayMs: number;
  /** The longest time that the event loop worked without a turn since the last question, in milliseconds. */
  workMs: number;
  /** In bytes. */
  rss: number;
  heapUsed: number;
  external: number;
}

/** An API in a process of its own, watched while it is fuzzed. */
export interface FuzzedService extends Ports {
  /** Secrets of keys; the first may do everything. */
  keys: string[];
  known: KnownValues;
  /** Lines of its output that are no lines of the log, or tell of an error. */
  complaints: string[];
  /** How often the log warns, by message, method and error. */
  warnings: Map<string, number>;
  /** @param collect whether garbage is collected before memory is measured */
  vitals(collect?: boolean): Promise<Vitals>;
  end(): Promise<void>;
}

/**
 * Starts the service on a database of its own, with webhooks, deliveries and keys in it.
 *
 * @param withTls whether it serves everything on one port, with TLS
 */
export async function startFuzzedService(withTls: boolean): Promise<FuzzedService> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-fuzz-"));
  const probe = path.join(folder, "probe");
  const database = await createTestDatabase();
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const probeFile = fileURLToPath(new URL("service-probe.ts", import.meta.url));
  const service = await startServiceProcess(
    {
      ROLE: "api",
      DATABASE_URL: database.url,
      SECRET_KEY: randomBytes(32).toString("base64"),
      ADMIN_KEY: adminKey,
      // Sign-ins with made-up keys would throttle the address.
      WRONG_KEYS_PER_MINUTE: "0",
      // X-Forwarded-For is read, and what it says too.
      TRUST_PROXY: "127.0.0.0/8",
      REQUEST_IDLE_TIMEOUT: "1s",
      FUZZ_PROBE: probe,
      ...(withTls ? await tlsSettings(folder) : {}),
    },
    ["--expose-gc", "--import", probeFile],
  );
  const complaints: string[] = [];
  const warnings = new Map<string, number>();
  const { stdout, stderr } = service.process;
  if (stdout) createInterface({ input: stdout }).on("line", (line) => note(line, complaints, warnings));
  if (stderr) createInterface({ input: stderr }).on("line", (line) => complaints.push(`stderr: ${line}`));
  const { httpPort, grpcPort } = service;
  async function end(): Promise<void> {
    await service.end("SIGTERM");
    await database.drop();
    await rm(folder, { recursive: true, force: true });
  }
  try {
    return {
      httpPort,
      grpcPort,
      tls: withTls,
      ...(await furnish(`${withTls ? "https" : "http"}://127.0.0.1:${grpcPort}`, adminKey)),
      complaints,
      warnings,
      vitals: (collect = false) => askProbe(probe, collect),
      end,
    };
  } catch (error) {
    await end();
    throw error;
  }
}

async function tlsSettings(folder: string): Promise<Record<string, string>> {
  const authority = await createLocalAuthority();
  const { cert, key } = await authority.issue(["localhost", "127.0.0.1"]);
  const files = { TLS_CERT: path.join(folder, "cert.pem"), TLS_KEY: path.join(folder, "key.pem") };
  await Promise.all([writeFile(files.TLS_CERT, cert), writeFile(files.TLS_KEY, key)]);
  return files;
}

function note(line: string, complaints: string[], warnings: Map<string, number>): void {
  let entry: { level?: number; msg?: string; method?: string; err?: { message?: string; code?: string } };
  try {
    entry = JSON.parse(line);
  } catch {
    complaints.push(`stdout: ${line}`);
    return;
  }
  if ((entry.level ?? ERROR_LEVEL) >= ERROR_LEVEL) {
    complaints.push(line);
    return;
  }
  const { msg, method, err } = entry;
  const about = [msg, method, err?.code, err?.message].filter((part) => part !== undefined).join(": ");
  warnings.set(about, (warnings.get(about) ?? 0) + 1);
}

function askProbe(probe: string, collect: boolean): Promise<Vitals> {
  return new Promise((resolve, reject) => {
    let text = "";
    const socket = createConnection(probe, () => socket.write(collect ? "collect" : "look"));
    socket.on("data", (chunk) => {
      text += chunk;
    });
    socket.on("error", reject);
    socket.on("end", () => resolve(JSON.parse(text) as Vitals));
  });
}

/** Makes what requests can name. */
async function furnish(baseUrl: string, adminKey: string): Promise<Pick<FuzzedService, "keys" | "known">> {
  const transport = createGrpcTransport({
    baseUrl,
    nodeOptions: { rejectUnauthorized: false },
    interceptors: [
      (next) => (request) => {
        request.header.set("X-Service-Key", adminKey);
        return next(request);
      },
    ],
  });
  const apiKeys = createClient(ApiKeyService, transport);
  const webhooks = createClient(WebhookService, transport);
  const urls = Array.from({ length: 5 }, (_, n) => `https://receiver.example/${n}`);
  const webhookIds: bigint[] = [];
  for (const url of urls) {
    const { webhook } = await webhooks.createWebhook({ process: 1, url });
    webhookIds.push(webhook?.id as bigint);
  }
  await createClient(EventService, transport).publishEventBatch({
    events: Array.from({ length: 3 }, () => orderEvent()),
  });
  const { deliveries, nextPageToken } = await createClient(DeliveryService, transport).listDeliveries({
    pageSize: 10,
  });
  const { installedApp } = await apiKeys.createInstalledApp({ name: "app" });
  const app = installedApp?.id as string;
  const limited = await Promise.all([
    apiKeys.createApiKey({ name: "reads", permissions: [Permission.READ_ADMINISTRATIVE_DATA] }),
    apiKeys.createApiKey({
      name: "writes",
      permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
      allowedProcesses: [1],
    }),
    apiKeys.createApiKey({ name: "publishes", permissions: [Permission.PUBLISH_EVENTS] }),
    apiKeys.createApiKey({
      name: "app's",
      permissions: [
        Permission.READ_ADMINISTRATIVE_DATA,
        Permission.WRITE_ADMINISTRATIVE_DATA,
        Permission.MANAGE_API_KEYS,
        Permission.PUBLISH_EVENTS,
      ],
      installedApplicationId: app,
    }),
  ]);
  // Keys that may be revoked and rotated; nobody calls with them.
  const spare = await Promise.all(
    Array.from({ length: 5 }, (_, n) =>
      apiKeys.createApiKey({ name: `spare ${n}`, permissions: [Permission.PUBLISH_EVENTS] }),
    ),
  );
  const spareIds = spare.map(({ apiKey }) => apiKey?.id as string);
  return {
    keys: [adminKey, ...limited.map(({ secret }) => secret)],
    known: {
      webhookId: webhookIds,
      url: [...urls, "https://other.example/", "https://receiver.example/%F0%9F%98%80?a=b"],
      deliveryId: deliveries.map(({ id }) => id),
      eventId: deliveries.map(({ eventId }) => eventId),
      pageToken: [nextPageToken, "", deliveries[0]?.id ?? ""],
      pageSize: [0, 1, 10, 100, 1_000],
      buckets: [0, 1, 24, 100],
      rateLimit: [0, 1, 1_000],
      apiKeyId: spareIds,
      transferToKeyId: spareIds,
      installedApplicationId: [app],
      apiKey: [adminKey, ...limited.map(({ secret }) => secret)],
      service: ["", "webhook.v1.WebhookService", "unknown"],
      fileByFilename: ["webhook/v1/webhook.proto", "a"],
      fileContainingSymbol: ["webhook.v1.WebhookService", "a"],
      allExtensionNumbersOfType: ["google.protobuf.MethodOptions", "a"],
    },
  };
}
