import { expect, onTestFinished, test } from "vitest";
import { type Job, startJobs } from "../../../src/lib/process/jobs.ts";
import { until } from "../../support/wait.ts";

test("jobs run in order, again at once while they are full, and an error ends its round", async () => {
  const ran: string[] = [];
  const errors: unknown[] = [];
  const rows = [2, 2, 1];
  const jobs: Job<string>[] = [
    { name: "full", most: 2, run: async (part) => ran.push(`full ${part}`) && (rows.shift() ?? 0) },
    {
      name: "fails once",
      async run() {
        ran.push("fails once");
        if (errors.length === 0) throw new Error("once");
      },
    },
    { name: "every other round", everyS: 2, run: async () => ran.push("every other round") },
  ];
  const works: string[] = [];
  const stop = startJobs(jobs, "part", {
    works: (on) => works.push(on),
    onError: (error) => errors.push(error),
  });
  onTestFinished(stop);
  await until(() => ran.includes("every other round"));
  expect(ran).toEqual([
    ...["full part", "full part", "full part", "fails once"],
    ...["full part", "fails once"],
    ...["full part", "fails once", "every other round"],
  ]);
  expect(errors).toEqual([new Error("once")]);
  expect(works.slice(0, 3)).toEqual(["full", "fails once", "full"]);
});
