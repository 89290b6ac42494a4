import { randomBytes } from "node:crypto";
import { chmodSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { Agent } from "node:http";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { ALL_PERMISSIONS, createApiKey } from "../../src/keys/api-keys.ts";
import { spawnService } from "../../test/support/spawned-service.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { statusOf } from "../parts/http-status.ts";
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

/** The keys that attackers have: the first of 20. */
const WHO = { "no key": 0, "one key": 1, "20 keys": MANY_KEYS } as const;

const RESTARTS = "restarts";
const MAX_MS = "/readyz";
const FAILED = "other key failed";

const nameOf = (kind: string, who: string, figure: string) => `${kind}, ${who}: ${figure}`;

/** Asks one after the other until the attack is over. @returns the times of those with the status 200, and the number of all */
async function probe(url: URL, key: string, body: string | undefined, isOver: () => boolean) {
  const agent = new Agent({ keepAlive: true });
  const times: number[] = [];
  let all = 0;
  for (; !isOver(); all += 1) {
    const asked = performance.now();
    if ((await statusOf(url, agent, key, body, { giveUpMs: GIVE_UP_MS })) === 200)
      times.push(performance.now() - asked);
    await wait(PROBE_MS);
  }
  agent.destroy();
  return { times, all };
}

/** Measures the API while an attack lasts. */
async function measureBeside(attack: Promise<void>, httpPort: number, key: string) {
  let isOver = false;
  const ended = () => isOver;
  const at = (place: string) => new URL(place, `http://127.0.0.1:${httpPort}`);
  const readyz = probe(at("/readyz"), key, undefined, ended);
  const calls = probe(at("/webhook.v1.ApiKeyService/ListInstalledApps"), key, "{}", ended);
  await attack;
  isOver = true;
  const [ready, served] = await Promise.all([readyz, calls]);
  return [
    { figure: MAX_MS, unit: "ms at most", value: Math.max(0, ...ready.times) },
    { figure: "/readyz failed", unit: "", value: ready.all - ready.times.length },
    {
      figure: "other key",
      unit: "ms, p99",
      value: percentile(served.times.length > 0 ? served.times.sort((a, b) => a - b) : [GIVE_UP_MS], 0.99),
    },
    { figure: FAILED, unit: "", value: served.all - served.times.length },
  ];
}

async function measure(bench: Bench, seconds: number): Promise<Measurement[]> {
  await using stack = new AsyncDisposableStack();
  const database = stack.use(await freshDatabase(bench));
  const group = stack.use(openMemoryGroup(bench.folder, MEMORY));
  const client = stack.use(startChild<HostileMethods>(bench, "hostile.ts"));
  const environment = {
    ROLE: "api",
    DATABASE_URL: database.url,
    // Nothing is dispatched.
    TEMPORAL_ADDRESS: "127.0.0.1:1",
    SECRET_KEY: randomBytes(32).toString("base64"),
    ADMIN_KEY: `whk_${randomBytes(24).toString("base64url")}`,
  };
  const start = () => spawnService(environment, [], undefined, group.node);
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
    for (const [who, count] of Object.entries(WHO)) {
      const { httpPort, grpcPort } = service;
      group.peak();
      const attack = client.call("attack", {
        kind,
        keys: attackers.slice(0, count),
        connections: CONNECTIONS,
        seconds,
        httpPort,
        grpcPort,
      });
      const figures = await measureBeside(attack, httpPort, other);
      const isEnded = service.process.exitCode !== null || service.process.signalCode !== null;
      figures.push(
        { figure: RESTARTS, unit: "", value: isEnded ? 1 : 0 },
        { figure: "memory", unit: "MiB", value: group.peak() / 1_048_576 },
      );
      for (const { figure, unit, value } of figures) {
        found.push({ detail: nameOf(kind, who, figure), unit, value });
        bench.show.step(`  ${kind}, ${who}: ${figure} ${value.toFixed(1)} ${unit}`);
      }
      if (isEnded) {
        bench.show.step(service.printed().slice(-2_000));
        service = await start();
      }
    }
  }
  return found;
}

const AT_MOST = { [RESTARTS]: 0, [MAX_MS]: 1_000, [FAILED]: 0 };

/** Attacks on an API with 512 MiB, by hundreds of connections. */
export const guards: Scenario = {
  name: "guards",
  what: "an API with 512 MiB under attacks over 200 connections, without a key, with one and with 20 (count: seconds of each)",
  count: { full: 10, small: 2 },
  targets: Object.fromEntries(
    HOSTILE_KINDS.flatMap((kind) =>
      Object.keys(WHO).flatMap((who) =>
        Object.entries(AT_MOST).map(([figure, atMost]) => [nameOf(kind, who, figure), { atMost }]),
      ),
    ),
  ),
  comparisons: [],
  measure,
};
