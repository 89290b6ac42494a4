/**
 * Applies the mutants of list.json, and tells which of them no test notices.
 *
 *   npm run mutants -- [--check] [--tree DIR] [--results FILE] [--ids 1-300] [--group 12]
 *
 * Runs in a clean clone, of which the file with the mutant is changed. The tests of the mirrored folder run first; mutants
 * that they miss are then applied several at a time under the whole suite, and one at a time under the files that failed.
 * Results are appended to a file, one line each; mutants that have one there are not run again. With --check, runs nothing, and lists the
 * mutants whose line the code no longer has.
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type Mutant, mutated, readMutants } from "./mutant.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
/** A mutant can make the code wait or loop for ever. */
const NEAR_LIMIT_MS = 10 * 60_000;
const WHOLE_LIMIT_MS = 60 * 60_000;

/** A result of a mutant: the file of the first test that noticed it, or null. */
interface Outcome {
  id: number;
  killedBy: string | null;
}

const { values } = parseArgs({
  options: {
    check: { type: "boolean", default: false },
    tree: { type: "string" },
    results: { type: "string", default: path.join(root, "test/results/mutants.jsonl") },
    ids: { type: "string", default: "1-100000" },
    group: { type: "string", default: "12" },
  },
});
const [firstId = 1, lastId = 1] = values.ids.split("-").map(Number);
const mutants = readMutants().filter(({ id }) => id >= firstId && id <= lastId);
if (values.check) {
  const problems = mutants.flatMap(problemOf);
  for (const problem of problems) console.log(problem);
  console.log(`${mutants.length - problems.length} of ${mutants.length} mutants match the code`);
  process.exit(problems.length === 0 ? 0 : 1);
}
const tree = values.tree ?? freshClone();
const outcomes = new Map<number, Outcome>();
if (existsSync(values.results)) {
  for (const line of readFileSync(values.results, "utf8").split("\n").filter(Boolean)) {
    const outcome = JSON.parse(line) as Outcome;
    outcomes.set(outcome.id, outcome);
  }
}

/** Why a mutant cannot be applied to the code; empty if it can. */
function problemOf(mutant: Mutant): string[] {
  const file = path.join(root, mutant.file);
  if (!existsSync(file)) return [`mutant ${mutant.id}: there is no file ${mutant.file}`];
  try {
    mutated(readFileSync(file, "utf8"), mutant);
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

function freshClone(): string {
  const folder = path.join(mkdtempSync(path.join(tmpdir(), "webhook-mutants-")), "tree");
  execFileSync("git", ["clone", "--quiet", root, folder]);
  symlinkSync(path.join(root, "node_modules"), path.join(folder, "node_modules"));
  return folder;
}

/** Runs with the mutants in the code, which is as before at the end. */
async function withMutants<T>(some: readonly Mutant[], work: () => Promise<T>): Promise<T> {
  const originals = new Map(some.map(({ file }) => [file, readFileSync(path.join(tree, file), "utf8")]));
  try {
    for (const mutant of some) {
      const file = path.join(tree, mutant.file);
      writeFileSync(file, mutated(readFileSync(file, "utf8"), mutant));
    }
    return await work();
  } finally {
    for (const [file, source] of originals) writeFileSync(path.join(tree, file), source);
  }
}

/** The files of tests that fail; of the first failure on only those known by then, with `bail`. */
async function failingFiles(files: readonly string[], bail: boolean, limitMs: number): Promise<string[]> {
  const report = path.join(tree, "test/results/test.json");
  rmSync(report, { force: true });
  const vitest = spawn(
    process.execPath,
    ["node_modules/vitest/vitest.mjs", "run", ...files, ...(bail ? ["--bail=1"] : [])],
    { cwd: tree, stdio: "ignore" },
  );
  // The run's guardian then ends what the run has started.
  const limit = setTimeout(() => vitest.kill("SIGKILL"), limitMs);
  const [, signal] = await once(vitest, "exit");
  clearTimeout(limit);
  if (signal !== null) return ["none within the time limit"];
  if (!existsSync(report)) return ["none: the run did not start"];
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as {
    testResults: { name: string; status: string; message: string; assertionResults: { status: string }[] }[];
  };
  // A file that was not run, because another failed, is reported as failed, too, without a reason.
  return testResults
    .filter(
      ({ status, message, assertionResults }) =>
        status === "failed" && (message !== "" || assertionResults.some((test) => test.status === "failed")),
    )
    .map(({ name }) => path.relative(tree, name));
}

function tell(mutant: Mutant, killedBy: string | null): void {
  const outcome: Outcome = { id: mutant.id, killedBy };
  outcomes.set(mutant.id, outcome);
  appendFileSync(values.results, `${JSON.stringify(outcome)}\n`);
  console.log(
    `${mutant.id} ${mutant.file}: ${killedBy ?? "not noticed"} (${outcomes.size} of ${mutants.length})`,
  );
}

/** Which of the files fail with the mutant alone, twice in succession, so that a failure by chance does not count. */
async function confirmed(mutant: Mutant, files: readonly string[]): Promise<string | null> {
  return withMutants([mutant], async () => {
    const [once] = await failingFiles(files, true, NEAR_LIMIT_MS);
    if (once === undefined) return null;
    if (once.startsWith("none")) return once;
    const [twice] = await failingFiles([once], true, NEAR_LIMIT_MS);
    return twice ?? null;
  });
}

/** Runs the whole suite with a group; then the files that failed with each of them alone. */
async function runGroup(group: readonly Mutant[]): Promise<void> {
  const failing = await withMutants(group, () => failingFiles([], false, WHOLE_LIMIT_MS));
  console.log(
    `whole suite with ${group.map(({ id }) => id).join(", ")}: ${failing.join(", ") || "nothing fails"}`,
  );
  const missed: Mutant[] = [];
  for (const mutant of group) {
    const files = failing.filter((file) => !file.startsWith("none"));
    const killedBy = files.length > 0 ? await confirmed(mutant, files) : null;
    if (killedBy !== null) tell(mutant, killedBy);
    else missed.push(mutant);
  }
  if (missed.length === 0) return;
  // What hides behind the failures of the others shows without these.
  if (failing.length === 0) for (const mutant of missed) tell(mutant, null);
  else if (missed.length === 1 && group.length === 1)
    tell(missed[0] as Mutant, failing[0]?.startsWith("none") ? failing[0] : null);
  else if (missed.length < group.length) await runGroup(missed);
  else {
    const half = Math.ceil(missed.length / 2);
    await runGroup(missed.slice(0, half));
    if (missed.length > half) await runGroup(missed.slice(half));
  }
}

const open: Mutant[] = [];
for (const mutant of mutants) {
  const known = outcomes.get(mutant.id);
  if (known) continue;
  const mirrored = path.dirname(mutant.file).replace(/^src/, "test");
  const killedBy = existsSync(path.join(tree, mirrored)) ? await confirmed(mutant, [`${mirrored}/`]) : null;
  if (killedBy !== null) tell(mutant, killedBy);
  else open.push(mutant);
}
const size = Number(values.group);
for (let n = 0; n < open.length; n += size) await runGroup(open.slice(n, n + size));
const killed = [...outcomes.values()].filter(({ killedBy }) => killedBy !== null).length;
console.log(
  `${killed} of ${outcomes.size} mutants noticed (${((100 * killed) / outcomes.size).toFixed(1)} %)`,
);
