import pino from "pino";
import { expect, test } from "vitest";
import { Filters } from "../../../src/delivery/filters/filters.ts";
import type { FilterJob, FilterResult } from "../../../src/filters/filter-runner.ts";
import type { ClaimedDelivery } from "../../../src/queue/claims.ts";
import { claimsOf } from "../sender-parts.ts";

const CONTENT = { payload: "{}", userId: "" };
const SLOW: FilterResult = { sent: true, problem: "slow", error: "takes longer" };

interface Task {
  delivery: ClaimedDelivery;
}

/** Filters whose evaluations the test ends. */
function holdFilters() {
  const jobs: FilterJob[] = [];
  const ended: [Task, boolean][] = [];
  const givenBack: Task[] = [];
  const slow: bigint[] = [];
  const stopped: bigint[] = [];
  const lines: string[] = [];
  const filters = new Filters<Task>(
    {
      runner: { run: (job) => jobs.push(job) },
      log: pino({}, { write: (line: string) => void lines.push(JSON.parse(line).msg) }),
      onSlow: ({ id }) => slow.push(id),
      onStopped: ({ id }) => stopped.push(id),
    },
    (task, isSent) => ended.push([task, isSent]),
    (tasks) => givenBack.push(...tasks),
  );
  /** Deliveries of the webhook with this id, which wait for its filter. */
  function add(id: number, deliveries: number, installedAppId: string | null = null): Task[] {
    const [first, ...others] = claimsOf(id, deliveries);
    const webhook = { ...(first as ClaimedDelivery).webhook, filter: "true", installedAppId };
    const tasks = [first as ClaimedDelivery, ...others].map((each) => ({ delivery: { ...each, webhook } }));
    for (const task of tasks) filters.add(task, { ...CONTENT });
    return tasks;
  }
  /** Ends the next evaluations that are wanted, with the estimate for the one after. */
  function end(number: number, result: FilterResult, estimateMs: number): void {
    for (let n = 0; n < number; ) {
      const job = jobs.shift();
      if (!job) throw new Error(`only ${n} evaluations waited`);
      if (!job.isWanted?.()) continue;
      job.done(result, estimateMs);
      n += 1;
    }
  }
  return { filters, jobs, ended, givenBack, slow, stopped, lines, add, end };
}

test("a webhook is excluded from claims while its waiting evaluations take long, and an app with many such webhooks", () => {
  const { filters, add, end } = holdFilters();
  add(1, 3);
  expect(filters.excluded()).toEqual([]);
  end(1, { sent: true }, 60);
  expect(filters.excluded()).toEqual([1n]);
  end(2, { sent: true }, 60);
  expect(filters.excluded()).toEqual([]);
  const app = "01a1fcb1-a29f-730e-bb2b-5a149b950abd";
  for (let id = 11; id <= 40; id += 1) {
    add(id, 1, app);
    end(1, { sent: true }, 40);
  }
  for (let id = 11; id <= 40; id += 1) add(id, 1, app);
  add(2, 1);
  expect(filters.excluded()).toEqual(Array.from({ length: 30 }, (_, n) => BigInt(n + 11)));
});

test("nothing is claimed while thousands of deliveries wait whose filters are fast", () => {
  const { filters, add, end } = holdFilters();
  for (let id = 1; id <= 3; id += 1) add(id, 700);
  expect(filters.excluded()).toBeUndefined();
  end(100, { sent: true }, 0.01);
  expect(filters.excluded()).toEqual([]);
});

test("deliveries that would wait for more than a second are given back, but for a few", () => {
  const { filters, givenBack, ended, add, end } = holdFilters();
  add(1, 1_000);
  end(1, { sent: true }, 10);
  expect(ended).toHaveLength(1);
  expect(givenBack).toHaveLength(989);
  expect([...filters.tasks()]).toHaveLength(10);
});

test("a delivery that is removed gets no result, and its evaluation is not wanted any more", () => {
  const { filters, jobs, ended, add } = holdFilters();
  const [first, second] = add(1, 2);
  expect(filters.remove((task) => task === first)).toEqual([first]);
  expect(jobs.map((job) => job.isWanted?.())).toEqual([false, true]);
  jobs[1]?.done({ sent: false }, 1);
  expect(ended).toEqual([[second, false]]);
});

test("ten slow evaluations in succession switch a filter off, and what waits for it is sent", () => {
  const { filters, ended, slow, stopped, add, end } = holdFilters();
  const [{ delivery } = { delivery: undefined }] = add(1, 9);
  end(9, SLOW, 1);
  add(1, 1);
  end(1, { sent: false }, 1);
  add(1, 13);
  end(9, SLOW, 1);
  expect(stopped).toEqual([]);
  expect(filters.appliesTo(delivery as ClaimedDelivery, CONTENT)).toBe(true);
  end(1, SLOW, 1);
  expect(stopped).toEqual([1n]);
  expect(slow).toHaveLength(19);
  expect(ended).toHaveLength(23);
  expect(ended.filter(([, isSent]) => !isSent)).toHaveLength(1);
});

test("a filter that is not valid is logged once, and not evaluated again", () => {
  const { filters, lines, add, end } = holdFilters();
  const [task] = add(1, 3);
  end(3, { sent: true, problem: "invalid", error: "there is no order" }, 1);
  expect(lines).toEqual(["the filter of a webhook is not valid; its events are sent"]);
  expect(filters.appliesTo(task?.delivery as ClaimedDelivery, CONTENT)).toBe(false);
});
