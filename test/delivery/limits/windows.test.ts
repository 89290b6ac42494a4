import { expect, test } from "vitest";
import { type Evidence, Windows } from "../../../src/delivery/limits/windows.ts";

/** A full window. */
function full(max = 100): Windows<string> {
  const windows = new Windows<string>(max);
  while (windows.hasRoom("a")) windows.start("a");
  return windows;
}

test.each<[string, number, Evidence[], object]>([
  ["starts with two", 100, [], { allowed: 2, inFlight: 2, trouble: "none" }],
  ["starts with the maximum where that is less", 1, [], { allowed: 1, inFlight: 1 }],
  [
    "that was full when the last one started grows by one with each success",
    100,
    ["success", "success"],
    { allowed: 4 },
  ],
  ["grows up to the maximum", 3, ["success", "success"], { allowed: 3 }],
  [
    "has one at a time after a failure before any success",
    100,
    ["failure"],
    { allowed: 1, trouble: "fails" },
  ],
  [
    "stays as it is after a failure among successes",
    100,
    ["success", "success", "failure"],
    { allowed: 4, trouble: "none" },
  ],
  [
    "is halved by a failure after another",
    100,
    ["success", "success", "failure", "failure"],
    { allowed: 2, trouble: "none" },
  ],
  [
    "has one at a time after a failure of a part before any success",
    100,
    ["partial failure"],
    { allowed: 1, trouble: "fails" },
  ],
  [
    "stays as it is after a failure of a part once there was a success",
    100,
    ["success", "partial failure"],
    { allowed: 3, trouble: "none" },
  ],
  [
    "no longer hangs after a failure of a part",
    100,
    ["success", "timeout", "partial failure"],
    { allowed: 1, trouble: "none" },
  ],
  ["keeps at least one", 100, ["failure", "failure"], { allowed: 1, trouble: "fails" }],
  ["has one at a time after a timeout", 100, ["timeout"], { allowed: 1, inFlight: 1, trouble: "hangs" }],
  [
    "has one at a time as long as nothing is shown",
    100,
    ["timeout", "none"],
    { allowed: 1, trouble: "hangs" },
  ],
  ["grows again after a success", 100, ["timeout", "success"], { allowed: 2, trouble: "none" }],
  ["stays as it is if nothing is shown", 100, ["none"], { allowed: 2, inFlight: 1, trouble: "none" }],
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
  expect(windows.of("a").allowed).toBe(2);
});

test("attempts apart from a window take no slot, change what is allowed, and count toward the maximum", () => {
  const windows = full(4);
  const learnt = (["failure", "timeout", "none", "failure", "success"] as const).map((evidence) => {
    windows.start("a", true);
    windows.start("a", true);
    expect(windows.hasRoomApart("a")).toBe(false);
    windows.end("a", "none", true);
    expect(windows.hasRoomApart("a")).toBe(true);
    windows.end("a", evidence, true);
    const { allowed, inFlight, trouble } = windows.of("a");
    return [allowed, inFlight, trouble];
  });
  expect(learnt).toEqual([
    [1, 2, "fails"],
    [1, 2, "hangs"],
    [1, 2, "hangs"],
    [1, 2, "fails"],
    [2, 2, "none"],
  ]);
});

test("at most 20,000 idle windows are remembered, and every window with an attempt in flight", () => {
  const windows = new Windows<number>(100);
  windows.start(-1);
  for (let key = 0; key < 20_000; key += 1) {
    windows.start(key);
    windows.end(key, "failure");
  }
  expect(windows.of(19_000).allowed).toBe(2);
  expect(windows.of(19_999).allowed).toBe(1);
  expect(windows.of(-1).inFlight).toBe(1);
});

test("a window is one during a hold, and grows by what starts after it", () => {
  const windows = full();
  for (const evidence of ["success", "success", "success"] as const) {
    windows.end("a", evidence);
    while (windows.hasRoom("a")) windows.start("a");
  }
  windows.end("a", "hold");
  windows.end("a", "success");
  windows.end("a", "success");
  expect(windows.of("a")).toMatchObject({ allowed: 1, trouble: "none" });
  while (windows.of("a").inFlight > 0) windows.end("a", "success");
  windows.start("a");
  windows.end("a", "success");
  expect(windows.of("a").allowed).toBe(2);
});

test("a window grows up to the number of requests that the receiver still accepts", () => {
  const windows = full();
  const sizes = [9, 8, 3, 2, 0, 100, 100].map((remaining) => {
    windows.limit("a", remaining);
    windows.end("a", "success");
    while (windows.hasRoom("a")) windows.start("a");
    return windows.of("a").allowed;
  });
  expect(sizes).toEqual([3, 4, 3, 2, 1, 1, 2]);
});

test("the rate at a refusal is that of the second before it, and there is none without a success since the last refusal", () => {
  const windows = new Windows<string>(100);
  const accept = (times: number, now: number) => {
    for (let n = 0; n < times; n += 1) {
      windows.start("a");
      windows.end("a", "success", false, now);
    }
  };
  const refused = (now: number) => windows.refusedRate("a", now);
  expect(refused(0)).toBeNull();
  accept(10, 1_200);
  accept(4, 2_100);
  expect(refused(2_500)).toBe(4 + 10 / 2);
  expect(refused(2_600)).toBeNull();
  accept(1, 3_000);
  expect(refused(60_000)).toBe(1);
});
