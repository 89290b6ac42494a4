import { expect, test } from "vitest";
import { type Evidence, Windows } from "../../../src/delivery/limits/windows.ts";

/** A full window. */
function full(max = 100): Windows<string> {
  const windows = new Windows<string>(max);
  while (windows.hasRoom("a")) windows.start("a");
  return windows;
}

test.each<[string, number, Evidence[], object]>([
  ["starts with four", 100, [], { allowed: 4, inFlight: 4 }],
  ["starts with the maximum where that is less", 3, [], { allowed: 3, inFlight: 3 }],
  ["that is full grows by one with each success", 100, ["success", "success"], { allowed: 6 }],
  [
    "that was full when the last one started grows with each of them",
    100,
    Array(4).fill("success"),
    { allowed: 8 },
  ],
  ["grows up to the maximum", 5, ["success", "success"], { allowed: 5 }],
  ["has one at a time after a failure before any success", 100, ["failure"], { allowed: 1, isFailing: true }],
  ["is halved by a failure", 100, ["success", "failure"], { allowed: 2, isFailing: false }],
  ["keeps at least one", 100, ["success", "failure", "failure", "failure"], { allowed: 1, isFailing: true }],
  ["has one at a time after a timeout", 100, ["timeout"], { allowed: 1, inFlight: 3, timedOut: true }],
  ["has one at a time as long as nothing is shown", 100, ["timeout", "none"], { allowed: 1, timedOut: true }],
  ["grows again after a success", 100, ["timeout", "success"], { allowed: 2, timedOut: false }],
  ["stays as it is if nothing is shown", 100, ["none"], { allowed: 4, inFlight: 3, timedOut: false }],
])("a window %s", (_does, max, evidence, expected) => {
  const windows = full(max);
  for (const each of evidence) windows.end("a", each);
  expect(windows.of("a")).toMatchObject(expected);
});

test("a window that is not full does not grow", () => {
  const windows = new Windows<string>(100);
  for (let n = 0; n < 10; n += 1) {
    windows.start("a");
    windows.end("a", "success");
  }
  expect(windows.of("a").allowed).toBe(4);
});

test("attempts that are not counted in a window change what is allowed, and the last failure at a window of one makes it fail", () => {
  const windows = full();
  const learnt = (["failure", "timeout", "none", "failure", "success"] as const).map((evidence) => {
    windows.learn("a", evidence);
    const { allowed, inFlight, timedOut, isFailing } = windows.of("a");
    return [allowed, inFlight, timedOut ? "timed out" : "", isFailing ? "failing" : ""].join(" ").trim();
  });
  expect(learnt).toEqual(["1 4  failing", "1 4 timed out", "1 4 timed out", "1 4  failing", "2 4"]);
});

test("at most 20,000 idle windows are remembered, and every window with an attempt in flight", () => {
  const windows = new Windows<number>(100);
  windows.start(-1);
  for (let key = 0; key < 20_000; key += 1) windows.learn(key, "failure");
  expect(windows.of(19_000).allowed).toBe(4);
  expect(windows.of(19_999).allowed).toBe(1);
  expect(windows.of(-1).inFlight).toBe(1);
});
