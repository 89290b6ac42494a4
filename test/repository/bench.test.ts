import { expect, test } from "vitest";
import { Figures } from "../../bench/parts/results.ts";
import { toTable } from "../../bench/parts/table.ts";

test("figures have the least, the median and the most of all repeats, and tell which targets were missed", () => {
  const figures = new Figures();
  for (const value of [300.04, 100, 200]) {
    figures.add("drain", 10, { atLeast: 250 }, { detail: "", unit: "deliveries/s", value });
    figures.add("drain", 10, { atMost: 300 }, { detail: "memory", unit: "MiB", value, note: "a note" });
  }
  const results = figures.results();
  const both = { min: 100, median: 200, max: 300, count: 10 };
  expect(results).toEqual([
    { name: "drain", unit: "deliveries/s", ...both, target: ">= 250", reached: false },
    {
      ...{ name: "drain memory", unit: "MiB", ...both, target: "<= 300", reached: true },
      notes: ["a note", "a note", "a note"],
    },
  ]);
  expect(toTable(results)).toMatch(/drain +10 +deliveries\/s +100 +200 +300 +>= 250 +NO\n/);
});
