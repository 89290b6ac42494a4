import { expect, test } from "vitest";
import { InFlightLimit } from "../../../src/delivery/limits/in-flight-limit.ts";

/** Adjusts a limit in a thread that is busy to such an extent. @returns its value after so many times */
function limitOf(max: number) {
  let busy = 0;
  const limit = new InFlightLimit(max, () => busy);
  return (times: number, { isBusyTo = 0, wasReached = true } = {}): number => {
    busy = isBusyTo;
    for (let n = 0; n < times; n += 1) limit.adapt(wasReached);
    return limit.value;
  };
}

test("the limit starts at 64, and grows by a tenth up to the maximum while it is reached and the thread has time", () => {
  const adapt = limitOf(4_000);
  expect(adapt(100, { wasReached: false })).toBe(64);
  expect([adapt(1), adapt(1), adapt(100)]).toEqual([71, 79, 4_000]);
});

test("the limit falls while the thread is busy, whether it is reached or not, to 64 or the maximum at the least", () => {
  const adapt = limitOf(4_000);
  adapt(100);
  const isBusyTo = 0.75;
  // The eighth measurement brings the average above 0.7.
  expect([adapt(7, { isBusyTo }), adapt(1, { isBusyTo })]).toEqual([4_000, 3_880]);
  expect(adapt(1, { isBusyTo, wasReached: false })).toBe(3_763);
  expect(adapt(1_000, { isBusyTo })).toBe(64);
  expect(limitOf(10)(10, { isBusyTo })).toBe(10);
});

test("the time of the real thread is measured between two adaptations", () => {
  const limit = new InFlightLimit(4_000);
  const end = performance.now() + 50;
  while (performance.now() < end);
  // The loop above took all of it.
  limit.adapt(true);
  expect(limit.value).toBe(64);
});
