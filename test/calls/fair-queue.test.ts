import { expect, test } from "vitest";
import { FairQueue, MAX_WAITING_PER_KEY } from "../../src/calls/fair-queue.ts";
import { failure } from "../support/failure.ts";

const never = new AbortController().signal;

test("keys take turns, and a task that fails lets the next one run", async () => {
  const queue = new FairQueue("tasks", { atOnce: 1 });
  const order: string[] = [];
  const first = Promise.withResolvers<void>();
  const running = failure(queue.run("busy", never, () => first.promise));
  const tasks = ["busy 1", "busy 2", "busy 3", "other 1", "other 2"].map((name) =>
    queue.run(name.slice(0, -2), never, async () => void order.push(name)),
  );
  first.reject(new Error("failed"));
  expect((await running)?.rawMessage).toBe("failed");
  await Promise.all(tasks);
  expect(order).toEqual(["busy 1", "other 1", "busy 2", "other 2", "busy 3"]);
});

test("the next task is of the key with the fewest running ones", async () => {
  const queue = new FairQueue("tasks", { atOnce: 3 });
  const started: string[] = [];
  const ends: (() => void)[] = [];
  const tasks = ["busy", "busy", "busy", "busy", "other", "other"].map((key) =>
    queue.run(key, never, () => {
      started.push(key);
      return new Promise<void>((resolve) => ends.push(resolve));
    }),
  );
  for (let n = 0; n < tasks.length; n += 1) {
    ends[n]?.();
    await new Promise(setImmediate);
  }
  await Promise.all(tasks);
  expect(started).toEqual(["busy", "busy", "busy", "other", "busy", "other"]);
});

test("a key's tasks above its maximum wait while other keys' start, and more than may wait are refused", async () => {
  const queue = new FairQueue("tasks", { atOnce: 3, perKey: 2 });
  const end = Promise.withResolvers<void>();
  const started: string[] = [];
  const start = (key: string, signal: AbortSignal | undefined = never, mayRefuse = true) => {
    const task = () => {
      started.push(key);
      return end.promise;
    };
    return queue.run(key, signal, task, { mayRefuse });
  };
  const cancel = new AbortController();
  const waiting = Array.from({ length: MAX_WAITING_PER_KEY }, () => cancel.signal);
  const busy = [never, never, ...waiting].map((signal) => failure(start("busy", signal)));
  const other = [start("other"), start("other")];
  expect(started).toEqual(["busy", "busy", "other"]);
  await expect(start("busy")).rejects.toMatchObject({ code: "RESOURCE_EXHAUSTED" });
  const begun = start("busy", undefined, false);
  // Tasks that are cancelled while they wait end at once, never run, and make room.
  cancel.abort(new Error("cancelled"));
  const messages = (await Promise.all(busy.slice(2))).map((error) => error?.rawMessage);
  expect(messages).toEqual(waiting.map(() => "cancelled"));
  const last = start("busy");
  end.resolve();
  await Promise.all([...busy, ...other, begun, last]);
  expect(started.slice(3).sort()).toEqual(["busy", "busy", "other"]);
});
