import { expect, test, vi } from "vitest";
import { RetryTurns } from "../../src/delivery/retry-turns.ts";

/** A pass that asks for its turns one after the other. */
function startPass(turns: RetryTurns, stop = new AbortController().signal) {
  const pass = { queued: 0, turns: 0, refused: false };
  const its = turns.of(pass, stop);
  const next = () =>
    its.next().then(
      () => {
        pass.turns += 1;
      },
      () => {
        pass.refused = true;
      },
    );
  return Object.assign(pass, { next, end: its.end });
}

const turnsOf = (passes: { turns: number }[]) => passes.map(({ turns }) => turns);

test("while retries give way, two passes have their turn at a time, in the order of asking", async () => {
  const turns = new RetryTurns({ giveWay: true });
  const passes = Array.from({ length: 4 }, () => startPass(turns));
  for (const pass of passes) void pass.next();
  await vi.waitUntil(() => passes[1]?.turns === 1);
  expect(turnsOf(passes)).toEqual([1, 1, 0, 0]);
  passes[1]?.end();
  await vi.waitUntil(() => passes[2]?.turns === 1);
  expect(turnsOf(passes)).toEqual([1, 1, 1, 0]);
});

test("a pass is in line for its next turn once it has sent what it claimed, behind those who wait", async () => {
  const turns = new RetryTurns({ giveWay: true });
  const [first, second, third] = [startPass(turns), startPass(turns), startPass(turns)] as const;
  await Promise.all([first.next(), second.next()]);
  first.queued = second.queued = 16;
  void third.next();
  const again = first.next();
  first.queued = 0;
  await vi.waitUntil(() => third.turns === 1);
  expect(first.turns).toBe(1);
  third.end();
  await again;
  expect(turnsOf([first, second, third])).toEqual([2, 1, 1]);
});

test("what waits for its receivers does not keep the others waiting: a turn ends after a while", async () => {
  const turns = new RetryTurns({ giveWay: true });
  const stuck = [startPass(turns), startPass(turns)];
  await Promise.all(stuck.map((pass) => pass.next()));
  for (const pass of stuck) pass.queued = 16;
  const third = startPass(turns);
  await third.next();
  expect(third.turns).toBe(1);
});

test("nobody waits for a turn any more once retries do not give way", async () => {
  const retries = { giveWay: true };
  const turns = new RetryTurns(retries);
  const passes = Array.from({ length: 10 }, () => startPass(turns));
  const asked = passes.map((pass) => pass.next());
  await vi.waitUntil(() => passes[1]?.turns === 1);
  for (const pass of passes) pass.queued = 16;
  retries.giveWay = false;
  await Promise.all(asked);
  await Promise.all(passes.map((pass) => pass.next()));
  expect(turnsOf(passes)).toEqual(passes.map(() => 2));
});

test("a pass that is stopped is told so in line, and nobody waits for its turn", async () => {
  const turns = new RetryTurns({ giveWay: true });
  const [first, second] = [startPass(turns), startPass(turns)] as const;
  await Promise.all([first.next(), second.next()]);
  const stopping = new AbortController();
  const stopped = startPass(turns, stopping.signal);
  const asked = stopped.next();
  const last = startPass(turns);
  const after = last.next();
  stopping.abort();
  await asked;
  expect(stopped.refused).toBe(true);
  first.end();
  await after;
  expect(turnsOf([stopped, last])).toEqual([0, 1]);
});
