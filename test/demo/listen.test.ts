import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { request } from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { createClient } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { DeliveryService, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { isRoot } from "../../src/embedded/process/owner.ts";
import { readSecretFile } from "../../src/embedded/process/state-file.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

let dataDir: string;
let receiver: Listening;
let service: ServiceProcess;
let adminKey: string;

interface Listening {
  process: ChildProcess;
  /** What it has printed, without colours. */
  text(): string;
}

/** Runs `npm run receiver` until it has said how to start the service. */
async function listen(args: string[] = [], environment: NodeJS.ProcessEnv = {}): Promise<Listening> {
  const child = spawn(
    process.execPath,
    ["--disable-warning=ExperimentalWarning", "demo/listen.ts", "--port", "0", ...args],
    {
      cwd: root,
      env: { ...process.env, DATA_DIR: dataDir, ...environment },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const printed: string[] = [];
  createInterface({ input: child.stdout as NodeJS.ReadableStream }).on("line", (line) => printed.push(line));
  const text = () => stripVTControlCharacters(printed.join("\n"));
  await vi.waitUntil(() => /Then register/.test(text()), { timeout: 30_000 });
  return { process: child, text };
}

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-receiver-"));
  const first = await listen();
  const [, settings = ""] = /^ {2}(.*) npm start$/m.exec(first.text()) ?? [];
  first.process.kill("SIGTERM");
  service = await startServiceProcess({
    ...Object.fromEntries(settings.split(" ").map((each) => each.split("=") as [string, string])),
    DATA_DIR: dataDir,
    DISPATCH_ON_PUBLISH: "true",
    RETRY_INITIAL_DELAY: "100ms",
    RETRY_BACKOFF_COEFFICIENT: "1",
  });
  adminKey = (await readSecretFile(path.join(dataDir, "admin-key"))) as string;
  // With the certificate of the first, which the service trusts.
  receiver = await listen(["--service", `http://127.0.0.1:${service.httpPort}`]);
}, 180_000);

afterAll(async () => {
  receiver?.process.kill("SIGTERM");
  await service?.end("SIGTERM");
  await rm(dataDir, { recursive: true, force: true });
});

/** Registers a path of the receiver, publishes an event, and answers its delivery once it has ended. */
async function deliverTo(target: string) {
  const [, url = ""] = /listens on (\S+)\./.exec(receiver.text()) ?? [];
  const registered = await fetch(`http://127.0.0.1:${service.httpPort}/api/webhook`, {
    method: "POST",
    headers: { "X-Service-Key": adminKey, "Content-Type": "application/json" },
    body: JSON.stringify({ process: 1, url: `${url}${target}` }),
  });
  const { Data } = (await registered.json()) as { Data: { Id: number } };
  const transport = keyedTransport(service.grpcPort, adminKey);
  const { eventId } = await createClient(EventService, transport).publishEvent({
    idempotencyKey: target,
    userId: "tenant-1",
    data: {
      case: "orderDispatched",
      value: { orderId: 1n, orderNumber: "SO-1", dispatchedAt: { seconds: 1n } },
    },
  });
  const deliveries = createClient(DeliveryService, transport);
  const webhookId = BigInt(Data.Id);
  await expect
    .poll(async () => (await deliveries.listDeliveries({ eventId, webhookId })).deliveries[0]?.finished, {
      timeout: 60_000,
    })
    .toBeDefined();
  const [delivery] = (await deliveries.listDeliveries({ eventId, webhookId })).deliveries;
  return { state: delivery?.state, attempts: delivery?.attemptCount };
}

test("a service started as the receiver says delivers to it, and the receiver prints the delivery", async () => {
  expect(await deliverTo("/hooks")).toEqual({ state: DeliveryState.DELIVERED, attempts: 1 });
  await expect.poll(receiver.text).toContain("signature valid");
  expect(receiver.text()).toContain("POST /hooks");
  expect(receiver.text()).toContain('"OrderNumber":"SO-1"');
});

test.runIf(isRoot())(
  "the receiver creates a DATA_DIR that the user of the database may traverse",
  async () => {
    const parent = await mkdtemp(path.join(tmpdir(), "webhook-test-receiver-"));
    onTestFinished(() => rm(parent, { recursive: true, force: true }));
    const fresh = path.join(parent, "data");
    const own = await listen([], { DATA_DIR: fresh });
    onTestFinished(() => void own.process.kill("SIGKILL"));
    expect((await stat(fresh)).mode & 0o777).toBe(0o711);
    expect((await stat(path.join(fresh, "receiver"))).mode & 0o777).toBe(0o700);
  },
);

test("a signature by another secret is told", async () => {
  const url = new URL(/listens on (\S+)\./.exec(receiver.text())?.[1] as string);
  const body = "{}";
  const id = "01a1fcb1-a29f-764b-ae78-489c1b984865";
  const other = new Webhook(`whsec_${Buffer.alloc(32, 7).toString("base64")}`);
  const headers = {
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(Date.now() / 1_000)),
    "webhook-signature": other.sign(id, new Date(), body),
  };
  const ca = await readFile(path.join(dataDir, "receiver/ca.pem"));
  const sent = request({ host: "127.0.0.1", port: url.port, method: "POST", path: "/forged", headers, ca });
  sent.end(body);
  await once(sent, "response");
  await expect.poll(receiver.text).toContain("SIGNATURE INVALID");
});

test("a receiver that npm runs ends at SIGTERM, also while a delayed response is pending", async () => {
  const own = await listen([], { npm_lifecycle_event: "receiver" });
  onTestFinished(() => void own.process.kill("SIGKILL"));
  const url = new URL(/listens on (\S+)\./.exec(own.text())?.[1] as string);
  const ca = await readFile(path.join(dataDir, "receiver/ca.pem"));
  const delayed = request({
    host: "127.0.0.1",
    port: url.port,
    method: "POST",
    path: "/delay/600000",
    headers: { expect: "100-continue" },
    ca,
  });
  delayed.on("error", () => {});
  delayed.flushHeaders();
  // Sent when the receiver has the request.
  await once(delayed, "continue");
  delayed.end("{}");
  const ended = once(own.process, "exit");
  own.process.kill("SIGTERM");
  expect(await ended).toEqual([0, null]);
});

test("a path makes the receiver fail as often as it says", async () => {
  expect(await deliverTo("/fail-first/2")).toEqual({ state: DeliveryState.DELIVERED, attempts: 3 });
  expect(await deliverTo("/status/410")).toEqual({ state: DeliveryState.FAILED, attempts: 4 });
});
