import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { RetrySlots } from "../../src/delivery/retry-slots.ts";
import { Slots } from "../../src/delivery/slots.ts";

let firstAttempts: Slots;
let retries: RetrySlots;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout"] });
  const all = new Slots(192);
  firstAttempts = new Slots(160, all);
  retries = new RetrySlots(64, all, firstAttempts);
});
afterEach(() => {
  vi.useRealTimers();
});

function attempts(slots: Slots, most: number): number {
  let taken = 0;
  while (taken < most && slots.tryTake()) taken += 1;
  for (let n = 0; n < taken; n += 1) slots.give();
  return taken;
}

/** Retries that start in a second beside so many first attempts, of which a burst starts every so often. */
function retriesBeside(firstAttemptsPerSecond: number, burstEveryMs = 5): number {
  let started = 0;
  for (let ms = 0; ms < 1_000; ms += 5) {
    if (ms % burstEveryMs === 0) attempts(firstAttempts, (firstAttemptsPerSecond * burstEveryMs) / 1_000);
    vi.advanceTimersByTime(5);
    started += attempts(retries, 50);
  }
  return started;
}

test("retries give way to first attempts at full speed: one starts for 64 of these, and go on", () => {
  retriesBeside(8_000);
  expect(retriesBeside(8_000)).toBeGreaterThanOrEqual(8_000 / 64 - 5);
  expect(retriesBeside(8_000)).toBeLessThanOrEqual(8_000 / 64 + 5);
  expect(retriesBeside(1_000)).toBeGreaterThanOrEqual(95);
});

test("retries give way to first attempts that start in bursts, too", () => {
  retriesBeside(2_000, 50);
  expect(retriesBeside(2_000, 50)).toBeLessThanOrEqual(105);
});

test("retries have all of their slots beside first attempts that slow receivers hold up", () => {
  expect(retriesBeside(400)).toBe(200 * 50);
});

test("who waits for a retry's slot is told as soon as first attempts are through", () => {
  for (let n = 0; n < 160; n += 1) firstAttempts.tryTake();
  vi.advanceTimersByTime(20);
  while (retries.tryTake());
  const told = vi.fn(() => {
    if (!retries.tryTake()) retries.wait(told);
  });
  retries.wait(told);
  for (let n = 0; n < 4; n += 1) {
    vi.advanceTimersByTime(5);
    attempts(firstAttempts, 20);
    for (let k = 0; k < 20; k += 1) firstAttempts.give();
    for (let k = 0; k < 20; k += 1) firstAttempts.tryTake();
  }
  vi.advanceTimersByTime(60);
  expect(told).toHaveBeenCalled();
  expect(retries.inLine).toBe(0);
});
