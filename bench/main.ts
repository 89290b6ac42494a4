import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Bench, openBench } from "./parts/bench.ts";
import { createShow } from "./parts/progress.ts";
import { Figures, writeResults } from "./parts/results.ts";
import type { Measurement, Scenario } from "./parts/scenario.ts";
import { toTable } from "./parts/table.ts";
import { attack } from "./scenarios/attack.ts";
import { backlog } from "./scenarios/backlog.ts";
import { breakers } from "./scenarios/breakers.ts";
import { bytes } from "./scenarios/bytes.ts";
import { catalogue } from "./scenarios/catalogue.ts";
import { churn } from "./scenarios/churn.ts";
import { customerLists } from "./scenarios/customer-lists.ts";
import { customers, customersLatency } from "./scenarios/customers.ts";
import { drain } from "./scenarios/drain.ts";
import { failing } from "./scenarios/failing.ts";
import { fanout } from "./scenarios/fanout.ts";
import { far, farOne, farther } from "./scenarios/far.ts";
import { filters } from "./scenarios/filters.ts";
import { grown } from "./scenarios/grown.ts";
import { guards } from "./scenarios/guards.ts";
import { latency, latencyBesideSlow } from "./scenarios/latency.ts";
import { limit } from "./scenarios/limit.ts";
import { limitAlike, limitSpread } from "./scenarios/limit-alike.ts";
import { lists } from "./scenarios/lists.ts";
import { drainMetrics, drainTraces } from "./scenarios/measured.ts";
import { mixed } from "./scenarios/mixed.ts";
import { peers } from "./scenarios/peers.ts";
import { publish } from "./scenarios/publish.ts";
import { publishBeside } from "./scenarios/publish-beside.ts";
import { replay } from "./scenarios/replay.ts";
import { retries } from "./scenarios/retries.ts";
import { searchCost } from "./scenarios/search-cost.ts";
import { sharedHost } from "./scenarios/shared-host.ts";
import { slowHealthy } from "./scenarios/slow-healthy.ts";
import { soak } from "./scenarios/soak.ts";
import { spreadLatency } from "./scenarios/spread-latency.ts";
import { subscribers } from "./scenarios/subscribers.ts";
import { temporal } from "./scenarios/temporal.ts";
import { webhookLists } from "./scenarios/webhook-lists.ts";
import { workers } from "./scenarios/workers.ts";

/** The scenarios in the order of measurement and of the table. */
const scenarios: readonly Scenario[] = [
  limit,
  limitAlike,
  limitSpread,
  drain,
  drainMetrics,
  drainTraces,
  filters,
  fanout,
  mixed,
  failing,
  far,
  farther,
  farOne,
  spreadLatency,
  slowHealthy,
  breakers,
  sharedHost,
  retries,
  replay,
  backlog,
  publish,
  publishBeside,
  searchCost,
  bytes,
  catalogue,
  subscribers,
  latency,
  latencyBesideSlow,
  customers,
  customersLatency,
  customerLists,
  attack,
  lists,
  webhookLists,
  grown,
  temporal,
  workers,
  peers,
];

/** Scenarios that run only when named: two take an hour, and one needs to create control groups. */
const longScenarios: readonly Scenario[] = [churn, soak, guards];
const everyScenario = [...scenarios, ...longScenarios];

const SMALL = "-small";
const REPEATS = 3;

/** A scenario at a size. */
interface Variant {
  name: string;
  small: boolean;
  scenario: Scenario;
  count: number;
}

const usage = `npm run bench -- [NAME…] [--small] [--repeats N] [--count N] [--profile] [--results FOLDER]

  --small      every scenario at its small size, as NAME-small does for one
  --repeats N  ${REPEATS} unless given
  --count N    that many instead of the scenario's own count
  --profile    write CPU profiles of the service, beside the results
  --results F  write latest.json to folder F instead of bench/results

${everyScenario.map(({ name, what }) => `  ${name.padEnd(14)} ${what}`).join("\n")}`;

/** The named scenarios (default: all) and those that they are compared with, in the order of the list. */
function choose(names: readonly string[], allSmall: boolean, countGiven: number | undefined): Variant[] {
  const wanted = new Set(
    (names.length > 0 ? names : scenarios.map(({ name }) => name)).map((name) =>
      allSmall && !name.endsWith(SMALL) ? name + SMALL : name,
    ),
  );
  const all = everyScenario.flatMap((scenario) =>
    [false, true].map((small) => ({
      name: small ? scenario.name + SMALL : scenario.name,
      small,
      scenario,
      count: countGiven ?? (small ? scenario.count.small : scenario.count.full),
    })),
  );
  for (const name of [...wanted]) {
    const variant = all.find((candidate) => candidate.name === name);
    if (!variant) throw new Error(`there is no scenario ${name}\n\n${usage}`);
    for (const { with: other } of variant.scenario.comparisons)
      wanted.add(variant.small ? other + SMALL : other);
  }
  return all.filter(({ name }) => wanted.has(name));
}

/** Measures every variant once. A failing variant does not stop the others. */
async function repeatOnce(bench: Bench, variants: readonly Variant[], figures: Figures): Promise<number> {
  const main = new Map<string, number>();
  let failures = 0;
  for (const { name, small, scenario, count } of variants) {
    const add = (measured: Measurement) =>
      figures.add(name, count, scenario.targets[measured.detail], measured);
    bench.show.step(`${name}: ${scenario.what}`);
    try {
      for (const measured of await scenario.measure(bench, count)) {
        add(measured);
        if (measured.detail === "") main.set(name, measured.value);
        bench.show.step(
          `  ${measured.detail} ${measured.value.toFixed(2)} ${measured.unit}`.replace(/ +/g, " "),
        );
      }
    } catch (error) {
      if (bench.stopping.aborted) return failures;
      failures += 1;
      bench.show.step(`${name} failed: ${error instanceof Error ? error.stack : error}`);
    }
    for (const { detail, unit, with: other, value } of scenario.comparisons) {
      const theirs = main.get(small ? other + SMALL : other);
      const own = main.get(name);
      if (own !== undefined && theirs !== undefined) add({ detail, unit, value: value(own, theirs) });
    }
  }
  return failures;
}

/** `npm run bench`. Resolves with the exit code, which does not depend on targets: the table shows them. */
async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      small: { type: "boolean", default: false },
      profile: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
      repeats: { type: "string", default: String(REPEATS) },
      count: { type: "string" },
      results: { type: "string", default: fileURLToPath(new URL("results", import.meta.url)) },
    },
  });
  if (values.help) {
    console.log(usage);
    return 0;
  }
  const repeats = positive("--repeats", values.repeats);
  const count = values.count === undefined ? undefined : positive("--count", values.count);
  const variants = choose(positionals, values.small, count);

  const show = createShow(process.stderr);
  const stopping = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => stopping.abort());
  // Also for uncaught errors: do not leave a PostgreSQL running.
  process.on("uncaughtException", (error) => {
    // Nobody may read the output any more: then this line would be the next error.
    if (!stopping.signal.aborted) show.step(`stopped by an error: ${error.stack}`);
    stopping.abort();
  });
  await using bench = await openBench({
    show,
    results: path.resolve(values.results),
    profiles: values.profile ? path.resolve(values.results) : undefined,
    stopping: stopping.signal,
  });
  const figures = new Figures();
  let failures = 0;
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    show.step(`repeat ${repeat} of ${repeats}`);
    failures += await repeatOnce(bench, variants, figures);
    if (stopping.signal.aborted) return 130;
  }

  const results = figures.results();
  const file = await writeResults(results, path.resolve(values.results));
  console.log(`\n${toTable(results)}\n\nwritten to ${file}`);
  return failures === 0 ? 0 : 1;
}

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1)
    throw new Error(`${name} takes a whole number above 0, not ${text}`);
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
