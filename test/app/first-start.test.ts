import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { findRunningPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/lib/dev-servers/postgres/postgres-home.ts";
import { anyPort } from "../support/any-port.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { node, type Program, ROOT, startProgram } from "../support/program.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";

// The service of this file is started as README.md says: a receiver first, then a service that embeds its servers. Each test
// continues with what the one before has left.
let dataDir: string;
let receiver: Program;
let settings: Record<string, string>;
let service: ServiceProcess;
const keys: string[] = [];

const start = (more: Record<string, string> = {}) =>
  startServiceProcess({ ...settings, DATA_DIR: dataDir, ...more });
const keyFile = () => path.join(dataDir, "admin-key");
const readKey = async () => (await readFile(keyFile(), "utf8")).trim();
const call = (key: string, target: string, init: RequestInit = {}) =>
  fetch(`http://127.0.0.1:${service.httpPort}${target}`, {
    ...init,
    headers: { "X-Service-Key": key, "Content-Type": "application/json" },
  });
const statusOf = async (key: string) => (await call(key, "/api/webhook/list")).status;

/** What `npm run admin-key` prints to a pipe: the key alone. */
async function makeAdminKey(): Promise<string> {
  const [file = "", ...args] = node("src/admin-key.ts");
  const environment = { ...process.env, DATA_DIR: dataDir };
  return (await promisify(execFile)(file, args, { cwd: ROOT, env: environment })).stdout.trim();
}

beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-first-"));
  const HTTP_PORT = String(await anyPort());
  const command = node("demo/listen.ts", "--port", "0", "--service", `http://127.0.0.1:${HTTP_PORT}`);
  receiver = startProgram(command, { environment: { DATA_DIR: dataDir } });
  const [, printed = ""] = await receiver.until(/^ {2}(.*) npm start$/m);
  settings = {
    ...Object.fromEntries(printed.split(" ").map((each) => each.split("=") as [string, string])),
    HTTP_PORT,
    CUSTOMER_ALLOWED_NETWORKS: "127.0.0.0/8,::1/128",
    DISPATCH_ON_PUBLISH: "true",
    DELIVERY_PROCESSES: "0",
    HEARTBEAT_TIMEOUT: "3s",
  };
  service = await start();
});
afterAll(async () => {
  await receiver?.end("SIGTERM");
  await service?.end("SIGTERM");
  await removeDataDir(dataDir);
  await rm(dataDir, { recursive: true, force: true });
});

test("the first administrator finds a key in DATA_DIR/admin-key, for the owner's eyes only, and can make another while the service runs", async () => {
  keys.push(await readKey(), await makeAdminKey());
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600);
  expect(keys[1]).toMatch(/^whk_/);
  expect(await Promise.all(keys.map(statusOf))).toEqual([200, 200]);
});

test("a service started as the receiver says delivers to it, and the receiver prints the delivery and checks its signature", async () => {
  const [, url] = await receiver.until(/listens on (\S+)\./);
  const body = JSON.stringify({ process: 1, url: `${url}/hooks` });
  expect((await call(await readKey(), "/api/webhook", { method: "POST", body })).status).toBe(200);
  const events = createClient(EventService, keyedTransport(service.grpcPort, await readKey()));
  await events.publishEvent(orderEvent());
  await receiver.until(/signature valid/);
  expect(receiver.printed()).toMatch(/POST \/hooks[\s\S]*"OrderNumber":/);
});

test("the receiver checks signatures of a customer's webhook, too", async () => {
  const [, url] = await receiver.until(/listens on (\S+)\./);
  const transport = keyedTransport(service.grpcPort, await readKey());
  const { userId } = orderEvent();
  const { secret } = await createClient(ApiKeyService, transport).createApiKey({
    name: "Acme",
    customer: userId,
    permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
  });
  const body = JSON.stringify({ process: 1, url: `${url}/acme` });
  expect((await call(secret, "/api/webhook", { method: "POST", body })).status).toBe(200);
  await createClient(EventService, transport).publishEvent(orderEvent());
  await receiver.until(/POST \/acme/);
  // The first event, and this one for both webhooks.
  await receiver.until(/(signature valid[\s\S]*){3}/);
});

test("a second service on the same DATA_DIR is refused, which is explained without the place in the code", async () => {
  const error = await start({ HTTP_PORT: "0" }).catch(({ message }: Error) => message);
  expect(error).toMatch(/^Startup failed: .* already uses .*; stop it, or set another DATA_DIR$/m);
  expect(error).not.toMatch(/^ +at /m);
});

test("after kill -9 of the service, the next start takes its servers over and delivers what was published before", async () => {
  const events = createClient(EventService, keyedTransport(service.grpcPort, await readKey()));
  const data = {
    ...orderEvent().data,
    value: { ...orderEvent().data.value, orderNumber: "before-the-kill" },
  };
  await events.publishEvent({ ...orderEvent(), data });
  await service.end("SIGKILL");
  const url = await findRunningPostgres(dataDir);
  expect(url).not.toBeNull();
  service = await start();
  expect(await findRunningPostgres(dataDir)).toBe(url);
  await receiver.until(/before-the-kill[\s\S]*signature valid/);
});

test("a restart finds the same keys, and one that was made while the service did not run", async () => {
  expect(await service.end("SIGTERM")).toBe(0);
  keys.push(await makeAdminKey(), "whk_unknown");
  service = await start();
  expect(await readKey()).toBe(keys[0]);
  expect(await Promise.all(keys.map(statusOf))).toEqual([200, 200, 200, 401]);
});
