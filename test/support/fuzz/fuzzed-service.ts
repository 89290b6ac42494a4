import { randomBytes } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createConnection } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { json } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { createClient } from "@connectrpc/connect";
import { Http2SessionManager } from "@connectrpc/connect-node";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../gen/webhook/v1/event_pb.ts";
import { EventTypeService } from "../../../gen/webhook/v1/event_type_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { SLOWEST_FILTER } from "../../filters/attacks.ts";
import { grpc } from "../clients.ts";
import { createTestDatabase } from "../database.ts";
import { orderEvent } from "../grpc-calls.ts";
import { startServiceProcess } from "../service-process.ts";
import { ONLY } from "../test-api.ts";
import type { KnownValues } from "./messages.ts";
import type { Ports } from "./senders.ts";

/** Which level a line of the log must not have: error. */
const ERROR_LEVEL = 50;

/** How the process does. */
export interface Vitals {
  /** The longest time that the event loop worked without a turn since the last question, in milliseconds. */
  workMs: number;
  /** What the process holds, in bytes, after a collection of garbage: the objects of the thread that answers, and all memory. */
  heap: number;
  rss: number;
}

/** An API in a process of its own, watched while it is fuzzed. */
export interface FuzzedService extends Ports {
  /** Secrets of keys; the first may do everything. */
  keys: string[];
  known: KnownValues;
  /** Lines of its output that are no lines of the log, or tell of an error. */
  complaints: string[];
  vitals(): Promise<Vitals>;
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
  const settings = {
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
  };
  const probeFile = fileURLToPath(new URL("service-probe.ts", import.meta.url));
  const service = await startServiceProcess(settings, ["--expose-gc", "--import", probeFile]);
  const complaints: string[] = [];
  const { stdout, stderr } = service.process;
  const listen = (input: Readable, isWrong: (line: string) => boolean) =>
    createInterface({ input }).on("line", (line) => void (isWrong(line) && complaints.push(line)));
  listen(stdout as Readable, isComplaint);
  listen(stderr as Readable, () => true);
  async function end(): Promise<void> {
    await service.end("SIGTERM");
    await database.drop();
    await rm(folder, { recursive: true, force: true });
  }
  const { httpPort, grpcPort } = service;
  try {
    const furnished = await furnish(`${withTls ? "https" : "http"}://127.0.0.1:${grpcPort}`, adminKey);
    return {
      httpPort,
      grpcPort,
      tls: withTls,
      ...furnished,
      complaints,
      vitals: async () => (await json(createConnection(probe))) as Vitals,
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

function isComplaint(line: string): boolean {
  try {
    return !(JSON.parse(line).level < ERROR_LEVEL);
  } catch {
    return true;
  }
}

/** A set without an event type, which is read and refused. */
const EMPTY_SET = new Uint8Array();

/** Makes what requests can name. Starts each of the threads once, which take some 40 MiB each, and of which some stay. */
async function furnish(grpcUrl: string, adminKey: string): Promise<Pick<FuzzedService, "keys" | "known">> {
  const connection = new Http2SessionManager(grpcUrl, undefined, { rejectUnauthorized: false });
  const transport = grpc({ grpcUrl, adminKey }, adminKey, connection);
  const apiKeys = createClient(ApiKeyService, transport);
  const webhooks = createClient(WebhookService, transport);
  const eventTypes = createClient(EventTypeService, transport);
  const urls = Array.from({ length: 5 }, (_, n) => `https://receiver.example/${n}`);
  const made = await Promise.all(urls.map((url) => webhooks.createWebhook({ process: 1, url })));
  const events = Array.from({ length: 3 }, orderEvent);
  await createClient(EventService, transport).publishEventBatch({ events });
  const { deliveries, nextPageToken } = await createClient(DeliveryService, transport).listDeliveries({
    pageSize: 10,
  });
  const { installedApp } = await apiKeys.createInstalledApp({ name: "app" });
  const app = installedApp?.id as string;
  const limited = await Promise.all([
    apiKeys.createApiKey({ name: "reads", permissions: ONLY.read }),
    apiKeys.createApiKey({ name: "writes", permissions: ONLY.write, allowedProcesses: [1] }),
    apiKeys.createApiKey({ name: "publishes", permissions: ONLY.publish }),
    apiKeys.createApiKey({
      name: "app's",
      permissions: Object.values({ ...ONLY, register: [] }).flat(),
      installedApplicationId: app,
    }),
  ]);
  // Keys that may be revoked and rotated; nobody calls with them.
  const spare = await Promise.all(
    urls.map((name) => apiKeys.createApiKey({ name, permissions: ONLY.publish })),
  );
  const webhookId = made[0]?.webhook?.id as bigint;
  // After a slow one, another thread is kept ready beside that of the next one.
  for (const filter of [SLOWEST_FILTER, "event.order_id == 1"])
    await webhooks.tryWebhookFilter({ webhookId, filter });
  await eventTypes.registerEventTypes({ fileDescriptorSet: EMPTY_SET }).catch(() => {});
  connection.abort();
  const spareIds = spare.map(({ apiKey }) => apiKey?.id as string);
  const keys = [adminKey, ...limited.map(({ secret }) => secret)];
  return {
    keys,
    known: {
      webhookId: made.map(({ webhook }) => webhook?.id as bigint),
      url: [...urls, "https://other.example/", "https://receiver.example/%F0%9F%98%80?a=b"],
      deliveryId: deliveries.map(({ id }) => id),
      eventId: deliveries.map(({ eventId }) => eventId),
      pageToken: [nextPageToken, "", deliveries[0]?.id ?? ""],
      pageSize: [0, 1, 10, 100, 1_000],
      buckets: [0, 1, 24, 100],
      rateLimit: [0, 1, 1_000],
      timeoutMs: [0, 1, 1_000],
      ratePeriodSeconds: [0, 60, 86_401],
      firstRetrySeconds: [0, 1, 86_400],
      signatureForm: [0, 1, 2, 3, 4],
      signatureHeader: ["", "X-Signature", "webhook-id"],
      signaturePrefix: ["", "sha256=", "\n"],
      secret: [`whsec_${"A".repeat(32)}`, "whsec_", "a"],
      apiKeyId: spareIds,
      transferToKeyId: spareIds,
      installedApplicationId: [app],
      apiKey: keys,
      service: ["", "webhook.v1.WebhookService", "unknown"],
      fileByFilename: ["webhook/v1/webhook.proto", "a"],
      fileContainingSymbol: ["webhook.v1.WebhookService", "a"],
      allExtensionNumbersOfType: ["google.protobuf.MethodOptions", "a"],
    },
  };
}
