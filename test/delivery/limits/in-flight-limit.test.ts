import { expect, test } from "vitest";
import { InFlightLimit } from "../../../src/delivery/limits/in-flight-limit.ts";

/** A limit whose thread is busy to the extent that the test sets. */
function limitOf(max: number): { limit: InFlightLimit; thread: { busy: number } } {
  const thread = { busy: 0 };
  return { limit: new InFlightLimit(max, () => thread.busy), thread };
}

function adapt(limit: InFlightLimit, times: number, wasReached = true): number {
  for (let n = 0; n < times; n += 1) limit.adapt(wasReached);
  return limit.value;
}

test("the limit starts at 64, or at the maximum where that is less", () => {
  expect(limitOf(4_000).limit.value).toBe(64);
  expect(limitOf(10).limit.value).toBe(10);
});

test("the limit grows by a tenth up to the maximum while it is reached and the thread has time", () => {
  const { limit } = limitOf(4_000);
  expect(adapt(limit, 1)).toBe(71);
  expect(adapt(limit, 1)).toBe(79);
  expect(adapt(limit, 100)).toBe(4_000);
});

test("the limit stays as it is while it is not reached", () => {
  const { limit } = limitOf(4_000);
  expect(adapt(limit, 100, false)).toBe(64);
});

test("the limit falls while the thread is busy, whether it is reached or not, to 64 or the maximum at the least", () => {
  const { limit, thread } = limitOf(4_000);
  expect(adapt(limit, 100)).toBe(4_000);
  thread.busy = 0.75;
  // The eighth measurement brings the average above 0.7.
  expect(adapt(limit, 7)).toBe(4_000);
  expect(adapt(limit, 1)).toBe(3_880);
  expect(adapt(limit, 1, false)).toBe(3_763);
  expect(adapt(limit, 1_000)).toBe(64);
  const small = limitOf(10);
  small.thread.busy = 1;
  expect(adapt(small.limit, 10)).toBe(10);
});

test("the time of the real thread is measured between two adaptations", () => {
  const limit = new InFlightLimit(4_000);
  const end = performance.now() + 50;
  while (performance.now() < end);
  // The loop above took all of it.
  expect(adapt(limit, 1)).toBe(64);
});
