import pino from "pino";
import { beforeEach, expect, test } from "vitest";
import { BOTTLENECKS, type BottleneckCause } from "../../../src/contract/stats/bottlenecks.ts";
import { Bottlenecks } from "../../../src/delivery/limits/bottlenecks.ts";
import { MAX_UNRECORDED } from "../../../src/delivery/limits/start-limits.ts";
import type { SenderParts } from "../../../src/delivery/sender.ts";
import { answerOf, faultOf, silenceOf } from "../../support/simulation/receivers.ts";
import { type Group, Scenario, type ScenarioOptions } from "../../support/simulation/scenario.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";
import { claimsOf, OWNER, startSender } from "../sender-parts.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

let time: SimulatedTime;
beforeEach(() => {
  time = new SimulatedTime();
});

/** A sender with ten queued deliveries whose requests are not answered, one at a time. */
async function start(parts: Partial<SenderParts> = {}, { max = 1, deliveries = 10 } = {}) {
  const lines: object[] = [];
  const seconds: Partial<Record<string, number>> = {};
  const log = pino({ base: null, timestamp: false }, { write: (line) => lines.push(JSON.parse(line)) });
  const bottlenecks = new Bottlenecks(time.clock, log, {
    add(value, { cause } = {}) {
      seconds[String(cause)] = (seconds[String(cause)] ?? 0) + value;
    },
  });
  const sender = startSender(
    time.clock,
    { post: () => {}, bottlenecks, ...parts },
    { max, perHost: 4, perWebhook: 4 },
  );
  await sender.take(claimsOf(1, deliveries), "first", () => OWNER, { revision: 0n, at: 0 });
  return { bottlenecks, lines, seconds, sender };
}

const lineOf = (cause: BottleneckCause, percent: number) => {
  const { problem, remedy } = BOTTLENECKS[cause];
  return { level: pino.levels.values.warn, cause, percent, msg: `${problem}. ${remedy}` };
};
const share = (utilization: number) => ({
  hasRoom: true,
  request: () => {},
  connection: () => {},
  sample: () => utilization,
});
const lease = {
  isValid: () => false,
  hasLost: () => false,
  retire: () => {},
  settle: () => {},
  verify: () => {},
};
const watch = { isFresh: () => false, revision: 0n, stoppedSince: async () => new Set<bigint>() };
const recorder = { unrecorded: MAX_UNRECORDED, record: () => {} };

test.each<[BottleneckCause, string, Partial<SenderParts>]>([
  ["limit", "as many requests are in flight as may be", {}],
  ["thread", "the thread is busy", { share: share(0.95) }],
  ["database", "results wait to be recorded", { recorder }],
  ["database", "the lease could not be renewed", { lease }],
  ["database", "changes of webhooks could not be read", { watch }],
  ["handshakes", "new connections wait", { handshakes: { backlogMs: 251 } }],
  ["handshakes", "handshakes occupy the thread", { handshakes: { backlogMs: 251 }, share: share(1) }],
])("deliveries wait for %s while %s", async (cause, _what, parts) => {
  const { bottlenecks, lines, seconds } = await start(parts);
  await time.run(MINUTE);
  expect(bottlenecks.current).toBe(cause);
  expect(lines).toEqual([lineOf(cause, 100)]);
  expect(seconds).toEqual({ [cause]: expect.closeTo(60) });
});

test.each<[string, Partial<SenderParts>, { max?: number; deliveries?: number }]>([
  ["nothing is queued in a busy process", { share: share(1) }, { deliveries: 0 }],
  ["their receiver has as many as it takes", { share: share(1) }, { max: 64 }],
  ["the outbound proxy is away", { proxy: { mayStart: () => false } }, {}],
])("no delivery waits for the service while %s", async (_what, parts, options) => {
  const { bottlenecks, lines, seconds } = await start(parts, options);
  await time.run(3 * MINUTE);
  expect([bottlenecks.current, lines, seconds]).toEqual([null, [], {}]);
});

test("a cause is logged once a minute while it holds for at least half of each, and no longer told after a minute without it", async () => {
  let isAway = false;
  // While the proxy is away, nothing starts, and no bottleneck is logged.
  const proxy = { mayStart: () => false };
  const parts = { proxy, lease: { ...lease, isValid: () => !isAway } };
  const { bottlenecks, lines, seconds } = await start(parts);
  const logged = async (awayS: number) => {
    const before = lines.length;
    for (const [away, ms] of [
      [true, awayS * SECOND],
      [false, MINUTE - awayS * SECOND],
    ] as const) {
      isAway = away;
      await time.run(time.now + ms);
    }
    return [bottlenecks.current, ...lines.slice(before)];
  };
  expect(await logged(45)).toEqual(["database", lineOf("database", 75)]);
  expect(await logged(60)).toEqual(["database", lineOf("database", 100)]);
  expect(await logged(25)).toEqual([null]);
  expect(await logged(0)).toEqual([null]);
  expect(seconds).toEqual({ database: expect.closeTo(130, 0) });
});

function startScenario(groups: Record<string, Group>, options: ScenarioOptions = {}): Scenario {
  const settings = { DELIVERY_TIMEOUT: "1s", RETRY_INITIAL_DELAY: "1h", ...options.settings };
  return new Scenario(groups, { ...options, settings });
}
const found = ({ workers }: Scenario) => workers.map(({ bottlenecks }) => bottlenecks.current);

test.each<[BottleneckCause | null, string, Group, ScenarioOptions]>([
  ["database", "claims are slow", {}, { statementMs: 2_000 }],
  [
    "limit",
    "many receivers could take more",
    { webhooks: 4, hosts: 4 },
    { settings: { DELIVERY_MAX_IN_FLIGHT: "2" } },
  ],
  [
    "thread",
    "the thread has no time left",
    { webhooks: 4, hosts: 4, answer: () => answerOf(200, 50) },
    { settings: { DELIVERY_MAX_IN_FLIGHT: "8" }, isBusy: true },
  ],
  [
    null,
    "the receiver is slow",
    { answer: () => answerOf(200, 900) },
    { settings: { DELIVERY_MAX_PER_HOST: "4" } },
  ],
  [
    null,
    "receivers hang in a busy process",
    { webhooks: 9, answer: () => silenceOf(1_000) },
    { isBusy: true },
  ],
  [
    null,
    "receivers fail in a busy process",
    { webhooks: 9, hosts: 9, answer: () => faultOf("webhook", 1) },
    { isBusy: true },
  ],
])("the bottleneck of a worker is %s while %s", async (cause, _what, group, options) => {
  const scenario = startScenario({ group }, options);
  scenario.add("group", 20_000 / (group.webhooks ?? 1));
  void scenario.pump(1, { lingers: true });
  await scenario.run(MINUTE);
  expect(found(scenario)).toEqual([cause]);
});

test("a worker has no bottleneck while it is idle, or its deliveries come one after the other", async () => {
  const scenario = startScenario({ group: {} });
  void scenario.pump(1, { lingers: true });
  await scenario.run(MINUTE);
  expect(found(scenario)).toEqual([null]);
  for (let n = 0; n < 600; n += 1) {
    scenario.add("group", 1);
    await scenario.run(100);
  }
  expect(found(scenario)).toEqual([null]);
});
