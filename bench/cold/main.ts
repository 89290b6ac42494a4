import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startChild } from "../parts/child.ts";
import { createShow } from "../parts/progress.ts";
import { Figures, writeResults } from "../parts/results.ts";
import { toTable } from "../parts/table.ts";
import type { BusyLoopMethods } from "../processes/busy-loop.ts";
import { type ColdBench, type ColdScenario, openColdBench } from "./cold-bench.ts";
import { far, farther } from "./far.ts";
import { halfFails, thirdFails, thirdHangs, WAYS } from "./isolation.ts";
import { waiting } from "./waiting.ts";

const scenarios: readonly ColdScenario[] = [thirdHangs, thirdFails, halfFails, far, farther, waiting];

const usage = `npm run bench:cold -- [NAME…] [--paces P,P] [--repeats N] [--ways W,W] [--busy-loops N]

Measures the service as a user has it: npm start with default settings in an empty folder, webhooks registered over REST,
events published over gRPC, and no warm-up. Each measurement starts a new service. A rate counts from the first request
that a healthy receiver gets to the last. Ratios are medians of repeats, each with its own measurement of the healthy
receivers alone.

  --paces P,P     the shares of the processor time of all cores for the service, its PostgreSQL and Temporal, from the
                  first event on; 1 is no limit. Defaults to 1,0.2. Other paces than 1 need permission to create a control
                  group
  --repeats N     3 unless given
  --ways W,W      only these of third-fails: ${WAYS.join(", ")}
  --busy-loops N  that many other processes that compute all the time. Defaults to 0
  --results F     write cold.json to folder F instead of bench/results

${scenarios.map(({ name, what }) => `  ${name.padEnd(14)}  ${what}`).join("\n")}`;

/** Measures a scenario once. Returns whether it could be measured. */
async function measure(
  bench: ColdBench,
  scenario: ColdScenario,
  pace: number,
  figures: Figures,
): Promise<boolean> {
  const name = `${pace}: ${scenario.name}`;
  bench.show.step(`pace ${pace}: ${scenario.name}: ${scenario.what}`);
  try {
    for await (const measured of scenario.measure(bench, pace)) {
      const { detail, value, unit, count = 0, note } = measured;
      figures.add(name, count, scenario.targets[detail], measured);
      bench.show.step(
        `  ${detail} ${value.toFixed(2)} ${unit}${note ? ` (${note})` : ""}`.replace(/ +/g, " "),
      );
    }
    return true;
  } catch (error) {
    if (!bench.stopping.aborted)
      bench.show.step(`${name} failed: ${error instanceof Error ? error.stack : error}`);
    return false;
  }
}

/** `npm run bench:cold`. Resolves with the exit code, which does not depend on targets: the table shows them. */
async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: "boolean", default: false },
      paces: { type: "string", default: "1,0.2" },
      repeats: { type: "string", default: "3" },
      ways: { type: "string", default: WAYS.join(",") },
      "busy-loops": { type: "string", default: "0" },
      results: { type: "string", default: fileURLToPath(new URL("../results", import.meta.url)) },
    },
  });
  const chosen =
    positionals.length === 0 ? scenarios : scenarios.filter(({ name }) => positionals.includes(name));
  const [repeats, busyLoops] = [Number(values.repeats), Number(values["busy-loops"])];
  const ways = values.ways.split(",");
  const wanted = values.paces.split(",").map(Number);
  const isRight =
    positionals.every((name) => scenarios.some((each) => each.name === name)) &&
    ways.every((way) => WAYS.includes(way)) &&
    Number.isInteger(repeats) &&
    repeats > 0 &&
    Number.isInteger(busyLoops) &&
    busyLoops >= 0 &&
    wanted.every((pace) => pace > 0 && pace <= 1);
  if (values.help || !isRight) {
    console.log(usage);
    return values.help ? 0 : 2;
  }

  const show = createShow(process.stderr);
  const stopping = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => {
      show.step(`stopped by ${signal}`);
      stopping.abort();
    });
  // Also for uncaught errors: do not leave a service running.
  process.on("uncaughtException", (error) => {
    if (!stopping.signal.aborted) show.step(`stopped by an error: ${error.stack}`);
    stopping.abort();
  });
  await using bench = await openColdBench({ show, stopping: stopping.signal, ways });
  await using loops = new AsyncDisposableStack();
  for (let n = 0; n < busyLoops; n += 1)
    await loops.use(startChild<BusyLoopMethods>(bench, "busy-loop.ts")).call("use", { part: 1 });
  const figures = new Figures();
  let failures = 0;
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    show.step(`repeat ${repeat} of ${repeats}`);
    for (const pace of bench.group ? wanted : wanted.filter((each) => each === 1))
      for (const scenario of chosen) {
        if (stopping.signal.aborted || (scenario.once && repeat > 1)) continue;
        if (!(await measure(bench, scenario, pace, figures))) failures += 1;
      }
  }
  const results = figures.results();
  const file = await writeResults(results, path.resolve(values.results), "cold.json");
  console.log(`\n${toTable(results)}\n\nwritten to ${file}`);
  return failures === 0 ? 0 : 1;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(2);
  },
);
