import fc from "fast-check";
import { expect, test } from "vitest";
import { Scheduler, type Verdict } from "../../../src/delivery/limits/scheduler.ts";
import type { Task } from "../../../src/delivery/limits/task.ts";
import { FULL_SIZE } from "../../faults/scale.ts";
import { FakeReceivers } from "./fake-receivers.ts";

const WEBHOOKS = 8;
const ANSWERED: Verdict = { webhook: "success", host: "success" };
const LATE: Verdict = { webhook: "timeout", host: "none" };
const UNREACHABLE: Verdict = { webhook: "none", host: "timeout" };

const verdict = fc.constantFrom<Verdict>(
  ANSWERED,
  { webhook: "failure", host: "success" },
  { webhook: "failure", host: "none" },
  LATE,
  { webhook: "none", host: "failure" },
  UNREACHABLE,
  { webhook: "none", host: "none" },
);
const webhook = fc.nat({ max: WEBHOOKS - 1 });
const step = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant("push" as const),
      kind: fc.constantFrom("first" as const, "retry" as const),
      webhook,
      tasks: fc.integer({ min: 1, max: 12 }),
    }),
  },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("end" as const), which: fc.nat(), verdict }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant("start" as const), most: fc.nat({ max: 6 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("start all" as const) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("budget" as const), budget: fc.integer({ min: 1, max: 24 }) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("remove" as const), webhook }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("exempt slow" as const) }) },
);
const limits = fc.record({
  budget: fc.integer({ min: 1, max: 24 }),
  max: fc.integer({ min: 1, max: 40 }),
  perHost: fc.integer({ min: 1, max: 8 }),
  perWebhook: fc.integer({ min: 1, max: 6 }),
});

test("whatever is pushed, ends and times out, the right task starts next, once, within all limits, and none waits that could start", () => {
  fc.assert(
    fc.property(
      limits,
      fc.integer({ min: 1, max: WEBHOOKS }),
      fc.integer({ min: 1, max: 3 }),
      fc.array(step, { maxLength: 150, size: "max" }),
      (limits, hosts, perEndpoint, steps) => {
        const receivers = new FakeReceivers(limits, hosts, perEndpoint);
        for (const step of steps) {
          if (step.do === "push") receivers.push(step.kind, step.webhook, step.tasks);
          else if (step.do === "start") receivers.start(step.most);
          else if (step.do === "start all") receivers.start();
          else if (step.do === "exempt slow") receivers.exemptSlow();
          else if (step.do === "budget") receivers.setBudget(step.budget);
          else if (step.do === "remove")
            receivers.remove(({ webhookId }) => webhookId === BigInt(step.webhook));
          else {
            const { inFlight } = receivers;
            const task = inFlight[step.which % Math.max(1, inFlight.length)];
            if (task) receivers.end(task, step.verdict);
          }
          receivers.expectCounts();
        }
        receivers.drain();
      },
    ),
    { numRuns: FULL_SIZE ? 2_000 : 60 },
  );
});

test("webhooks and hosts that hang have together at most a quarter of the budget, in turn", () => {
  const hanging = 30;
  const receivers = new FakeReceivers({ budget: 40, perHost: 400, perWebhook: 400 }, hanging);
  for (let webhook = 0; webhook < hanging; webhook += 1) receivers.push("first", webhook, 12);
  const probed = new Set<bigint>();
  for (let round = 0; round < 5; round += 1) {
    receivers.start();
    const { inFlight } = receivers;
    // By the third round, all have been late.
    if (round >= 2) {
      expect([inFlight.length, receivers.probes]).toEqual([10, 10]);
      for (const { webhookId } of inFlight) probed.add(webhookId);
    }
    for (const task of inFlight) receivers.end(task, task.webhookId % 2n === 0n ? LATE : UNREACHABLE);
  }
  expect(probed.size).toBe(hanging);
});

test("of a budget of one, first attempts have four turns and retries the fifth", () => {
  const receivers = new FakeReceivers({ budget: 1, perHost: 8, perWebhook: 8 }, 1);
  receivers.push("first", 0, 20);
  receivers.push("retry", 1, 20);
  const kinds: string[] = [];
  for (let n = 0; n < 20; n += 1) {
    const [task] = receivers.start();
    if (!task) break;
    kinds.push(task.kind);
    receivers.end(task, { webhook: "success", host: "success" });
  }
  expect(kinds.filter((kind) => kind === "retry")).toHaveLength(4);
  expect(kinds).toHaveLength(20);
});

test("tasks of a moved webhook take the place of those for its old host, and start within the limits of the new one", () => {
  const scheduler = new Scheduler<Task>({ budget: 10, max: 10, perHost: 4, perWebhook: 4 });
  const task = (host: string): Task => ({ kind: "first", webhookId: 1n, window: 1n, host });
  const [old, moved] = [task("old.example"), task("new.example")];
  expect(scheduler.push(old)).toEqual([]);
  expect(scheduler.push(moved)).toEqual([old]);
  expect([...scheduler.tasks("first")]).toEqual([moved]);
  expect(scheduler.waitingForHost("first", "old.example")).toBe(0);
  expect([scheduler.next(), scheduler.next()]).toEqual([moved, undefined]);
  expect([scheduler.hosts.of("old.example").inFlight, scheduler.hosts.of("new.example").inFlight]).toEqual([
    0, 1,
  ]);
});

test("of a moved endpoint, tasks of all webhooks for the old host are removed with the first one for the new host", () => {
  const scheduler = new Scheduler<Task>({ budget: 10, max: 10, perHost: 4, perWebhook: 4 });
  const task = (webhookId: bigint, host: string): Task => ({
    kind: "first",
    webhookId,
    window: "endpoint",
    host,
  });
  const old = [task(1n, "old.example"), task(2n, "old.example"), task(1n, "old.example")];
  for (const each of old) expect(scheduler.push(each)).toEqual([]);
  const moved = task(2n, "new.example");
  expect(new Set(scheduler.push(moved))).toEqual(new Set(old));
  expect([scheduler.next(), scheduler.next()]).toEqual([moved, undefined]);
});

/** Pushes three tasks per webhook of a host, and has the first end. Answers those that start during the pause. */
function startedInPause(verdict: Verdict, webhooks: number) {
  const scheduler = new Scheduler<Task>({ budget: 1, max: 1, perHost: 1, perWebhook: 1 });
  for (let n = 0; n < 3 * webhooks; n += 1) {
    const id = BigInt(n % webhooks);
    scheduler.push({
      kind: "first",
      webhookId: id,
      window: id,
      host: id < 2n ? "failing.example" : "well.example",
    });
  }
  const first = scheduler.next();
  if (!first) throw new Error("a task was to start");
  scheduler.end(first, verdict);
  const paused = scheduler.pause(first, verdict);
  const started: bigint[] = [];
  for (let task = scheduler.next(); task; task = scheduler.next()) {
    started.push(task.webhookId);
    scheduler.end(task, ANSWERED);
  }
  return { first, started, paused, scheduler };
}

test("after a failure in a window of one, that webhook pauses, and others use the budget and its host meanwhile", () => {
  const { started, paused, scheduler } = startedInPause({ webhook: "failure", host: "success" }, 3);
  expect(started.sort()).toEqual([1n, 1n, 1n, 2n, 2n, 2n]);
  expect(scheduler.inFlight).toBe(0);
  paused?.resume();
  expect(scheduler.next()?.webhookId).toBe(0n);
});

test("after a failure of the host in a window of one, all its webhooks pause, and other hosts do not", () => {
  const { started, paused, scheduler } = startedInPause({ webhook: "none", host: "failure" }, 3);
  expect(started).toEqual([2n, 2n, 2n]);
  paused?.resume();
  expect(scheduler.next()).toBeDefined();
});

test("a success, a timeout and a failure in a larger window cause no pause", () => {
  for (const verdict of [ANSWERED, LATE, UNREACHABLE])
    expect(startedInPause(verdict, 1).paused).toBeUndefined();
  const receivers = new FakeReceivers({ budget: 10, perHost: 4, perWebhook: 4 }, 1);
  receivers.push("first", 0, 4);
  const [task] = receivers.start();
  const failed: Verdict = { webhook: "failure", host: "failure" };
  if (task) receivers.end(task, failed);
  expect(task && receivers.scheduler.pause(task, failed)).toBeUndefined();
});
