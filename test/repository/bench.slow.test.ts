import { readFileSync } from "node:fs";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import type { Result } from "../../bench/parts/results.ts";
import { node, startProgram } from "../support/program.ts";
import { newFolder } from "./project.ts";

/** Runs the bench. If the test ends before it, the bench is told to stop, and stops the servers that it has started. */
function bench(...args: string[]) {
  const program = startProgram(node("bench/main.ts", ...args));
  onTestFinished(async () => void (await program.end("SIGTERM")));
  return program;
}

test("the bench measures the chosen scenarios, prints a table and writes the results", async () => {
  const folder = newFolder();
  const { ended, printed } = bench("publish-small", "--count=50", "--repeats=1", "--results", folder);
  expect(await ended, printed()).toBe(0);
  const results: Result[] = JSON.parse(readFileSync(path.join(folder, "latest.json"), "utf8"));
  expect(results.map(({ name, target }) => [name, target])).toEqual([
    ["publish-small", ">= 3000"],
    ["publish-small packed", undefined],
    ["publish-small registered event type, packed", undefined],
    ["publish-small as JSON", undefined],
    ["publish-small registered event type, as JSON", undefined],
    ["publish-small packed, of the rate of the event type's own member", ">= 0.95"],
    ["publish-small registered event type, packed, of the built-in one", ">= 0.95"],
    ["publish-small registered event type, as JSON, of the built-in one", undefined],
    ["publish-small streamed", ">= 10000"],
    ["publish-small 10 webhooks", undefined],
  ]);
  for (const { name, unit, min, median, max } of results) {
    expect([unit, median > 0, min, max]).toEqual([
      name.includes(", of ") ? "ratio" : "events/s",
      true,
      median,
      median,
    ]);
    expect(printed()).toContain(name);
  }
});

test("the bench says which scenarios there are when it is asked for another", async () => {
  const { ended, printed } = bench("dain");
  expect(await ended).toBe(2);
  expect(printed()).toMatch(/no scenario dain[\s\S]*drain +pending/);
});
