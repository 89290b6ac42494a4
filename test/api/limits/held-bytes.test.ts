import fc from "fast-check";
import { expect, onTestFinished, test, vi } from "vitest";
import { HeldBytes, type HeldCall, KeyShares } from "../../../src/api/limits/held-bytes.ts";

const MAX = 1_000;
const newLimit = () => new HeldBytes(MAX, "messages of all calls");

/** What one of the calls does: takes bytes, gives some back, or ends. */
const step = fc.record({
  call: fc.nat({ max: 5 }),
  act: fc.oneof(
    fc.record({ hold: fc.integer({ min: 1, max: 700 }) }),
    fc.record({ release: fc.integer({ min: 1, max: 700 }) }),
    fc.constant("close" as const),
  ),
});

test("however calls take and give, no more is held than the limit, and nothing when all have ended", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const all = newLimit();
      const calls = Array.from({ length: 6 }, () => all.open());
      const waiting: Promise<void>[] = [];
      for (const { call: index, act } of steps) {
        // Its reader may go on after a call has ended.
        const call = calls[index] as HeldCall;
        if (act === "close") call.close();
        else if ("hold" in act) {
          const room = call.hold(act.hold);
          // A call that holds something already is refused.
          if (room) waiting.push(room.catch(() => {}));
        } else call.release(act.release);
        expect(all.held).toBeLessThanOrEqual(MAX);
        expect(all.held).toBeGreaterThanOrEqual(0);
      }
      for (const call of calls) call.close();
      await Promise.all(waiting);
      expect(all.held).toBe(0);
    }),
  );
});

test("one message larger than the limit is read when nothing else is, and the next waits for it", async () => {
  const all = newLimit();
  const [large, small] = [all.open(), all.open()];
  expect(large.hold(2 * MAX)).toBeUndefined();
  const room = small.hold(1);
  expect(room).toBeDefined();
  large.close();
  await room;
  expect(all.held).toBe(1);
});

/** How waits for room ended, in order: "room", or the error. */
function outcomes(...waits: (Promise<void> | undefined)[]): unknown[] {
  const ended: unknown[] = [];
  for (const wait of waits)
    void wait?.then(
      () => ended.push("room"),
      (error: unknown) => ended.push(error),
    );
  return ended;
}

const noRoom = (messages: string, bytes: number) => ({
  code: "RESOURCE_EXHAUSTED",
  retryAfterMs: 1_000,
  message: `the ${messages} that are being read leave no room for this one in their ${bytes} bytes; send it later`,
});

test("a call waits at most 5 seconds for its key's memory and for the memory of all keys, and its error names the exhausted one", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const [all, shares] = [newLimit(), new KeyShares(MAX / 2)];
  const open = (key: string) => {
    const call = all.open();
    call.within(shares.open(key));
    return call;
  };
  const [own, other, third] = [open("a"), open("b"), open("c")];
  expect([own.hold(MAX / 2), other.hold(MAX / 2)]).toEqual([undefined, undefined]);
  // The key's own memory becomes free after 3 s, and another key takes it first.
  const taken = third.hold(MAX / 4);
  const ended = outcomes(open("a").hold(MAX / 2));
  setTimeout(() => own.close(), 3_000);
  await vi.advanceTimersByTimeAsync(4_999);
  expect(ended).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(ended).toMatchObject([noRoom("messages of all calls", MAX)]);
  await taken;
  const later = outcomes(open("b").hold(MAX / 2));
  await vi.advanceTimersByTimeAsync(5_000);
  expect(later).toMatchObject([noRoom("messages of this API key", MAX / 2)]);
});

test("when a call has found no room in time, the next gets the room", async () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const all = newLimit();
  const [holder, large, small] = [all.open(), all.open(), all.open()];
  holder.hold(MAX - 1);
  const ended = outcomes(large.hold(MAX), small.hold(1));
  await vi.advanceTimersByTimeAsync(5_000);
  expect(ended).toHaveLength(2);
  expect(ended).toContain("room");
  expect(all.held).toBe(MAX);
});

test("a call that holds something does not wait for more, so that two cannot wait for each other", async () => {
  const all = newLimit();
  const [first, second] = [all.open(), all.open()];
  first.hold(MAX / 2);
  second.hold(MAX / 2);
  await expect(first.hold(1)).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED" });
  first.close();
  expect(second.hold(1)).toBeUndefined();
});
