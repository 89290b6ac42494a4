import fc from "fast-check";
import { expect, test } from "vitest";
import { SimulatedTime } from "../../../bench/parts/simulated-time.ts";
import { createPacer } from "../../../src/delivery/http/pacer.ts";

const PACE = { atOnce: 5, perSecond: 20 };

/** When work started that was asked for at these times, in milliseconds. */
async function startsOf(asked: readonly number[]): Promise<{ asked: number; started: number }[]> {
  const time = new SimulatedTime();
  const pace = createPacer(PACE, time.clock);
  const starts: { asked: number; started: number }[] = [];
  for (const at of asked)
    time.clock.after(at, () => pace(() => starts.push({ asked: at, started: time.now })));
  await time.run(60_000);
  return starts;
}

test("work starts in its order, and within any time not more of it than the pace allows", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat({ max: 3_000 }), { minLength: 1, maxLength: 60 }), async (asked) => {
      const starts = await startsOf(asked);
      expect(starts.map((each) => each.asked)).toEqual(asked.toSorted((one, other) => one - other));
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
  const few = await startsOf([0, 0, 0, 0, 0, 1_000, 1_050, 1_100]);
  for (const { asked, started } of few) expect(started).toBe(asked);
  const many = await startsOf(Array(25).fill(0));
  expect(many.at(-1)?.started).toBeCloseTo(1_000);
});
