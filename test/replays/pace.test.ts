import { describe, expect, test } from "vitest";
import { pauseAfterRound } from "../../src/replays/pace.ts";

const step = (tookMs: number, behind: boolean) => ({ tookMs, behind });

describe("a replay pauses", () => {
  test("for nine times as long as it worked on webhooks that are behind with first attempts", () => {
    // Three steps run at the same time.
    const round = [step(30, true), step(30, true), step(30, true), step(500, false)];
    expect(pauseAfterRound(round, true)).toBeCloseTo(270);
    expect(pauseAfterRound(round, false)).toBeCloseTo(270);
  });

  test("not at all between steps of other webhooks", () => {
    expect(pauseAfterRound([step(500, false)], false)).toBe(0);
    expect(pauseAfterRound([], true)).toBe(0);
  });

  test("when no webhook is ready, and for at most ten seconds, however long the database did not respond", () => {
    expect(pauseAfterRound([], false)).toBeGreaterThan(0);
    expect(pauseAfterRound([step(60_000, true)], true)).toBe(10_000);
  });
});
