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
}, 300_000);

/** Has the receivers answer all that is in flight, round after round. */
function answer(
  receivers: FakeReceivers,
  rounds: number,
  verdictOf: (webhook: number) => Verdict | undefined,
) {
  for (let round = 0; round < rounds; round += 1) {
    receivers.start();
    for (const task of receivers.inFlight) {
      const verdict = verdictOf(Number(task.webhookId));
      if (!verdict) continue;
      receivers.end(task, verdict);
      receivers.start();
    }
  }
}

test("a healthy webhook alone has the whole budget after a few responses", () => {
  const receivers = new FakeReceivers({ budget: 50, perHost: 400, perWebhook: 400 }, 1);
  receivers.push("first", 0, 160);
  answer(receivers, 4, () => ANSWERED);
  receivers.start();
  expect(receivers.inFlight).toHaveLength(50);
});

test("many webhooks whose receivers are slow share the budget with a fast one evenly", () => {
  const receivers = new FakeReceivers({ budget: 20, perHost: 400, perWebhook: 400 }, 5);
  for (let webhook = 0; webhook < 5; webhook += 1) receivers.push("first", webhook, webhook === 0 ? 104 : 20);
  // The first webhook's receiver answers in every round, the others never.
  answer(receivers, 20, (webhook) => (webhook === 0 ? ANSWERED : undefined));
  receivers.start();
  const inFlight = [0, 1, 2, 3, 4].map((webhook) => receivers.inFlightTo(webhook).length);
  expect(inFlight).toEqual([4, 4, 4, 4, 4]);
  expect(receivers.started).toBeGreaterThan(20 * 4);
});

/** Exempts all requests in flight from the budget. */
function exemptAll(receivers: FakeReceivers): void {
  receivers.exemptSlow();
  receivers.exemptSlow();
}

test("requests to slow receivers have a budget of their own, and leave a quarter of the maximum to others", () => {
  const receivers = new FakeReceivers({ budget: 8, max: 24, perHost: 8, perWebhook: 8 }, 8);
  for (let webhook = 1; webhook < 8; webhook += 1) receivers.push("first", webhook, 20);
  receivers.start();
  expect(receivers.inFlight).toHaveLength(8);
  // One call later they are not slow yet.
  receivers.exemptSlow();
  expect(receivers.start()).toEqual([]);
  receivers.exemptSlow();
  expect(receivers.start()).toHaveLength(8);
  // Known to be slow, they are exempt at the next call.
  receivers.exemptSlow();
  expect(receivers.start()).toHaveLength(2);
  receivers.exemptSlow();
  expect(receivers.start()).toEqual([]);
  // What a fast one leaves stays its own, although slow ones wait.
  receivers.push("first", 0, 20);
  for (let answered = 0; answered < 12; answered += 1) {
    receivers.start();
    for (const task of receivers.inFlightTo(0).slice(0, 1)) receivers.end(task, ANSWERED);
  }
  expect(receivers.start()).toHaveLength(1);
  expect(receivers.inFlightTo(0).length).toBeGreaterThanOrEqual(4);
  expect(receivers.inFlight.length - receivers.inFlightTo(0).length).toBe(18);
});

test("at the maximum too, the next slot goes to the receiver with the fewest requests in flight", () => {
  const receivers = new FakeReceivers({ budget: 16, max: 16, perHost: 8, perWebhook: 8 }, 8);
  for (let webhook = 1; webhook < 8; webhook += 1) receivers.push("first", webhook, 20);
  receivers.start();
  expect(receivers.inFlight).toHaveLength(16);
  receivers.push("first", 0, 20);
  for (const webhook of [1, 2])
    for (const task of receivers.inFlightTo(webhook).slice(0, 1)) receivers.end(task, ANSWERED);
  receivers.start();
  expect(receivers.inFlightTo(0)).toHaveLength(2);
});

test("a host is slow from a request that is exempt until one that is answered earlier; its tasks are sendable within the share of slow hosts", () => {
  const receivers = new FakeReceivers({ budget: 8, max: 8, perHost: 12, perWebhook: 12 }, 8);
  const { scheduler } = receivers;
  const hosts = ["host-0", "host-1", "host-2"];
  const sendableHosts = () => new Set([...scheduler.sendable("first", hosts)].map(({ host }) => host));
  for (const webhook of [0, 1]) receivers.push("first", webhook, 40);
  receivers.start();
  expect(receivers.inFlight).toHaveLength(8);
  exemptAll(receivers);
  receivers.push("first", 2);
  expect(sendableHosts()).toEqual(new Set(["host-2"]));
  expect(scheduler.hasSendable("first", 0)).toBe(true);
  receivers.remove(({ host }) => host === "host-2");
  expect(scheduler.hasSendable("first", 0)).toBe(false);
  for (const webhook of [0, 1])
    for (const task of receivers.inFlightTo(webhook).slice(0, 2)) receivers.end(task, ANSWERED);
  expect(sendableHosts()).toEqual(new Set(["host-0", "host-1"]));
  const [started] = receivers.start(1);
  if (!started) throw new Error("a request was to start");
  receivers.end(started, ANSWERED);
  expect(scheduler.hosts.of(started.host).isSlow).toBe(false);
  expect(["host-0", "host-1"].filter((host) => scheduler.hosts.of(host).isSlow)).toHaveLength(1);
});

test("retries have a fifth of the budget beside first attempts, and all of it alone", () => {
  const receivers = new FakeReceivers({ budget: 20, perHost: 400, perWebhook: 400 }, WEBHOOKS);
  for (let webhook = 0; webhook < WEBHOOKS; webhook += 1)
    receivers.push(webhook < 2 ? "retry" : "first", webhook, 80);
  answer(receivers, 5, () => ANSWERED);
  receivers.start();
  expect(receivers.inFlight.filter(({ kind }) => kind === "retry")).toHaveLength(4);
  receivers.remove(({ kind }) => kind === "first");
  answer(receivers, 5, () => ANSWERED);
  receivers.start();
  expect(receivers.inFlight.filter(({ kind }) => kind === "retry")).toHaveLength(20);
});

test("at the maximum too, retries to slow receivers leave slots to first attempts until they have a fifth of them", () => {
  const receivers = new FakeReceivers({ budget: 24, max: 24, perHost: 400, perWebhook: 400 }, WEBHOOKS);
  for (let webhook = 0; webhook < WEBHOOKS; webhook += 1) receivers.push("retry", webhook, 20);
  receivers.start();
  exemptAll(receivers);
  expect(receivers.inFlight).toHaveLength(24);
  for (let webhook = 0; webhook < WEBHOOKS; webhook += 1) receivers.push("first", webhook, 20);
  const retries = () => receivers.inFlight.filter(({ kind }) => kind === "retry");
  for (let answered = 0; answered < 24; answered += 1) {
    const [oldest] = retries();
    if (oldest) receivers.end(oldest, ANSWERED);
    receivers.start();
    exemptAll(receivers);
  }
  expect(retries()).toHaveLength(4);
  // Of the maximum, a quarter is left to hosts that are not slow.
  expect(receivers.inFlight).toHaveLength(18);
});

test("a webhook that hangs has one probe in flight as long as tasks wait, and its host's window is left to its neighbours", () => {
  const receivers = new FakeReceivers({ budget: 100, perHost: 8, perWebhook: 8 }, 1);
  receivers.push("first", 0, 50);
  receivers.push("first", 1, 190);
  answer(receivers, 1, (webhook) => (webhook === 0 ? LATE : ANSWERED));
  for (let round = 0; round < 20; round += 1) {
    answer(receivers, 1, (webhook) => (webhook === 0 ? undefined : ANSWERED));
    receivers.start();
    expect(receivers.inFlightTo(0)).toHaveLength(1);
    // Now and then the probe times out, and the next one starts.
    if (round % 5 === 4) for (const probe of receivers.inFlightTo(0)) receivers.end(probe, LATE);
  }
  receivers.start();
  expect(receivers.inFlightTo(1)).toHaveLength(8);
  expect(receivers.scheduler.hosts.of("host-0")).toMatchObject({ inFlight: 8, timedOut: false });
});

test("webhooks and hosts that hang have together at most a quarter of the budget, in turn", () => {
  const hanging = 30;
  const receivers = new FakeReceivers({ budget: 40, perHost: 400, perWebhook: 400 }, hanging);
  for (let webhook = 0; webhook < hanging; webhook += 1) receivers.push("first", webhook, 12);
  const late = (webhook: number) => (webhook % 2 === 0 ? LATE : UNREACHABLE);
  answer(receivers, 5, late);
  const probed = new Set<bigint>();
  for (let round = 0; round < 3; round += 1) {
    const { inFlight } = receivers;
    expect(inFlight).toHaveLength(10);
    expect(receivers.probes).toBe(10);
    for (const { webhookId } of inFlight) probed.add(webhookId);
    for (const task of inFlight) receivers.end(task, late(Number(task.webhookId)));
    receivers.start();
  }
  expect(probed.size).toBe(hanging);
});

test("a host that answers again has its window back at once, although its probe had to wait for others", () => {
  const receivers = new FakeReceivers({ budget: 4, perHost: 8, perWebhook: 8 }, 3);
  for (const webhook of [0, 1]) receivers.push("first", webhook, 10);
  receivers.start();
  const [first, second] = receivers.inFlightTo(0);
  const [third, fourth] = receivers.inFlightTo(1);
  if (!first || !second || !third || !fourth) throw new Error("two of each were to start");
  // Both hosts time out, and only one of them may be probed.
  receivers.end(first, UNREACHABLE);
  receivers.end(third, UNREACHABLE);
  receivers.end(second, { webhook: "none", host: "none" });
  receivers.start();
  // The other one answers a request that was in flight before.
  receivers.end(fourth, ANSWERED);
  expect(receivers.start()).not.toEqual([]);
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

test("the webhooks of an endpoint share one window, take turns in it, and count as one beside another webhook", () => {
  // Of one host: an endpoint of three webhooks, and another one of a single webhook.
  const receivers = new FakeReceivers({ budget: 100, perHost: 12, perWebhook: 8 }, 1, 3);
  for (const webhook of [0, 1, 2, 3]) receivers.push("first", webhook, 60);
  answer(receivers, 4, () => ANSWERED);
  receivers.start();
  const inFlight = [0, 1, 2, 3].map((webhook) => receivers.inFlightTo(webhook).length);
  expect(inFlight).toEqual([2, 2, 2, 6]);
  // An event type that fails lowers the window of all of them.
  const { allowed } = receivers.scheduler.webhooks.of("endpoint-0-0");
  const [failing] = receivers.inFlightTo(0);
  if (failing) receivers.end(failing, { webhook: "failure", host: "success" });
  expect(receivers.scheduler.webhooks.of("endpoint-0-0").allowed).toBe(Math.floor(allowed / 2));
});

test("an endpoint that hangs is probed with one event type at a time, in turn", () => {
  const receivers = new FakeReceivers({ budget: 100, perHost: 8, perWebhook: 8 }, 1, 2);
  for (const webhook of [0, 1]) receivers.push("first", webhook, 10);
  answer(receivers, 1, () => LATE);
  const probed: bigint[] = [];
  for (let round = 0; round < 4; round += 1) {
    receivers.start();
    const [probe, ...others] = receivers.inFlight;
    expect(others).toEqual([]);
    if (!probe) throw new Error("a probe was to start");
    probed.push(probe.webhookId);
    receivers.end(probe, LATE);
  }
  expect(new Set(probed.slice(0, 2))).toEqual(new Set([0n, 1n]));
  expect(probed.slice(2)).toEqual(probed.slice(0, 2));
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
