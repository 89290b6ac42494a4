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
const kind = fc.constantFrom("first" as const, "retry" as const);

type Step = (receivers: FakeReceivers) => void;
const push = fc.record({ kind, webhook, tasks: fc.integer({ min: 1, max: 12 }) }).map(
  ({ kind, webhook, tasks }): Step =>
    (receivers) =>
      receivers.push(kind, webhook, tasks),
);
const end = fc.record({ which: fc.nat(), verdict }).map(
  ({ which, verdict }): Step =>
    (receivers) => {
      const { inFlight } = receivers;
      const task = inFlight[which % Math.max(1, inFlight.length)];
      if (task) receivers.end(task, verdict);
    },
);
const start = fc.option(fc.nat({ max: 6 }), { nil: undefined, freq: 2 }).map(
  (most): Step =>
    (receivers) =>
      void receivers.start(most),
);
const step = fc.oneof(
  { weight: 4, arbitrary: push },
  { weight: 8, arbitrary: end },
  { weight: 6, arbitrary: start },
  {
    weight: 2,
    arbitrary: fc.boolean().map(
      (mayFail): Step =>
        (receivers) => {
          receivers.mayFail = mayFail;
        },
    ),
  },
  {
    weight: 1,
    arbitrary: webhook.map(
      (each): Step =>
        (receivers) =>
          receivers.remove(each),
    ),
  },
);
const limits = fc.record({
  max: fc.integer({ min: 1, max: 40 }),
  perHost: fc.integer({ min: 1, max: 8 }),
  perWebhook: fc.integer({ min: 1, max: 6 }),
});
const hosts = fc.integer({ min: 1, max: WEBHOOKS });
const perEndpoint = fc.integer({ min: 1, max: 3 });
const steps = fc.array(step, { maxLength: 150, size: "max" });

test("whatever is pushed, ends and times out, the right task starts next, once, within all limits, and none waits that could start", () => {
  fc.assert(
    fc.property(limits, hosts, perEndpoint, steps, (limits, hosts, perEndpoint, steps) => {
      const receivers = new FakeReceivers(limits, hosts, perEndpoint);
      for (const step of steps) {
        step(receivers);
        receivers.expectCounts();
      }
      receivers.drain();
    }),
    { numRuns: FULL_SIZE ? 2_000 : 60 },
  );
});

test("webhooks and hosts that hang have together at most a quarter of the requests in flight, in turn", () => {
  const hanging = 30;
  const receivers = new FakeReceivers({ max: 40, perHost: 400, perWebhook: 400 }, hanging);
  for (let webhook = 0; webhook < hanging; webhook += 1) receivers.push("first", webhook, 12);
  const probed = new Set<bigint>();
  for (let round = 0; round < 5; round += 1) {
    receivers.start();
    const { inFlight } = receivers;
    // By the third round, all have been late.
    if (round >= 2) {
      expect(inFlight).toHaveLength(10);
      for (const { webhookId } of inFlight) probed.add(webhookId);
    }
    for (const task of inFlight) receivers.end(task, task.webhookId % 2n === 0n ? LATE : UNREACHABLE);
  }
  expect(probed.size).toBe(hanging);
});

test("slow hosts leave as many requests free as each of them has", () => {
  const receivers = new FakeReceivers({ max: 40, perHost: 400, perWebhook: 400 }, 4);
  for (let webhook = 0; webhook < 3; webhook += 1) receivers.push("first", webhook, 200);
  for (let round = 0; round < 20; round += 1)
    for (const task of receivers.start()) receivers.end(task, ANSWERED);
  expect(receivers.start()).toHaveLength(30);
  receivers.push("first", 3, 1);
  expect(receivers.start().map(({ webhookId }) => webhookId)).toEqual([3n]);
});

test("first attempts have seven of eight turns, each host in turn, and retries the eighth", () => {
  const receivers = new FakeReceivers({ max: 1, perHost: 8, perWebhook: 8 }, 3);
  receivers.push("first", 0, 20);
  receivers.push("first", 1, 20);
  receivers.push("retry", 2, 20);
  const webhooks = Array.from({ length: 16 }, () => {
    const [task] = receivers.start();
    if (task) receivers.end(task, ANSWERED);
    return task?.webhookId;
  });
  expect([0n, 1n, 2n].map((id) => webhooks.filter((each) => each === id).length)).toEqual([7, 7, 2]);
});

test("receivers that fail wait until they may start, and others do not", () => {
  const failed: Verdict[] = [
    { webhook: "failure", host: "success" },
    { webhook: "none", host: "failure" },
  ];
  const receivers = new FakeReceivers({ max: 10, perHost: 1, perWebhook: 1 }, 3);
  for (let webhook = 0; webhook < 3; webhook += 1) receivers.push("first", webhook, 2);
  const started = receivers.start();
  for (const task of started) receivers.end(task, failed[Number(task.webhookId)] ?? ANSWERED);
  expect(started.map((task) => receivers.scheduler.isFailing(task))).toEqual([true, true, false]);
  receivers.mayFail = false;
  expect(receivers.start().map(({ webhookId }) => webhookId)).toEqual([2n]);
  receivers.mayFail = true;
  expect(receivers.start().map(({ webhookId }) => webhookId)).toEqual([0n, 1n]);
});

test("of a moved endpoint, tasks of all webhooks for the old host are removed with the first one for the new host, whose limits hold", () => {
  const scheduler = new Scheduler<Task>({ max: 10, perHost: 4, perWebhook: 4 }, () => true);
  const task = (webhookId: bigint, host: string) =>
    ({ kind: "first", webhookId, window: "endpoint", host }) as const;
  const old = [1n, 2n, 1n].map((webhookId) => task(webhookId, "old.example"));
  for (const each of old) expect(scheduler.push(each)).toEqual([]);
  const moved = task(2n, "new.example");
  expect(new Set(scheduler.push(moved))).toEqual(new Set(old));
  expect([scheduler.next(), scheduler.next()]).toEqual([moved, undefined]);
  const inFlight = ["old.example", "new.example"].map((host) => scheduler.hosts.of(host).inFlight);
  expect(inFlight).toEqual([0, 1]);
});
