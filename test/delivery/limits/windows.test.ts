import { expect, test } from "vitest";
import { Windows } from "../../../src/delivery/limits/windows.ts";

/** Starts as many as there is room for; answers how many. */
function fill(windows: Windows<string>, key = "a"): number {
  let started = 0;
  for (; windows.hasRoom(key); started += 1) windows.start(key);
  return started;
}

test("a window starts with four, or with the maximum where that is less", () => {
  expect(fill(new Windows(100))).toBe(4);
  expect(fill(new Windows(3))).toBe(3);
});

test("a full window grows by one with each success, up to the maximum", () => {
  const windows = new Windows<string>(6);
  fill(windows);
  for (const allowed of [5, 6, 6]) {
    windows.end("a", "success");
    expect(windows.of("a").allowed).toBe(allowed);
    fill(windows);
  }
  expect(windows.of("a").inFlight).toBe(6);
});

test("a window that is not full does not grow", () => {
  const windows = new Windows<string>(100);
  for (let n = 0; n < 10; n += 1) {
    windows.start("a");
    windows.end("a", "success");
  }
  expect(windows.of("a").allowed).toBe(4);
});

test("a failure halves a window, which keeps at least one", () => {
  const windows = new Windows<string>(100);
  fill(windows);
  for (const allowed of [2, 1, 1]) {
    windows.end("a", "failure");
    expect(windows.of("a").allowed).toBe(allowed);
  }
});

test("failures are counted until a success, beyond timeouts", () => {
  const windows = new Windows<string>(100);
  for (const [evidence, failures] of [
    ["failure", 1],
    ["failure", 2],
    ["timeout", 2],
    ["none", 2],
    ["failure", 3],
    ["success", 0],
  ] as const) {
    windows.learn("a", evidence);
    expect(windows.of("a").failures).toBe(failures);
  }
});

test("a timeout leaves one at a time until another attempt shows something else", () => {
  const windows = new Windows<string>(100);
  fill(windows);
  windows.end("a", "timeout");
  expect(windows.of("a")).toMatchObject({ allowed: 1, inFlight: 3, timedOut: true });
  expect(windows.hasRoom("a")).toBe(false);
  windows.end("a", "none");
  expect(windows.of("a")).toMatchObject({ allowed: 1, timedOut: true });
  windows.end("a", "success");
  expect(windows.of("a")).toMatchObject({ allowed: 2, timedOut: false });
});

test("an attempt that shows nothing changes only what is in flight", () => {
  const windows = new Windows<string>(100);
  fill(windows);
  windows.end("a", "none");
  expect(windows.of("a")).toMatchObject({ allowed: 4, inFlight: 3, timedOut: false });
});

test("an attempt that is not counted in a window changes what is allowed, not what is in flight", () => {
  const windows = new Windows<string>(100);
  fill(windows);
  windows.learn("a", "failure");
  expect(windows.of("a")).toMatchObject({ allowed: 2, inFlight: 4, timedOut: false });
});

test("each of several successes at once widens a window that was full when the last of them started", () => {
  const windows = new Windows<string>(100);
  fill(windows);
  for (let n = 0; n < 4; n += 1) windows.end("a", "success");
  expect(windows.of("a")).toMatchObject({ allowed: 8, inFlight: 0 });
});

test("the window of one key is independent of the others", () => {
  const windows = new Windows<string>(100);
  fill(windows, "a");
  windows.end("a", "timeout");
  expect(fill(windows, "b")).toBe(4);
});

test("at most 20,000 idle windows are remembered, and every window with an attempt in flight", () => {
  const windows = new Windows<number>(100);
  windows.start(-1);
  for (let key = 0; key < 20_000; key += 1) windows.learn(key, "failure");
  expect(windows.of(19_000).allowed).toBe(4);
  expect(windows.of(19_999).allowed).toBe(2);
  expect(windows.of(-1).inFlight).toBe(1);
});
