import fc from "fast-check";
import { expect, test } from "vitest";
import { Pacer } from "../../../src/delivery/http/pacer.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";

const PACE = { atOnce: 5, perSecond: 20 };

/** Work that is asked for at a time, and no longer wanted after another if it has not started. In milliseconds. */
interface Work {
  at: number;
  cancelledAfter?: number | undefined;
}

/** When work started, in milliseconds. */
async function startsOf(asked: readonly Work[]): Promise<{ work: Work; started: number }[]> {
  const time = new SimulatedTime();
  const pacer = new Pacer(PACE, time.clock);
  const starts: { work: Work; started: number }[] = [];
  for (const work of asked) {
    time.clock.after(work.at, () => {
      let isStarted = false;
      const free = pacer.take(() => {
        isStarted = true;
        starts.push({ work, started: time.now });
      });
      if (work.cancelledAfter !== undefined) time.clock.after(work.cancelledAfter, () => isStarted || free());
    });
  }
  await time.run(60_000);
  expect(pacer.backlogMs).toBe(0);
  return starts;
}

const works = fc.array(
  fc.record({
    at: fc.nat({ max: 3_000 }),
    cancelledAfter: fc.option(fc.nat({ max: 1_000 }), { nil: undefined }),
  }),
  { minLength: 1, maxLength: 60 },
);

test("work starts in its order unless it is cancelled, and within any time not more of it than the pace allows", async () => {
  await fc.assert(
    fc.asyncProperty(works, async (asked) => {
      const starts = await startsOf(asked);
      const inOrder = asked.toSorted((one, other) => one.at - other.at);
      const started = new Set(starts.map(({ work }) => work));
      expect(starts.map(({ work }) => work)).toEqual(inOrder.filter((work) => started.has(work)));
      for (const work of asked) if (work.cancelledAfter === undefined) expect(started).toContain(work);
      for (const { work, started } of starts)
        expect(started).toBeLessThanOrEqual(work.at + (work.cancelledAfter ?? Number.POSITIVE_INFINITY));
      starts.forEach(({ started }, first) => {
        for (let last = first; last < starts.length; last += 1) {
          const seconds = ((starts[last]?.started ?? 0) - started) / 1_000;
          expect(last - first + 1).toBeLessThanOrEqual(PACE.atOnce + seconds * PACE.perSecond + 1e-6);
        }
      });
    }),
  );
});

test("work that comes while there is little starts at once, and the last of much as soon as the pace allows", async () => {
  const few = await startsOf([0, 0, 0, 0, 0, 1_000, 1_050, 1_100].map((at) => ({ at })));
  for (const { work, started } of few) expect(started).toBe(work.at);
  const many = await startsOf(Array.from({ length: 25 }, () => ({ at: 0 })));
  expect(many.at(-1)?.started).toBeCloseTo(1_000);
});

test("work that is cancelled while it waits delays no other", async () => {
  const cancelled = Array.from({ length: 20 }, () => ({ at: 0, cancelledAfter: 10 }));
  const starts = await startsOf([...cancelled, ...Array.from({ length: 5 }, () => ({ at: 0 }))]);
  // Five of those cancelled started before; five more take 250 ms.
  expect(starts).toHaveLength(10);
  expect(starts.at(-1)?.started).toBeCloseTo(250);
});

test("work that started and frees its slot makes room at once, and only once", () => {
  const pacer = new Pacer({ atOnce: 1, perSecond: 20 }, new SimulatedTime().clock);
  const starts: string[] = [];
  const free = pacer.take(() => starts.push("first"));
  for (const name of ["second", "third"]) pacer.take(() => starts.push(name));
  expect(starts).toEqual(["first"]);
  expect(pacer.backlogMs).toBe(100);
  free();
  free();
  expect(starts).toEqual(["first", "second"]);
  expect(pacer.backlogMs).toBe(50);
});
