import { expect, test } from "vitest";
import { TrialQueue } from "../../../../src/api/services/webhooks/trial-queue.ts";

const never = new AbortController().signal;

test("keys take turns, so that one trial of a key does not wait for all of another", async () => {
  const queue = new TrialQueue("trials", 1);
  const order: string[] = [];
  const first = Promise.withResolvers<void>();
  const running = queue.run("busy", never, () => first.promise);
  const trials = ["busy 1", "busy 2", "busy 3", "other 1", "other 2"].map((name) =>
    queue.run(name.slice(0, -2), never, async () => void order.push(name)),
  );
  first.resolve();
  await Promise.all([running, ...trials]);
  expect(order).toEqual(["busy 1", "other 1", "busy 2", "other 2", "busy 3"]);
});

test("a trial that is cancelled while it waits ends at once and never runs, and one that fails lets the next run", async () => {
  const queue = new TrialQueue("trials", 1);
  const first = Promise.withResolvers<void>();
  const running = queue.run("a", never, () => first.promise);
  const cancel = new AbortController();
  let ran = false;
  const cancelled = queue.run("a", cancel.signal, async () => {
    ran = true;
  });
  const next = queue.run("a", never, async () => "next");
  cancel.abort(new Error("cancelled"));
  await expect(cancelled).rejects.toThrow("cancelled");
  first.reject(new Error("failed"));
  await expect(running).rejects.toThrow("failed");
  expect(await next).toBe("next");
  expect(ran).toBe(false);
  expect(await queue.run("a", never, async () => "last")).toBe("last");
});

test("a key's trials above its maximum wait, while other keys' start", async () => {
  const queue = new TrialQueue("trials", 3, 2);
  const ends = new Map<string, () => void>();
  const start = (name: string) =>
    queue.run(name.slice(0, -2), never, () => new Promise<void>((resolve) => ends.set(name, resolve)));
  const trials = ["busy 1", "busy 2", "busy 3", "busy 4", "other 1", "other 2"].map(start);
  expect([...ends.keys()]).toEqual(["busy 1", "busy 2", "other 1"]);
  ends.get("other 1")?.();
  await trials[4];
  await expect.poll(() => [...ends.keys()].at(-1)).toBe("other 2");
  ends.get("busy 1")?.();
  await expect.poll(() => [...ends.keys()].at(-1)).toBe("busy 3");
  ends.get("other 2")?.();
  ends.get("busy 2")?.();
  await expect.poll(() => [...ends.keys()].at(-1)).toBe("busy 4");
  for (const end of ends.values()) end();
  await Promise.all(trials);
});
