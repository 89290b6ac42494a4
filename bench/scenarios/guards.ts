import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { Agent, request as send } from "node:http";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { ALL_PERMISSIONS, createApiKey } from "../../src/db/keys/api-keys.ts";
import { spawnService } from "../../test/support/spawned-service.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { freshDatabase } from "../parts/stage.ts";
import { percentile } from "../parts/timed-calls.ts";
import { HOSTILE_KINDS, type HostileMethods } from "../processes/hostile.ts";

/** The memory limit of the API, in bytes. */
const MEMORY = 512 * 1_048_576;
const CONNECTIONS = 200;
const MANY_KEYS = 20;
const PROBE_MS = 50;
/** The time after which a call counts as failed, in milliseconds. */
const GIVE_UP_MS = 10_000;
const STOP_MS = 10_000;

/** A control group that limits the memory of its processes. */
function openMemoryGroup(folder: string, bytes: number) {
  const group = `/sys/fs/cgroup/memory/webhook-guards-${process.pid}`;
  mkdirSync(group);
  writeFileSync(path.join(group, "memory.limit_in_bytes"), String(bytes));
  const node = path.join(folder, "node-in-memory-group");
  writeFileSync(node, `#!/bin/sh\necho $$ > '${group}/cgroup.procs' && exec '${process.execPath}' "$@"\n`);
  chmodSync(node, 0o755);
  return {
    node,
    /** The most memory since the last call, in bytes. */
    peak() {
      const file = path.join(group, "memory.max_usage_in_bytes");
      const bytes = Number(readFileSync(file, "utf8"));
      writeFileSync(file, "0");
      return bytes;
    },
    [Symbol.dispose]: () => rmdirSync(group),
  };
}

/** The time of a request, in milliseconds; undefined if it fails. */
function time(agent: Agent, port: number, options: { path: string; key?: string; body?: string }) {
  const { path, key, body } = options;
  const asked = performance.now();
  return new Promise<number | undefined>((resolve) => {
    const headers = {
      ...(key ? { "x-service-key": key } : {}),
      ...(body ? { "content-type": "application/json" } : {}),
    };
    const request = send({
      agent,
      host: "127.0.0.1",
      port,
      path,
      method: body ? "POST" : "GET",
      headers,
      timeout: GIVE_UP_MS,
    });
    request.on("response", (response) => {
      response
        .resume()
        .on("end", () => resolve(response.statusCode === 200 ? performance.now() - asked : undefined));
    });
    request.on("timeout", () => request.destroy());
    request.on("error", () => resolve(undefined));
    request.on("close", () => resolve(undefined));
    request.end(body);
  });
}

async function measure(bench: Bench, seconds: number): Promise<Measurement[]> {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await freshDatabase(bench));
  const group = stack.use(openMemoryGroup(bench.folder, MEMORY));
  const client = stack.use(startChild<HostileMethods>(bench, "hostile.ts"));
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const start = () =>
    spawnService(
      {
        ROLE: "api",
        DATABASE_URL: database.url,
        TEMPORAL_ADDRESS: "127.0.0.1:1",
        SECRET_KEY: Buffer.alloc(32, 1).toString("base64"),
        ADMIN_KEY: adminKey,
      },
      [],
      undefined,
      group.node,
    );
  let service = await start();
  stack.defer(async () => {
    const killed = setTimeout(() => service.process.kill("SIGKILL"), STOP_MS);
    await service.end("SIGTERM").catch(() => {});
    clearTimeout(killed);
  });
  const keys: string[] = [];
  for (let n = 0; n <= MANY_KEYS; n += 1)
    keys.push((await createApiKey(database.db, { name: `key ${n}`, permissions: ALL_PERMISSIONS })).secret);
  const [other = "", ...attackers] = keys;
  const found: Measurement[] = [];
  for (const kind of HOSTILE_KINDS) {
    for (const [who, some] of [
      ["no key", []],
      ["one key", attackers.slice(0, 1)],
      ["20 keys", attackers],
    ] as const) {
      group.peak();
      const attack = {
        kind,
        keys: some,
        connections: CONNECTIONS,
        seconds,
        httpPort: service.httpPort,
        grpcPort: service.grpcPort,
      };
      let isOver = false;
      const probes = async (options: Parameters<typeof time>[2]) => {
        const agent = new Agent({ keepAlive: true });
        const times: (number | undefined)[] = [];
        while (!isOver) {
          times.push(await time(agent, service.httpPort, options));
          await wait(PROBE_MS);
        }
        agent.destroy();
        return times;
      };
      const readyz = probes({ path: "/readyz" });
      const calls = probes({ path: "/webhook.v1.ApiKeyService/ListInstalledApps", key: other, body: "{}" });
      await client.call("attack", attack);
      isOver = true;
      const [ready, served] = await Promise.all([readyz, calls]);
      const known = (times: (number | undefined)[]) => times.filter((each) => each !== undefined);
      const add = (detail: string, unit: string, value: number) => {
        found.push({ detail: `${kind}, ${who}: ${detail}`, unit, value });
        bench.show.step(`  ${kind}, ${who}: ${detail} ${value.toFixed(1)} ${unit}`);
      };
      const isEnded = service.process.exitCode !== null || service.process.signalCode !== null;
      add("restarts", "", isEnded ? 1 : 0);
      add("memory", "MiB", group.peak() / 1_048_576);
      add("/readyz", "ms at most", Math.max(0, ...known(ready)));
      add("/readyz failed", "", ready.length - known(ready).length);
      add(
        "other key",
        "ms, p99",
        percentile(known(served).length > 0 ? known(served).sort((a, b) => a - b) : [GIVE_UP_MS], 0.99),
      );
      add("other key failed", "", served.length - known(served).length);
      if (isEnded) {
        bench.show.step(service.printed().slice(-2_000));
        service = await start();
      }
    }
  }
  return found;
}

/** Attacks on an API with 512 MiB, by hundreds of connections. */
export const guards: Scenario = {
  name: "guards",
  what: "an API with 512 MiB under attacks over 200 connections, without a key, with one and with 20 (count: seconds of each)",
  count: { full: 10, small: 2 },
  targets: {},
  comparisons: [],
  measure,
};
