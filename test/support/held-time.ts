import { onTestFinished, vi } from "vitest";

/** Timers and the monotonic clock of this process stand still until the test lets time pass, in milliseconds. */
export function holdTime(): { pass: (ms: number) => void } {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  onTestFinished(() => void vi.useRealTimers());
  return { pass: (ms) => void vi.advanceTimersByTime(ms) };
}
