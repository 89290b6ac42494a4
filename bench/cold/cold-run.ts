import { setTimeout as wait } from "node:timers/promises";
import { webhookUrls } from "../parts/fan-out.ts";
import { peakMemory } from "../parts/processes.ts";
import type { ColdBench } from "./cold-bench.ts";
import { type ColdBehaviour, startColdReceivers } from "./cold-receivers.ts";
import { startColdService } from "./cold-service.ts";

/** Deliveries to measure. */
export interface Load {
  /** Shown while they are delivered. */
  what: string;
  pace: number;
  /** Settings of the service other than the defaults. */
  settings: Record<string, string>;
  /** The receivers that deliver well. */
  healthy: readonly ColdBehaviour[];
  /** The receivers beside them. Defaults to none. */
  bad?: readonly ColdBehaviour[];
  /** The number of events, each for ten webhooks of each receiver. */
  events: number;
  /** The time after which the measurement ends, in seconds. Defaults to none. */
  maxSeconds?: number;
}

/** What was measured. */
export interface ColdRun {
  /** Requests per second at healthy receivers, from the first that any of them received to the last. */
  rate: number;
  seconds: number;
  /** Whether the measurement ended before the last. */
  isCut: boolean;
  /** The mean number of requests at healthy receivers that wait for their response. */
  inFlight: number;
  /** Transactions per second in the service's database. */
  commits: number;
  /** The most memory of the delivery process, in MiB. */
  memory: number;
}

const POLL_MS = 50;
/** The time without a request at healthy receivers after which the measurement fails, in milliseconds. */
const STALL_TIMEOUT_MS = 120_000;
/** The time without a look after which the measurement fails, in milliseconds: the bench itself was stopped meanwhile. */
const MAX_PAUSE_MS = 10_000;
const MEBIBYTE = 1_048_576;

/** Starts a service, registers webhooks, publishes events, and ends when all deliveries to healthy receivers have arrived. */
export async function runCold(bench: ColdBench, load: Load): Promise<ColdRun> {
  const { healthy, bad = [], events, what } = load;
  await using receivers = await startColdReceivers(bench, [...healthy, ...bad]);
  await using service = await startColdService(bench, load.settings);
  const urls = webhookUrls(receivers.urls);
  await service.register(urls);
  bench.group?.setPace(load.pace);
  const expected = (events * urls.length * healthy.length) / receivers.urls.length;
  let failure: unknown;
  service.publish(events).catch((error: unknown) => {
    failure = error;
  });

  const inFlight: number[] = [];
  let first = { at: 0, commits: 0 };
  let last = { at: performance.now(), count: 0 };
  let isCut = false;
  let looked = performance.now();
  while (last.count < expected && !isCut) {
    await wait(POLL_MS, undefined, { signal: bench.stopping });
    if (failure) throw failure;
    const count = await receivers.count(healthy.length);
    const now = performance.now();
    if (now - looked > MAX_PAUSE_MS) throw new Error(`${what}: the bench was stopped meanwhile`);
    looked = now;
    if (count > 0 && first.at === 0) first = { at: now, commits: await service.commits("service") };
    if (count > 0) inFlight.push(sum((await receivers.inFlight()).slice(0, healthy.length)));
    if (count > last.count) last = { at: now, count };
    bench.show.count(what, count, expected);
    if (now - last.at > STALL_TIMEOUT_MS)
      throw new Error(`${what}: ${count} of ${expected} came, then no more`);
    isCut = first.at > 0 && now - first.at > 1_000 * (load.maxSeconds ?? Number.POSITIVE_INFINITY);
    if (isCut) last = { at: now, count };
  }
  const seconds = (last.at - first.at) / 1_000;
  return {
    rate: last.count / seconds,
    seconds,
    isCut,
    inFlight: sum(inFlight) / inFlight.length,
    commits: ((await service.commits("service")) - first.commits) / seconds,
    memory: peakMemory(service.deliveryPid) / MEBIBYTE,
  };
}

/** The number of events at a pace, so that each pace takes as long. */
export function scaled(events: number, pace: number): number {
  return Math.max(1, Math.round(events * pace));
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);
