import { expect, test } from "vitest";
import { FailingShare } from "../../../src/delivery/limits/failing-share.ts";

const SAMPLES_PER_SECOND = 10;

/** A share of 10 % in a thread that was busy for a second. */
function start() {
  let utilization = 1;
  const share = new FailingShare(0.1, () => utilization);
  const work = (seconds: number, now = 1) => {
    utilization = now;
    for (let n = 0; n < seconds * SAMPLES_PER_SECOND; n += 1) share.sample();
  };
  work(1);
  return { share, work };
}

/** The number of attempts to failing receivers that may start now. */
function attempts(share: FailingShare, opensConnections = false): number {
  let started = 0;
  for (; share.hasRoom && started < 10_000; started += 1) {
    share.request(true);
    if (opensConnections) share.connection(true);
  }
  return started;
}

function requests(share: FailingShare, count: number): void {
  for (let n = 0; n < count; n += 1) share.request(false);
}

test("of a busy thread, failing receivers get their percentage, where an attempt counts as four requests", () => {
  const { share } = start();
  requests(share, 10_000);
  // 10 % of the whole, and the minimum of one connection.
  expect(attempts(share)).toBe(Math.ceil((0.1 * 10_000 + 16) / (4 * 0.9)));
});

test("a new connection counts as 16 requests", () => {
  const { share } = start();
  requests(share, 10_000);
  expect(attempts(share, true)).toBe(Math.ceil((0.1 * 10_000 + 16) / (20 * 0.9)));
});

test("one attempt with a connection may start however busy the thread is", () => {
  expect(attempts(start().share, true)).toBe(1);
});

test("a thread with time to spare limits nothing", () => {
  const { share, work } = start();
  work(10, 0.6);
  expect(attempts(share)).toBe(10_000);
});

test.each([
  [0.5, false],
  [4, true],
])("a busy thread that does nothing for %f s may start attempts to failing receivers: %s", (seconds, may) => {
  const { share, work } = start();
  requests(share, 100);
  attempts(share);
  work(seconds, 0);
  // What was spent counts less as time passes.
  attempts(share);
  expect(share.hasRoom).toBe(may);
});
