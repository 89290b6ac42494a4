import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { readConfig } from "../../src/config/config.ts";
import { toChart } from "../parts/chart.ts";
import { SIMULATION_PANELS } from "./chart.ts";
import { type Sample, type SimulationOptions, type SimulationResult, simulate } from "./simulation.ts";

const BILLION_A_DAY = 1e9 / 86_400;

/** Numeric command line options with their defaults. */
const DEFAULTS = {
  seed: 1,
  seconds: 3_600,
  workers: 20,
  "per-second": BILLION_A_DAY,
  hosts: 1_000,
  webhooks: 10_000,
  failing: 0.03,
  hanging: 0.02,
  skew: 0.8,
  "delivery-us": 67,
  "payload-bytes": 380,
  "database-processors": 8,
  "baseline-seconds": 600,
  "outage-hosts": 10,
  "outage-from": 1_200,
  "outage-until": 1_500,
};

const usage = `npm run simulate -- [OPTION…]

  --seed N              seed of the random numbers; ${DEFAULTS.seed} unless given
  --seconds N           simulated time; ${DEFAULTS.seconds} unless given
  --baseline-seconds N  simulated time of the run without failing and hanging hosts; ${DEFAULTS["baseline-seconds"]} unless given, 0 for none
  --workers N           ${DEFAULTS.workers} unless given
  --per-second N        arrivals; a billion a day unless given
  --hosts N, --webhooks N   ${DEFAULTS.hosts} and ${DEFAULTS.webhooks} unless given
  --failing N, --hanging N  parts of the hosts; ${DEFAULTS.failing} and ${DEFAULTS.hanging} unless given
  --outage-hosts N, --outage-from N, --outage-until N
                        healthy hosts that do not answer between two seconds; ${DEFAULTS["outage-hosts"]}, ${DEFAULTS["outage-from"]} and ${DEFAULTS["outage-until"]} unless given
  --skew N              exponent of Zipf's law over the webhooks; ${DEFAULTS.skew} unless given
  --delivery-us N       thread time of an attempt, in µs; ${DEFAULTS["delivery-us"]} unless given
  --database-processors N   ${DEFAULTS["database-processors"]} unless given
  --payload-bytes N     ${DEFAULTS["payload-bytes"]} unless given
  --chart FILE          where to write the chart; bench/results/simulation.svg unless given

The DELIVERY_, DISPATCH_ and RETRY_ settings of the environment apply;
DISPATCH_ON_PUBLISH is true unless given.`;

/** The options of a simulation, from numbers by name. */
export function optionsOf(
  numbers: Partial<Record<keyof typeof DEFAULTS, number>> = {},
  environment: NodeJS.ProcessEnv = {},
): SimulationOptions {
  const all = { ...DEFAULTS, ...numbers };
  const settings = Object.entries(environment).filter(([name]) => /^(DELIVERY|DISPATCH|RETRY)_/.test(name));
  const { delivery, dispatch } = readConfig({ DISPATCH_ON_PUBLISH: "true", ...Object.fromEntries(settings) });
  return {
    seed: all.seed,
    seconds: all.seconds,
    workers: all.workers,
    perSecond: all["per-second"],
    hosts: all.hosts,
    webhooks: all.webhooks,
    failingPart: all.failing,
    hangingPart: all.hanging,
    skew: all.skew,
    outage: {
      hosts: all["outage-hosts"],
      fromSecond: all["outage-from"],
      untilSecond: all["outage-until"],
    },
    deliveryUs: all["delivery-us"],
    payloadBytes: all["payload-bytes"],
    statements: {
      processors: all["database-processors"],
      roundTripMs: 1,
      visitUs: 8,
      claimRowUs: 12,
      recordRowUs: 13,
    },
    delivery,
    dispatch,
  };
}

const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const figure = (value: number) => (Math.abs(value) >= 1_000 ? whole : number).format(value);
const MIB = 2 ** 20;

/** Prints a line of progress with the remaining time. */
function showProgress(what: string, seconds: number): (sample: Sample) => void {
  const began = performance.now();
  let shown = began;
  return ({ second, attempts, inFlight, oldestHealthy }) => {
    const now = performance.now();
    if (now - shown < 5_000 && second < seconds) return;
    shown = now;
    const left = ((now - began) / 1_000 / second) * (seconds - second);
    process.stderr.write(
      `${what}: ${second} of ${seconds} s, ${whole.format(left)} s left; ${whole.format(attempts)} attempts/s, ${whole.format(inFlight)} in flight per worker, oldest ${number.format(oldestHealthy)} s\n`,
    );
  };
}

function toTable(
  result: SimulationResult,
  options: SimulationOptions,
  baseline: SimulationResult | undefined,
): string {
  const { samples, account, measurements } = result;
  const { wait, retryDelay } = measurements;
  const most = (of: (sample: Sample) => number) => Math.max(...samples.map(of));
  const mean = (of: (sample: Sample) => number) =>
    samples.reduce((sum, each) => sum + of(each), 0) / samples.length;
  const spread = (of: Measurements["wait"]["healthy"] | undefined) =>
    of ? [0.5, 0.99, 0.999, 1].map((part) => figure(of.quantile(part))).join(" / ") : "";
  const recovered = samples.find(
    ({ second, oldestRecovering }) => second > options.outage.untilSecond && oldestRecovering < 1,
  );
  const rows: [string, string][] = [
    ["arrived", figure(account.arrived)],
    ["delivered", figure(account.delivered)],
    ["failed", figure(account.failed)],
    ["queued, unclaimed", figure(account.queued)],
    ["waiting for a retry", figure(account.retrying)],
    ["held by workers", figure(account.held + account.inTransit)],
    ["attempts per second, mean", figure(mean(({ attempts }) => attempts))],
    [
      "oldest of healthy hosts, s, mean / most",
      `${figure(mean((s) => s.oldestHealthy))} / ${figure(most((s) => s.oldestHealthy))}`,
    ],
    ["oldest unclaimed of failing hosts, s, most", figure(most((s) => s.oldestFailing))],
    ["wait, healthy, ms, p50 / p99 / p99.9 / most", spread(wait.healthy)],
    ["  without failing and hanging hosts", spread(baseline?.measurements.wait.healthy)],
    ["wait, failing, ms", spread(wait.failing)],
    ["wait, hanging, ms", spread(wait.hanging)],
    ["retry late, failing, ms", spread(retryDelay.failing)],
    ["retry late, hanging, ms", spread(retryDelay.hanging)],
    ["retries of failing hosts overdue, most", figure(most((s) => s.overdue))],
    ["  for, s, most", figure(most((s) => s.longestOverdue))],
    ["oldest unclaimed of hosts with an outage, s, most", figure(most((s) => s.oldestRecovering))],
    [
      "  all claimed, s after the outage",
      recovered ? figure(recovered.second - options.outage.untilSecond) : "-",
    ],
    [
      "in flight per worker, mean / most",
      `${figure(mean((s) => s.inFlight))} / ${figure(most((s) => s.maxInFlight))}`,
    ],
    ["probes per worker, most", figure(most((s) => s.maxProbes))],
    ["held per worker, most", figure(most((s) => s.maxHeld))],
    ["thread busy, mean / most", `${figure(mean((s) => s.busy))} / ${figure(most((s) => s.busy))}`],
    ["memory per worker, MiB, most", figure(most((s) => s.memory) / MIB)],
    ["claims per second", figure(result.claims / options.seconds)],
    ["deliveries per claim", figure(measurements.attempts / result.claims)],
    ["database processors, claims / results", `${figure(result.claiming)} / ${figure(result.recording)}`],
    ["limits exceeded", String(measurements.faults.length)],
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}`).join("\n");
}

type Measurements = SimulationResult["measurements"];

async function main(): Promise<number> {
  const names = Object.keys(DEFAULTS) as (keyof typeof DEFAULTS)[];
  const { values } = parseArgs({
    options: {
      help: { type: "boolean", default: false },
      chart: {
        type: "string",
        default: fileURLToPath(new URL("../results/simulation.svg", import.meta.url)),
      },
      ...Object.fromEntries(names.map((name) => [name, { type: "string" } as const])),
    },
  });
  if (values.help) {
    console.log(usage);
    return 0;
  }
  const given = Object.fromEntries(
    names.flatMap((name) => {
      const text = (values as Record<string, unknown>)[name];
      return text === undefined ? [] : [[name, notNegative(name, String(text))]];
    }),
  );
  const options = optionsOf(given, process.env);
  const began = performance.now();
  const result = await simulate(options, showProgress("simulating", options.seconds));
  const took = (performance.now() - began) / 1_000;
  const baselineSeconds = Math.min(
    options.seconds,
    given["baseline-seconds"] ?? DEFAULTS["baseline-seconds"],
  );
  const baseline =
    baselineSeconds > 0
      ? await simulate(
          {
            ...options,
            seconds: baselineSeconds,
            failingPart: 0,
            hangingPart: 0,
            outage: { ...options.outage, hosts: 0 },
          },
          showProgress("without failing and hanging hosts", baselineSeconds),
        )
      : undefined;
  const chart = path.resolve(values.chart);
  await mkdir(path.dirname(chart), { recursive: true });
  await writeFile(chart, toChart("The simulation over its time", SIMULATION_PANELS, result.samples));
  console.log(toTable(result, options, baseline));
  for (const fault of result.measurements.faults) console.log(`exceeded: ${fault}`);
  console.log(`\n${options.seconds} s simulated in ${took.toFixed(0)} s; chart: ${chart}`);
  return result.measurements.faults.length === 0 ? 0 : 1;
}

function notNegative(name: string, text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !(value >= 0))
    throw new Error(`--${name} takes a number of 0 or more, not ${text}`);
  return value;
}

if (import.meta.main) {
  main().then(
    (code) => process.exit(code),
    (error: unknown) => {
      console.error(error instanceof Error ? error.message : error);
      process.exit(2);
    },
  );
}
