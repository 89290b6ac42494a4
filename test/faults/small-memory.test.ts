import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { part } from "../support/parts.ts";
import { spawnService } from "../support/spawned-service.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { checkAttempts, outcomes, storeEvents, untilAllFinal } from "./parts.ts";
import { FULL_SIZE } from "./scale.ts";

const MIB = 2 ** 20;
const LIMIT = 256 * MIB;
const DELIVERIES = FULL_SIZE ? 6_000 : 300;
const PAYLOAD = 250 * 1_024;

/** Control groups that limit memory, in version 1 and 2. */
const CONTROLLERS = [
  { folder: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" },
  { folder: "/sys/fs/cgroup", limit: "memory.max", peak: "memory.peak" },
];

/** A control group of this machine with a limit of memory, or why there is none. */
function createGroup(): { folder: string; peak: () => number } | string {
  if (process.platform !== "linux") return "control groups are Linux's";
  for (const { folder, limit, peak } of CONTROLLERS) {
    const own = path.join(folder, `webhook-test-${process.pid}`);
    try {
      mkdirSync(own);
      if (!existsSync(path.join(own, limit))) throw new Error("not here");
      writeFileSync(path.join(own, limit), String(LIMIT));
      return { folder: own, peak: () => Number(readFileSync(path.join(own, peak), "utf8")) };
    } catch {
      if (existsSync(own)) rmdirSync(own);
    }
  }
  return "no control group can be made here: run as root on a machine that lets you";
}

const group = createGroup();
let cluster: Cluster;

describe.skipIf(typeof group === "string")("a worker limited to 256 MiB", () => {
  const { folder, peak } = group as Exclude<typeof group, string>;
  /** A child is in the group of its parent: this process goes into the group and out again. */
  async function startLimited(environment: Record<string, string>) {
    const before = currentGroup();
    writeFileSync(path.join(folder, "cgroup.procs"), String(process.pid));
    const starting = spawnService(environment);
    writeFileSync(path.join(before, "cgroup.procs"), String(process.pid));
    const worker = await starting;
    onTestFinished(async () => {
      await worker.end("SIGKILL");
    });
    return worker;
  }
  beforeAll(async () => {
    await part("workflows");
    cluster = await startCluster();
  });
  afterAll(async () => {
    await cluster?.end();
    rmdirSync(folder);
  });

  test(`delivers ${DELIVERIES} payloads of 250 KiB without being killed`, async () => {
    const receiver = await cluster.ledger(50);
    const webhookId = await cluster.register(`${receiver.url}/large`);
    await storeEvents(cluster.db, [webhookId], DELIVERIES, PAYLOAD);
    const worker = await startLimited({ ...cluster.environment, ROLE: "worker" });
    await untilAllFinal(cluster.db);
    expect(worker.process.exitCode ?? worker.process.signalCode).toBeNull();
    await checkAttempts(cluster.db);
    expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: DELIVERIES }]);
    expect(receiver.entries).toHaveLength(DELIVERIES);
    // The limit was in force: page cache included, all of it is used in time.
    expect(peak()).toBeGreaterThan(100 * MIB);
    expect(peak()).toBeLessThanOrEqual(LIMIT);
  });
});

/** The folder of the control group that this process is in. */
function currentGroup(): string {
  const lines = readFileSync("/proc/self/cgroup", "utf8").trim().split("\n");
  const isV1 = folderIsV1();
  const line = lines.find((each) => (isV1 ? each.includes(":memory:") : each.startsWith("0::"))) as string;
  return path.join(isV1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup", line.split(":").at(-1) as string);
}

const folderIsV1 = () => typeof group !== "string" && group.folder.startsWith("/sys/fs/cgroup/memory");
