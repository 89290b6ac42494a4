import { onTestFinished, vi } from "vitest";

/** Timers and the monotonic clock of this process stand still until the test lets time pass, in milliseconds, or go on. */
export function holdTime(): { pass: (ms: number) => void; goOn: () => void } {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  onTestFinished(() => void vi.useRealTimers());
  return { pass: (ms) => void vi.advanceTimersByTime(ms), goOn: () => void vi.useRealTimers() };
}
