import { describe, expect, onTestFinished, test, vi } from "vitest";
import { MarkList, Windows } from "../../src/delivery/concurrency.ts";
import { Slots } from "../../src/delivery/slots.ts";

describe("the allowance of a webhook or host", () => {
  test("starts at one, so that a receiver that hangs holds one slot", () => {
    const windows = new Windows<string>({ start: 1, max: 4 });
    expect(windows.hasRoom("a")).toBe(true);
    windows.start("a");
    expect(windows.hasRoom("a")).toBe(false);
    expect(windows.hasRoom("b")).toBe(true);
  });

  test("grows by one a success up to its bound, halves on a fault, and keeps at least one", () => {
    const windows = new Windows<string>({ start: 1, max: 4 });
    const room = () => {
      let started = 0;
      while (windows.hasRoom("a")) {
        windows.start("a");
        started += 1;
      }
      for (let n = 0; n < started; n += 1) windows.end("a", "neutral");
      return started;
    };
    windows.start("a");
    for (const expected of [2, 3, 4, 4]) {
      windows.end("a", "success");
      windows.start("a");
      expect(room() + 1).toBe(expected);
    }
    for (const expected of [2, 1, 1]) {
      windows.end("a", "fault");
      expect(room()).toBe(expected);
      windows.start("a");
    }
  });
});

describe("the slots of a process", () => {
  test("are shared by first attempts and retries, which leave each other some", () => {
    const all = new Slots(10);
    const [first, retries] = [new Slots(8, all), new Slots(5, all)];
    const take = (slots: Slots) => {
      let taken = 0;
      while (slots.tryTake()) taken += 1;
      return taken;
    };
    expect(take(first)).toBe(8);
    expect(take(retries)).toBe(2);
    for (let n = 0; n < 8; n += 1) first.give();
    expect(take(retries)).toBe(3);
    expect(take(first)).toBe(5);
    expect(all.free).toBe(0);
  });
});

describe("what was slow", () => {
  test("counts as slow for half a minute, or until it proves otherwise", () => {
    vi.useFakeTimers({ toFake: ["performance"] });
    onTestFinished(() => void vi.useRealTimers());
    const slow = new MarkList<string>(30_000);
    slow.mark("a");
    slow.mark("b");
    slow.forget("b");
    expect([slow.has("a"), slow.has("b")]).toEqual([true, false]);
    vi.advanceTimersByTime(29_000);
    expect(slow.has("a")).toBe(true);
    vi.advanceTimersByTime(2_000);
    expect(slow.has("a")).toBe(false);
  });
});
