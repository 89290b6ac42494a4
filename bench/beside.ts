import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { createShow, type Show } from "./parts/progress.ts";
import type { Result } from "./parts/results.ts";

const run = promisify(execFile);
const REPEATS = 3;
const PROJECT = fileURLToPath(new URL("..", import.meta.url));

const usage = `npm run bench:beside -- COMMIT SCENARIO… [--repeats N] [--count N]

Measures scenarios of another commit and of this checkout in turn, each with its own bench, and compares the figures of
both. The other commit is checked out into a temporary folder, with its own packages.

  --repeats N  ${REPEATS} unless given
  --count N    that many instead of the scenarios' own counts`;

/** A checkout that is measured. */
interface Side {
  name: string;
  folder: string;
  /** The values of each figure by repeat; those of failed measurements are missing. */
  figures: Map<string, { unit: string; values: Map<number, number> }>;
}

/** Measures one scenario of a side once. Returns whether it could be measured. */
async function measure(
  side: Side,
  {
    scenario,
    repeat,
    options,
    show,
  }: { scenario: string; repeat: number; options: readonly string[]; show: Show },
): Promise<boolean> {
  const results = await mkdtemp(path.join(tmpdir(), "webhook-beside-"));
  try {
    const child = spawn(
      "npm",
      ["run", "bench", "--", scenario, "--repeats", "1", "--results", results, ...options],
      { cwd: side.folder, stdio: ["ignore", "ignore", "pipe"] },
    );
    let errors = "";
    child.stderr.on("data", (part: Buffer) => {
      errors = (errors + part).slice(-2_000);
    });
    const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
    if (code !== 0) throw new Error(errors);
    const measured: Result[] = JSON.parse(await readFile(path.join(results, "latest.json"), "utf8"));
    for (const { name, unit, median } of measured) {
      const figure = side.figures.get(name) ?? { unit, values: new Map() };
      figure.values.set(repeat, median);
      side.figures.set(name, figure);
    }
    return true;
  } catch (error) {
    show.step(`${scenario} of ${side.name} failed: ${error instanceof Error ? error.message : error}`);
    return false;
  } finally {
    await rm(results, { recursive: true, force: true });
  }
}

/** The figures that both sides have, with the ratios of the repeats. */
function toRows(other: Side, own: Side): string[][] {
  const rows = [["figure", "unit", other.name, own.name, "ratio: min", "median", "max"]];
  for (const [name, { unit, values }] of own.figures) {
    const theirs = other.figures.get(name)?.values ?? new Map<number, number>();
    const ratios = [...values].flatMap(([repeat, value]) => {
      const their = theirs.get(repeat);
      return their === undefined ? [] : [value / their];
    });
    if (ratios.length === 0) continue;
    const sorted = ratios.toSorted((one, another) => one - another);
    const edges = [sorted[0], median(sorted), sorted.at(-1)].map((ratio) => (ratio as number).toFixed(2));
    rows.push([
      name,
      unit,
      shown(median([...theirs.values()])),
      shown(median([...values.values()])),
      ...edges,
    ]);
  }
  return rows;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, another) => one - another);
  const half = Math.floor(sorted.length / 2);
  const upper = sorted[half] as number;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[half - 1] as number)) / 2;
}

const number = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 5 });
const shown = (value: number) => number.format(value);

function toText(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row
        .map((cell, column) =>
          column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join("  "),
    )
    .join("\n");
}

/** `npm run bench:beside`. Returns the exit code. */
async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      help: { type: "boolean", default: false },
      repeats: { type: "string", default: String(REPEATS) },
      count: { type: "string" },
    },
  });
  const [commit, ...scenarios] = positionals;
  const repeats = Number(values.repeats);
  if (values.help || !commit || scenarios.length === 0 || !(repeats >= 1)) {
    console.log(usage);
    return values.help ? 0 : 2;
  }
  const options = values.count === undefined ? [] : ["--count", values.count];
  const show = createShow(process.stderr);
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-beside-"));
  const other: Side = { name: commit.slice(0, 8), folder, figures: new Map() };
  let failed = 0;
  const own: Side = { name: "this checkout", folder: PROJECT, figures: new Map() };
  try {
    show.step(`checking ${commit} out`);
    await run("git", ["worktree", "add", "--detach", "--force", folder, commit], { cwd: PROJECT });
    show.step("installing its packages");
    await run("npm", ["install", "--no-audit", "--no-fund"], { cwd: folder });
    for (let repeat = 1; repeat <= repeats; repeat += 1) {
      for (const scenario of scenarios) {
        // The order alternates, because the speed of a machine changes.
        for (const side of repeat % 2 === 1 ? [other, own] : [own, other]) {
          show.step(`repeat ${repeat} of ${repeats}: ${scenario} of ${side.name}`);
          if (!(await measure(side, { scenario, repeat, options, show }))) failed += 1;
        }
      }
    }
  } finally {
    await run("git", ["worktree", "remove", "--force", folder], { cwd: PROJECT }).catch(() => {});
  }
  console.log(`\n${toText(toRows(other, own))}`);
  if (failed > 0)
    console.log(`\n${failed} measurements failed; each ratio is of repeats that both sides have`);
  return failed > 0 ? 1 : 0;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(2);
  },
);
