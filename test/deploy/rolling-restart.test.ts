import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { Agent, request } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { describeWith } from "./programs.ts";

const RESTARTS = 3;
/** Calls in flight by each protocol. */
const CALLERS = 8;
/** The time between two calls of a caller, in milliseconds. */
const PAUSE_MS = 20;
const adminKey = `whk_${randomBytes(24).toString("base64url")}`;

/** A process of the API with its ports, which stay the same over restarts. */
interface Instance {
  environment: Record<string, string>;
  service: ServiceProcess;
}
type Proxy = Awaited<ReturnType<typeof startProxy>>;

describeWith(["haproxy"], "two APIs behind HAProxy, which retries nothing", () => {
  let database: Awaited<ReturnType<typeof createTestDatabase>>;
  let instances: Instance[] = [];
  let proxy: Proxy;

  beforeAll(async () => {
    database = await createTestDatabase();
    const secretKey = randomBytes(32).toString("base64");
    instances = await Promise.all(
      [1, 2].map(async () => {
        const environment = {
          ROLE: "api",
          DATABASE_URL: database.url,
          SECRET_KEY: secretKey,
          ADMIN_KEY: adminKey,
          HTTP_PORT: String(await anyPort()),
          GRPC_PORT: String(await anyPort()),
          SHUTDOWN_DELAY: process.env.TEST_SHUTDOWN_DELAY ?? "4s",
        };
        return { environment, service: await startServiceProcess(environment) };
      }),
    );
    proxy = await startProxy(instances);
  });

  afterAll(async () => {
    await proxy?.stop();
    await Promise.all(instances.map(({ service }) => service.end("SIGTERM")));
    await database?.drop();
  });

  test(`are restarted ${RESTARTS} times, one after the other, and no call by REST or gRPC fails`, async () => {
    const isUp = () => expect.poll(() => proxy.states().catch(() => [])).toEqual(["UP", "UP", "UP", "UP"]);
    await isUp();
    const load = startLoad(proxy);
    for (let n = 0; n < RESTARTS; n += 1) {
      for (const instance of instances) {
        const before = load.completed();
        expect(await instance.service.end("SIGTERM")).toBe(0);
        instance.service = await startServiceProcess(instance.environment);
        await isUp();
        // Calls went on meanwhile.
        const { rest, grpc } = load.completed();
        expect([rest > before.rest, grpc > before.grpc]).toEqual([true, true]);
      }
    }
    const failures = await load.stop();
    console.log("completed calls:", load.completed());
    expect(failures).toEqual([]);
  });
});

/** Calls by both protocols, over connections that are kept. */
function startLoad({ restUrl, grpcPort }: Proxy) {
  const completed = { rest: 0, grpc: 0 };
  const failures: string[] = [];
  const stopping = new AbortController();
  const agent = new Agent({ keepAlive: true, maxSockets: CALLERS });
  const events = createClient(EventService, keyedTransport(grpcPort, adminKey));
  const call = {
    async rest() {
      const options = { agent, headers: { "X-Service-Key": adminKey } };
      const [response] = await once(request(`${restUrl}/api/webhook/list`, options).end(), "response");
      await once(response.resume(), "end");
      if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}`);
    },
    grpc: () => events.publishEvent({ ...orderEvent(), idempotencyKey: randomUUID() }),
  };
  const keepCalling = async (protocol: keyof typeof call) => {
    while (!stopping.signal.aborted) {
      await call[protocol]().then(
        () => (completed[protocol] += 1),
        (error: Error) => failures.push(`${protocol}: ${error.message}`),
      );
      // Leaves the processor to what starts meanwhile.
      await wait(PAUSE_MS);
    }
  };
  const calls = Array.from({ length: CALLERS }, () => [keepCalling("rest"), keepCalling("grpc")]);
  return {
    completed: () => ({ ...completed }),
    /** Returns what failed. */
    async stop() {
      stopping.abort();
      await Promise.all(calls.flat());
      agent.destroy();
      return failures;
    },
  };
}

/** Starts HAProxy in front of the instances, without retries, which checks `/readyz` five times a second. */
async function startProxy(instances: readonly Instance[]) {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-haproxy-"));
  const [restPort, grpcPort, statsPort] = [await anyPort(), await anyPort(), await anyPort()];
  const server = (port: "HTTP_PORT" | "GRPC_PORT", options: string) =>
    instances
      .map(
        ({ environment }, n) =>
          `server api-${n + 1} 127.0.0.1:${environment[port]} check port ${environment.HTTP_PORT} inter 200ms fall 1 rise 1 ${options}`,
      )
      .join("\n  ");
  const file = path.join(folder, "haproxy.cfg");
  await writeFile(
    file,
    `defaults
  mode http
  retries 0
  timeout connect 2s
  timeout client 30s
  timeout server 30s
  timeout check 3s
  option httpchk GET /readyz
frontend rest
  bind 127.0.0.1:${restPort}
  default_backend rest
frontend grpc
  bind 127.0.0.1:${grpcPort} proto h2
  default_backend grpc
backend rest
  ${server("HTTP_PORT", "")}
backend grpc
  ${server("GRPC_PORT", "proto h2 check-proto h1")}
frontend stats
  bind 127.0.0.1:${statsPort}
  stats enable
  stats uri /
`,
  );
  const child = spawn("haproxy", ["-db", "-f", file], { stdio: ["ignore", "ignore", "inherit"] });
  return {
    restUrl: `http://127.0.0.1:${restPort}`,
    grpcPort,
    /** The states of the servers, in both backends. */
    async states() {
      const text = await (await fetch(`http://127.0.0.1:${statsPort}/;csv`)).text();
      const rows = text.split("\n").map((line) => line.split(","));
      const status = rows[0]?.indexOf("status") ?? -1;
      return rows.filter(([, name]) => name?.startsWith("api-")).map((row) => row[status] as string);
    },
    async stop() {
      const exited = once(child, "exit");
      child.kill("SIGTERM");
      await exited;
      await rm(folder, { recursive: true, force: true });
    },
  };
}
