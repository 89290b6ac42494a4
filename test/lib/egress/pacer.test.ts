import { expect, test } from "vitest";
import { Pacer } from "../../../src/lib/egress/pacer.ts";
import { SimulatedTime } from "../../support/simulation/simulated-time.ts";

/** Work that is asked for at a time, and no longer wanted after another if it has not started. In milliseconds. */
interface Work {
  at: number;
  cancelledAfter?: number;
}

/** When work started, in milliseconds, and which it was. Five start at once, and twenty a second. */
async function startsOf(asked: readonly Work[]): Promise<[number, number][]> {
  const time = new SimulatedTime();
  const pacer = new Pacer({ atOnce: 5, perSecond: 20 }, time.clock);
  const starts: [number, number][] = [];
  asked.forEach(({ at, cancelledAfter }, n) => {
    time.clock.after(at, () => {
      let isStarted = false;
      const free = pacer.take(() => {
        isStarted = true;
        starts.push([n, Math.round(time.now)]);
      });
      if (cancelledAfter !== undefined) time.clock.after(cancelledAfter, () => isStarted || free());
    });
  });
  await time.run(60_000);
  expect(pacer.backlogMs).toBe(0);
  return starts;
}

test("work starts at once while there is little, and else in its order at the pace; what is cancelled meanwhile delays no other", async () => {
  const few = [0, 0, 0, 0, 0, 1_000, 1_050, 1_100].map((at) => ({ at }));
  expect(await startsOf(few)).toEqual(few.map(({ at }, n) => [n, at]));
  const cancelled = Array.from({ length: 20 }, () => ({ at: 0, cancelledAfter: 10 }));
  const many = Array.from({ length: 25 }, () => ({ at: 0 }));
  expect(await startsOf([...cancelled, ...many])).toEqual([
    ...[0, 1, 2, 3, 4].map((n) => [n, 0]),
    ...many.map((_, n) => [20 + n, 50 * (n + 1)]),
  ]);
});

test("work that started and frees its slot makes room at once", () => {
  const pacer = new Pacer({ atOnce: 1, perSecond: 20 }, new SimulatedTime().clock);
  const starts: string[] = [];
  const free = pacer.take(() => starts.push("first"));
  for (const name of ["second", "third"]) pacer.take(() => starts.push(name));
  expect([starts, pacer.backlogMs]).toEqual([["first"], 100]);
  free();
  expect([starts, pacer.backlogMs]).toEqual([["first", "second"], 50]);
});
