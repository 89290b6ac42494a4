import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { Figures, type Result } from "../../bench/parts/results.ts";
import { toTable } from "../../bench/parts/table.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const run = promisify(execFile);

/** Runs the bench. If the test ends before it, the bench is told to stop, and stops the servers that it has started. */
function bench(...args: string[]) {
  const running = run(process.execPath, ["--disable-warning=ExperimentalWarning", "bench/main.ts", ...args], {
    cwd: root,
  });
  const { child } = running;
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  return running;
}

test("the bench measures what it is told to, prints a table and writes what it found", {
  timeout: 120_000,
}, async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-bench-"));
  const sizes = ["--count", "200", "--repeats", "1"];
  const { stdout } = await bench("limit-small", "drain-small", ...sizes, "--results", folder);
  const results = JSON.parse(await readFile(path.join(folder, "latest.json"), "utf8")) as Result[];
  await rm(folder, { recursive: true });

  expect(results.map(({ name }) => name)).toEqual([
    "limit-small",
    "limit-alike-small",
    "drain-small",
    "drain-small processor",
    "drain-small database",
    "drain-small of limit",
    "drain-small of limit-alike",
  ]);
  for (const result of results) {
    expect(result).toEqual(expect.objectContaining({ unit: expect.any(String), count: 200 }));
    // Processor time is counted in hundredths of a second.
    if (!/ (processor|database)$/.test(result.name)) expect(result.min).toBeGreaterThan(0);
    expect(result.median).toBeGreaterThanOrEqual(result.min);
    expect(result.max).toBeGreaterThanOrEqual(result.median);
    expect(stdout).toContain(result.name);
  }
  const ofLimit = results.find(({ name }) => name === "drain-small of limit");
  expect(ofLimit).toMatchObject({ target: ">= 0.45", reached: expect.any(Boolean) });
});

test("the bench says which scenarios there are when it is asked for another", async () => {
  await expect(bench("dain")).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/no scenario dain[\s\S]*drain +pending/),
  });
});

test("figures have the least, the median and the most of all repeats, and tell which targets were missed", () => {
  const figures = new Figures();
  for (const value of [300.04, 100, 200]) {
    figures.add("drain", 10, { atLeast: 250 }, { detail: "", unit: "deliveries/s", value });
    figures.add("drain", 10, { atMost: 300 }, { detail: "memory", unit: "MiB", value, note: "a note" });
  }
  const results = figures.results();
  expect(results).toEqual([
    {
      name: "drain",
      unit: "deliveries/s",
      min: 100,
      median: 200,
      max: 300,
      count: 10,
      target: ">= 250",
      reached: false,
    },
    {
      name: "drain memory",
      unit: "MiB",
      min: 100,
      median: 200,
      max: 300,
      count: 10,
      target: "<= 300",
      reached: true,
      notes: ["a note", "a note", "a note"],
    },
  ]);
  expect(toTable(results)).toMatch(/drain +10 +deliveries\/s +100 +200 +300 +>= 250 +NO\n/);
});
