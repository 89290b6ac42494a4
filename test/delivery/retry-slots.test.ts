import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { RetrySlots } from "../../src/delivery/retry-slots.ts";
import { Slots } from "../../src/delivery/slots.ts";

let firstAttempts: Slots;
let retries: RetrySlots;
/** What part of the thread's time is taken. */
let load: number;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout"] });
  const all = new Slots(192);
  firstAttempts = new Slots(160, all);
  load = 0.95;
  retries = new RetrySlots(64, all, firstAttempts, () => load);
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

test("retries give way to first attempts at full speed: one starts for 256 of these, and go on", () => {
  retriesBeside(8_000);
  expect(retriesBeside(8_000)).toBeGreaterThanOrEqual(8_000 / 256 - 3);
  expect(retriesBeside(8_000)).toBeLessThanOrEqual(8_000 / 256 + 3);
  expect(retriesBeside(1_000)).toBeGreaterThanOrEqual(22);
});

test("retries give way to first attempts that start in bursts, too", () => {
  retriesBeside(2_000, 50);
  expect(retriesBeside(2_000, 50)).toBeLessThanOrEqual(28);
});

test("retries have all of their slots beside first attempts that slow receivers hold up", () => {
  for (let second = 0; second < 3; second += 1) retriesBeside(400);
  expect(retriesBeside(400)).toBe(200 * 50);
});

test("retries have all of their slots beside first attempts that leave the processor time", () => {
  load = 0.5;
  for (let second = 0; second < 3; second += 1) retriesBeside(2_000);
  expect(retriesBeside(2_000)).toBe(200 * 50);
});

test("retries that fall due after a while without any begin with a few and are at full speed within two seconds", () => {
  vi.advanceTimersByTime(60_000);
  expect(attempts(retries, 50)).toBe(16);
  const [first, second, third] = [retriesBeside(0), retriesBeside(0), retriesBeside(0)];
  expect(first).toBeGreaterThan(100);
  expect(first).toBeLessThan(1_000);
  expect(second).toBeGreaterThan(3 * first);
  expect(third).toBe(200 * 50);
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
